//! Dentries as memory of their group: charged when they are made, uncharged when they die, if the cache was built so.
//!
//! A lookup does not fail for want of memory for the cache. Where the group, or one above it, has no room, the lookup frees a little
//! of its own group's: negatives first, then the oldest positives, so many looks and no more. If that does not help, because the
//! rest is in use or was used just now, the dentry is made nevertheless, uncharged, and goes with its last user. Until then it is
//! found like any other: two dentries for one directory would have two locks for one thing. So what is not charged is bounded by
//! what is in use.
//!
//! The root is not charged, nor are inodes and the tables of children's places.

use crate::dcache_core::Core;
use crate::dentry::Dentry;
use crate::flag;
use crate::footprint::bytes_of;
use crate::superblock::SuperBlock;
use lowwater_lru_core::{Bytes, Memcg, NodeId};

/// Dentries of a node that are looked at in one round. Few, as all that were not used lately go.
const LOOKS: u64 = 4;
/// A look may only take a mark of use. Those that a lookup takes in vain are gone for the next.
const ROUNDS: u32 = 16;

/// Room for a dentry: charged, until it is taken or dropped.
#[must_use = "room that is not taken is given back"]
pub(crate) struct Room<'a> {
    memcg: &'a Memcg,
    bytes: u64,
    flags: u32,
}

impl Core {
    /// Room in a group for a dentry with a name of so many bytes. To be called without a lock that a dying dentry takes.
    pub(crate) fn room<'a>(&self, sb: &SuperBlock, memcg: &'a Memcg, name_len: usize) -> Room<'a> {
        let bytes = bytes_of(name_len);
        let flags = match self.charges {
            false => 0,
            true if self.charge(sb, memcg, bytes) => flag::CHARGED,
            true => {
                self.counters.refused(std::ptr::from_ref(sb).addr());
                flag::DONTCACHE
            }
        };
        Room { memcg, bytes, flags }
    }

    /// A dentry that its caller uses has another name now, and was of so many bytes.
    pub(crate) fn recharge(&self, sb: &SuperBlock, dentry: &Dentry, before: u64) {
        if !dentry.has(flag::CHARGED) {
            return;
        }
        let after = dentry.bytes();
        if after <= before {
            return dentry.memcg.uncharge(Bytes::new(before - after));
        }
        if !self.charge(sb, &dentry.memcg, after - before) {
            self.counters.refused(dentry.addr());
            dentry.memcg.uncharge(Bytes::new(before));
            dentry.update_flags(&mut dentry.lock(), flag::CHARGED, flag::DONTCACHE, &self.counters);
        }
    }

    /// Charges, and makes room in the group first if need be.
    #[inline]
    fn charge(&self, sb: &SuperBlock, memcg: &Memcg, bytes: u64) -> bool {
        // Above `high` it is for whoever watches the group to reclaim.
        memcg.try_charge(Bytes::new(bytes)).is_ok() || self.make_room(sb, memcg, bytes)
    }

    #[cold]
    fn make_room(&self, sb: &SuperBlock, memcg: &Memcg, bytes: u64) -> bool {
        let here = self.topology.current();
        // At most 65,536, whatever the topology says.
        let others = (0..=u16::MAX).take(self.topology.nodes()).map(NodeId::new).filter(|&node| node != here);
        for _ in 0..ROUNDS {
            for node in std::iter::once(here).chain(others.clone()) {
                let mut left = LOOKS;
                let freed = self.scan_dentries(sb, memcg, node, &mut left);
                if freed > 0 && memcg.try_charge(Bytes::new(bytes)).is_ok() {
                    return true;
                }
            }
        }
        false
    }
}

impl Room<'_> {
    /// The flags of the dentry that takes it.
    pub(crate) fn take(mut self) -> u32 {
        std::mem::take(&mut self.flags)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.flags == flag::CHARGED {
            self.memcg.uncharge(Bytes::new(self.bytes));
        }
    }
}
