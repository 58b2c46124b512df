//! Memcg charges: the bytes of a dentry are charged when it is allocated and uncharged when it
//! dies, if the cache was built with [`Builder::charge`](crate::Builder::charge).
//!
//! A lookup or a creation does not fail because of a limit. When the `max` of the memcg or of an
//! ancestor refuses the charge, the call reclaims a few of the oldest dentries of its own memcg (of
//! an ended one's ancestor, if that may help), with a bounded number of retries; negatives first,
//! if the policy keeps them on lists of their own, then positives. If the charge is still refused,
//! because the other dentries are in use or were used recently, the dentry is allocated uncharged
//! (`DONTCACHE`), and its last put frees it.
//!
//! The dentries below the refusing limit may be on other lists: those of another mount, of an
//! ancestor with the dentries of its ended children, or of a sibling. So while the call's own lists
//! hold less than half of the limit, or gave nothing to the retry before, each retry compares them
//! with the next lists of a round-robin over the subtree, and reclaims from the longer ones. Of
//! another memcg nothing within its `min` or `low` is taken. A retry looks at a bounded number of
//! lists, so in a subtree of many memcgs, or of many mounts, a charge may be refused before the
//! round-robin has come to lists with dentries.
//!
//! Lookups find an uncharged dentry until its last put: the lock of a directory is in its dentry,
//! so the directory must not have a second dentry. The uncharged bytes are therefore bounded by the
//! dentries in use.
//!
//! The root is not charged, nor are inodes and the `Dir` of a directory; each child is charged for
//! its slot among the children.
//!
//! A change must ensure that each charge is uncharged once, for the memcg that was charged.

use crate::dcache_core::DcacheCore;
use crate::dentry::Dentry;
use crate::flag;
use crate::footprint::{bytes_of, DENTRY_BYTES};
use crate::superblock::SuperBlock;
use lowwater_base::sync::Arc;
use lowwater_lru_core::{ByteSize, Memcg, NodeId, OverLimit};
use std::cmp::Reverse;

/// Dentries that one retry scans of a list on each node. Few, because a scan frees all of them that
/// were not used recently.
const SCAN_BATCH: u64 = 4;
/// Retries of reclaim for one charge. A scan may only clear referenced flags; then a later scan can
/// free those dentries.
#[doc(alias = "MAX_RECLAIM_RETRIES")]
const RECLAIM_RETRIES: u32 = 16;
/// Steps of the round-robin in one retry.
const CURSOR_STEPS: u32 = 16;
/// Ends of rounds, without a list in between, after which a charge looks for no other list. Two,
/// as the first may be that of a round which an earlier charge began.
const ROUND_ENDS: u32 = 2;

/// The charge for a dentry that is about to be allocated, if there is one. A drop uncharges it.
#[must_use = "a reservation that is not taken is uncharged"]
pub(crate) struct Reservation<'a> {
    memcg: &'a Memcg,
    bytes: u64,
    /// `CHARGED`; `DONTCACHE` if the charge was refused; 0 if the cache charges nothing.
    flags: u32,
}

impl DcacheCore {
    /// Charges a memcg for a dentry with a name of `name_len` bytes. The caller holds no lock that
    /// the death of a dentry takes, as the charge may kill dentries.
    pub(crate) fn reserve<'a>(&self, sb: &SuperBlock, memcg: &'a Memcg, name_len: usize) -> Reservation<'a> {
        let bytes = bytes_of(name_len);
        let flags = match self.charges {
            false => 0,
            true if self.charge(sb, memcg, bytes) => flag::CHARGED,
            true => flag::DONTCACHE,
        };
        Reservation { memcg, bytes, flags }
    }

    /// Adjusts the charge of a renamed dentry; its bytes were `before`. If the memcg refuses more,
    /// the whole dentry becomes uncharged; also if the policy, which reclaim calls, panics. The
    /// caller uses the dentry and holds `rename_mutex`, so no other thread changes `CHARGED`.
    pub(crate) fn recharge(&self, sb: &SuperBlock, dentry: &Dentry, before: u64) {
        if !dentry.has(flag::CHARGED) {
            return;
        }
        let after = dentry.bytes();
        if after <= before {
            return dentry.memcg.uncharge(ByteSize::new(before - after));
        }
        let refused = RefusedRecharge { core: self, dentry, before };
        if self.charge(sb, &dentry.memcg, after - before) {
            std::mem::forget(refused);
        }
    }

    /// Charges a memcg, and reclaims its dentries if that is refused. Returns whether it is
    /// charged.
    #[doc(alias = "try_charge_memcg")]
    #[inline]
    fn charge(&self, sb: &SuperBlock, memcg: &Memcg, bytes: u64) -> bool {
        // Usage above `high` is no refusal: a reclaimer of the embedding program reclaims it.
        match memcg.try_charge(ByteSize::new(bytes)) {
            Ok(_) => true,
            Err(over) => self.reclaim_and_charge(sb, memcg, bytes, over),
        }
    }

    #[cold]
    fn reclaim_and_charge(&self, sb: &SuperBlock, memcg: &Memcg, bytes: u64, mut over: OverLimit) -> bool {
        let (mut round_ends, mut is_fruitless) = (0, false);
        for _ in 0..RECLAIM_RETRIES {
            // A memcg that has ended has its dentries on its ancestor's lists.
            let listed = memcg.nearest_online();
            if !listed.is_descendant_of(&over.memcg) {
                // The limit of a memcg that has ended: mostly others' dentries are there.
                return false;
            }
            let own = nr_unused(sb, &listed).saturating_mul(DENTRY_BYTES as u64);
            let others = is_fruitless || own < over.memcg.max().get() / 2;
            let other = others.then(|| self.next_lists(sb, &listed, &over.memcg, &mut round_ends)).flatten();
            let other = other.as_ref().map(|(sb, memcg, max)| (&**sb, memcg, *max));
            let mut lists = [Some((sb, &listed, SCAN_BATCH)), other];
            lists.sort_by_key(|lists| Reverse(lists.map(|(sb, memcg, _)| nr_unused(sb, memcg))));
            is_fruitless = !lists.into_iter().flatten().any(|(sb, memcg, max)| self.reclaim_few(sb, memcg, max) > 0);
            if !is_fruitless {
                match memcg.try_charge(ByteSize::new(bytes)) {
                    Ok(_) => return true,
                    Err(again) => {
                        // The lists below another limit may be others.
                        if again.memcg != over.memcg {
                            round_ends = 0;
                        }
                        over = again;
                    }
                }
            }
        }
        false
    }

    /// Reclaims up to `max` dentries of a memcg on a mount, from the first node that has some to
    /// free. Returns how many were killed.
    fn reclaim_few(&self, sb: &SuperBlock, memcg: &Memcg, max: u64) -> u64 {
        let here = self.current_node(sb);
        let others = nodes(sb).filter(|&node| node != here);
        let mut killed = std::iter::once(here).chain(others).map(|node| self.scan_dentries(sb, memcg, node, max));
        killed.find(|&killed| killed > 0).unwrap_or(0)
    }

    /// Returns the next lists of the round-robin over `top` and the memcgs below it, on any mount,
    /// if they have unused dentries and are not those of `listed` on `sb`; and how many dentries
    /// may be reclaimed. `round_ends` counts the rounds that ended for this charge since it came to
    /// such lists.
    fn next_lists(
        &self,
        sb: &SuperBlock,
        listed: &Memcg,
        top: &Memcg,
        round_ends: &mut u32,
    ) -> Option<(Arc<SuperBlock>, Memcg, u64)> {
        if *round_ends >= ROUND_ENDS {
            return None;
        }
        let mut cursor = self.reclaim_cursors.take(top);
        let mounts = self.super_blocks.read().len();
        let mut next = None;
        for _ in 0..CURSOR_STEPS {
            let Some((memcg, id)) = cursor.step(mounts) else {
                *round_ends += 1;
                if *round_ends >= ROUND_ENDS {
                    break;
                }
                continue;
            };
            let protection = memcg.protection(top);
            let floor = protection.min.max(protection.low);
            let max = match memcg == *listed || floor == ByteSize::ZERO {
                true => SCAN_BATCH,
                false => (memcg.usage().saturating_sub(floor).get() / DENTRY_BYTES as u64).min(SCAN_BATCH),
            };
            let other = self.superblock(id as u16).filter(|other| other.id != sb.id || memcg != *listed);
            if let Some(other) = other.filter(|other| max > 0 && nr_unused(other, &memcg) > 0) {
                *round_ends = 0;
                next = Some((other, memcg, max));
                break;
            }
        }
        self.reclaim_cursors.put(cursor);
        next
    }
}

/// A renamed dentry that is charged with `before` bytes. A drop makes it uncharged.
struct RefusedRecharge<'a> {
    core: &'a DcacheCore,
    dentry: &'a Dentry,
    before: u64,
}

impl Drop for RefusedRecharge<'_> {
    fn drop(&mut self) {
        let Self { core, dentry, before } = *self;
        core.counters.refused(dentry.addr());
        dentry.memcg.uncharge(ByteSize::new(before));
        dentry.update_flags(&mut dentry.lock(), flag::CHARGED, flag::DONTCACHE, &core.counters);
    }
}

/// Returns the nodes that have lists of the mount.
fn nodes(sb: &SuperBlock) -> impl Iterator<Item = NodeId> {
    (0..=sb.last_node.get()).map(NodeId::new)
}

/// Returns the number of unused dentries that a memcg has on a mount. O(nodes).
fn nr_unused(sb: &SuperBlock, memcg: &Memcg) -> u64 {
    nodes(sb).map(|node| sb.counts(memcg, node)[..3].iter().sum::<u64>()).sum()
}

impl Reservation<'_> {
    /// Passes the charge on to the dentry. Returns the flags that the dentry starts with.
    pub(crate) fn take(mut self) -> u32 {
        std::mem::take(&mut self.flags)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.flags == flag::CHARGED {
            self.memcg.uncharge(ByteSize::new(self.bytes));
        }
    }
}
