//! Overwrites: a new value takes the place of a present one, in the index and on its list.
//!
//! The new record gets the group, the position, the uses and the charge of the old one; only a
//! difference of their charges is charged or uncharged. Nothing is evicted, and no list changes its
//! length. The general insert remains for all other cases:
//!
//! ```text
//!     the entry moves to another group            its group ends, or is above a limit
//!     LRU order: the entry becomes the youngest   values with a charge of their own
//!     readers hold back much memory               no stock for a larger value, or no memory
//!     a walk has isolated the old record          another thread has removed the old record
//!     the old record is on another node
//! ```

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_rcu::Guard;
use lowwater_store::index::InsertError;

use super::core::PendingRemoval;
use super::expiry::deadline::Deadline;
use super::handle::Cache;
use super::payer::Payer;
use super::record::Record;
use super::removal::RemovalCause;

/// A value to insert: the parts of the new record, and the group to charge.
pub(super) struct NewValue<'a, K, V> {
    pub(super) key: K,
    pub(super) value: V,
    /// The bytes to charge for the record.
    pub(super) bytes: ByteSize,
    /// The hash of the key.
    pub(super) hash: u64,
    pub(super) payer: Payer<'a>,
    pub(super) expires: Deadline,
}

/// The replaced value, and the removal of its record, to be finished when no guard is held.
pub(super) type Overwritten<'c, K, V, S> = (V, PendingRemoval<'c, K, V, S>);

/// Bytes charged to a group in advance, uncharged when this is dropped.
struct Advance<'a> {
    group: &'a Memcg,
    bytes: ByteSize,
}

impl Drop for Advance<'_> {
    fn drop(&mut self) {
        if self.bytes > ByteSize::ZERO {
            self.group.uncharge(self.bytes);
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Puts a value in the place of `record`, a live record of the same key.
    ///
    /// # Errors
    ///
    /// The key and the value, if the general insert is needed; see the module.
    pub(super) fn overwrite<'c: 'g, 'g>(
        &'c self,
        record: &'g Record<K, V>,
        NewValue { key, value, bytes, hash, payer, expires }: NewValue<'_, K, V>,
        guard: &'g Guard,
    ) -> Result<Overwritten<'c, K, V, S>, (K, V)> {
        let core = &self.inner.core;
        if core.is_lru || core.held_values.is_some() || self.runtime().retired().is_much() {
            return Err((key, value));
        }
        let Some(group) = self.group_to_keep(record, payer) else { return Err((key, value)) };
        let more = bytes.saturating_sub(record.charge());
        if more > ByteSize::ZERO && !group.try_charge_from_stock(more) {
            return Err((key, value));
        }
        // Uncharged on every return below that does not insert the record, and if the key's own code
        // panics.
        let advance = Advance { group: &group, bytes: more };
        let new = Record::new(key, value, expires, bytes);
        let new = core.index.slab().alloc(new, self.inner.node()).map_err(|Record { key, value, .. }| (key, value))?;
        let put = core.index.replace(new, hash, guard, record, |new, node| {
            if core.is_expired(record) || new.node() != node {
                return Err(new);
            }
            let old = core.queues.replace(record, new)?;
            old.set_cause(RemovalCause::Replaced);
            Ok(old)
        });
        let (new, old) = match put {
            Ok(put) => put,
            Err(InsertError::Refused(new) | InsertError::Indexed(new) | InsertError::NoMemory(new)) => {
                let Ok(Record { key, value, .. }) = new.into_inner() else {
                    unreachable!("no other thread has the record")
                };
                return Err((key, value));
            }
        };
        std::mem::forget(advance);
        let removal = PendingRemoval { core, record: Some(old), memcg: None };
        let less = record.charge().saturating_sub(bytes);
        if less > ByteSize::ZERO {
            group.uncharge(less);
        }
        // A write counts as a use, as the record is not moved to the young end.
        new.mark_used();
        core.counters.inserted(bytes);
        self.inner.register_deadline(expires);
        Ok((record.value.clone(), removal))
    }

    /// Returns the group of a record, if a new value of this payer stays in that group.
    fn group_to_keep(&self, record: &Record<K, V>, payer: Payer<'_>) -> Option<Cow<'_, Memcg>> {
        let group = if self.has_one_group(payer) {
            Cow::Borrowed(&self.inner.group)
        } else {
            Cow::Owned(self.inner.core.queues.owner(record)?)
        };
        let moves = payer.is_named && *payer.group != *group;
        (!moves && group.is_online() && is_within_limits(&group)).then_some(group)
    }
}

/// Returns whether a group and its ancestors are within their limits. False if a limit was lowered
/// and too little was evicted since, and for a group that is being emptied, as its limit is 0.
/// O(depth).
fn is_within_limits(group: &Memcg) -> bool {
    std::iter::successors(Some(group), |memcg| memcg.parent()).all(|memcg| memcg.usage() <= memcg.max())
}
