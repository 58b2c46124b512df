//! Memcg charges: the bytes of a dentry are charged when it is allocated and uncharged when it
//! dies, if the cache was built with [`Builder::charge`](crate::Builder::charge).
//!
//! A lookup or a creation does not fail because of a limit. When the `max` of the memcg or of an
//! ancestor refuses the charge, the call reclaims a few of the oldest dentries of its own memcg (of
//! an ended one's ancestor, if that may help), with a bounded number of retries; negatives first,
//! if the policy keeps them on lists of their own. If the charge is still refused, because the
//! other dentries are in use or were used recently, the dentry is allocated uncharged
//! (`DONTCACHE`), and its last put frees it.
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
use crate::footprint::bytes_of;
use crate::superblock::SuperBlock;
use lowwater_lru_core::{ByteSize, Memcg, NodeId, OverLimit};

/// Dentries that one retry scans on each node. Few, because a scan frees all of them that were not
/// used recently.
const SCAN_BATCH: u64 = 4;
/// Retries of reclaim for one charge. A scan may only clear referenced flags; then a later scan can
/// free those dentries.
#[doc(alias = "MAX_RECLAIM_RETRIES")]
const RECLAIM_RETRIES: u32 = 16;

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
    /// the whole dentry becomes uncharged. The caller uses the dentry and holds `rename_mutex`, so
    /// no other thread changes `CHARGED`.
    pub(crate) fn recharge(&self, sb: &SuperBlock, dentry: &Dentry, before: u64) {
        if !dentry.has(flag::CHARGED) {
            return;
        }
        let after = dentry.bytes();
        if after <= before {
            return dentry.memcg.uncharge(ByteSize::new(before - after));
        }
        if !self.charge(sb, &dentry.memcg, after - before) {
            self.counters.refused(dentry.addr());
            dentry.memcg.uncharge(ByteSize::new(before));
            dentry.update_flags(&mut dentry.lock(), flag::CHARGED, flag::DONTCACHE, &self.counters);
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
        let here = self.current_node(sb);
        let others = (0..=sb.last_node.get()).map(NodeId::new).filter(|&node| node != here);
        for _ in 0..RECLAIM_RETRIES {
            for node in std::iter::once(here).chain(others.clone()) {
                // A memcg that has ended has its dentries on its ancestor's lists.
                let listed = memcg.nearest_online();
                if !listed.is_descendant_of(&over.memcg) {
                    // The limit of a memcg that has ended: mostly others' dentries are there.
                    return false;
                }
                let mut left = SCAN_BATCH;
                if self.scan_dentries(sb, &listed, node, &mut left) > 0 {
                    match memcg.try_charge(ByteSize::new(bytes)) {
                        Ok(_) => return true,
                        Err(again) => over = again,
                    }
                }
            }
        }
        false
    }
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
