//! Overwrites: a new value takes the place of a present one, in the index and on its list.
//!
//! The new record gets the position and the uses of the old one, and one use more. It takes over
//! the charge, so only the difference of both charges is charged or uncharged. Nothing is evicted,
//! and no list changes its length. The general insert, which adds the new record to its queue and
//! removes the old one, is used in these cases:
//!
//! ```text
//!     the entry moves to another group            the old record has expired
//!     LRU order: the entry becomes the youngest   values with a charge of their own
//!     the old record is on another node           a walk has isolated the old record
//!     the group ends, or is above a limit         no stock for a larger value
//!     readers hold back much memory
//! ```
//!
//! A change must ensure that either way leaves the same key, value, group and deadline, that each
//! of these cases is refused, and that a refused record is returned as it was.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_rcu::Guard;

use super::core::PendingRemoval;
use super::handle::Cache;
use super::payment::Payment;
use super::record::{Handle, Record};
use super::removal::RemovalCause;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns whether a new record of `group` may take the place of `old`, the live record of the
    /// same key, whose memory is on `node`. The caller holds the lock of their segment.
    #[inline]
    fn may_overwrite(
        &self,
        (old, node): (&Record<K, V>, NodeId),
        new: &Handle<K, V>,
        group: &Memcg,
        guard: &Guard,
    ) -> bool {
        let core = &self.inner.core;
        let is_general = core.is_lru || core.held_values.is_some() || self.runtime().retired().is_much();
        if is_general || new.node() != node {
            return false;
        }
        // Relaxed: an insert for another group sets the flag, or reads it as set, under the lock of
        // the record's segment. This record is seen under that lock, so the flag is seen as well.
        let has_tenants = core.has_tenants.load(Ordering::Relaxed);
        if has_tenants || *group != self.inner.group {
            if !core.queues.is_owner(group, old, guard) {
                return false;
            }
            if !has_tenants {
                // The cache's group has ended, and an ancestor of it is charged from now on. A
                // concurrent overwrite may still be about to charge the ended group. Relaxed: as
                // above.
                core.has_tenants.store(true, Ordering::Relaxed);
            }
        }
        is_within_limits(group)
    }

    /// Puts a new record of this hash and charge in the place of `old` on its list, and settles its
    /// payment. For `node` and the lock see [`may_overwrite`](Self::may_overwrite).
    ///
    /// # Errors
    ///
    /// The new record, if the general insert is needed; see the module.
    #[inline]
    pub(super) fn overwrite(
        &self,
        (old, node): (&Record<K, V>, NodeId),
        (hash, guard): (u64, &Guard),
        (new, after): (Handle<K, V>, ByteSize),
        payment: &mut Payment<'_>,
    ) -> Result<PendingRemoval<'_, K, V, S>, Handle<K, V>> {
        let before = old.charge();
        let pay = |group: &Memcg, more| self.charge_from_stock(group, more);
        if !self.may_overwrite((old, node), &new, payment.group(), guard)
            || !payment.raise_to(after.saturating_sub(before), pay)
        {
            return Err(new);
        }
        let core = &self.inner.core;
        // A write counts as a use, as the record is not moved to the young end.
        let (queue, uses) = (new.queue(), new.uses());
        new.set_uses(old.uses());
        new.mark_used();
        let replaced = core.queues.replace(old, new, guard).inspect_err(|new| {
            new.set_queue(queue);
            new.set_uses(uses);
        })?;
        core.stop_reload(&replaced, hash);
        replaced.set_cause(RemovalCause::Replaced, false);
        payment.settle(before, after);
        Ok(PendingRemoval { core, record: Some(replaced), memcg: None })
    }
}

/// Returns whether a group and its ancestors are within their limits. False if a limit was lowered
/// and too little was evicted since, and for a group that is being emptied, as its limit is 0.
/// O(depth).
fn is_within_limits(group: &Memcg) -> bool {
    std::iter::successors(Some(group), |memcg| memcg.parent()).all(|memcg| memcg.usage() <= memcg.max())
}
