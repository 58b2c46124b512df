//! The ghost table: fingerprints of names that were evicted from the probation list, the list of
//! negatives that were looked up once. A lookup that finds its name there is a ghost hit: the name
//! was looked up twice within a short time, though it was not cached in between.
//!
//! With the ghost table the probation list can be short. A name that is looked up again after it
//! has left that list, but while its fingerprint is in the table, counts as used, and is promoted.
//!
//! ```text
//!     sets   ..|  group 3, mount 0: 16 sets  |.......|  group 3, mount 1: 16 sets  |....
//!                                                             each set: the last 8 fingerprints
//! ```
//!
//! The table has a fixed size: one byte for each bucket of the dentry hash table. A policy bounds
//! the negatives of a memcg on each node of each mount, so each (memcg, mount, node) has a window
//! of the ghost table, with one to two times as many entries as this capacity for negatives, within
//! the bounds of one set and of the table. So a flood evicts fingerprints of its own memcg and
//! mount, and others only where two windows overlap: the default table has room for 64 windows of
//! the default capacity.
//!
//! A fingerprint is 32 bits of the name's hash; a false match only keeps a name cached a little
//! longer. There is no lock: a fingerprint that is lost in a race of two writers is a fingerprint
//! that was not inserted.
//!
//! A change must ensure that nothing but the choice of victims depends on a ghost hit, because
//! fingerprints collide.
//!
//! Numbers such as D24 are those of docs/INVARIANTS.md.

use lowwater_base::hash::GOLDEN_RATIO;
use lowwater_base::sync::atomic::{AtomicU32, Ordering};
use lowwater_lru_core::{Memcg, NodeId};

/// Fingerprints of a set: 32 bytes, half a cache line.
const WAYS: usize = 8;
/// Buckets of the dentry hash table for each set.
const BUCKETS_PER_SET: usize = WAYS * size_of::<u32>();
/// Minimum number of sets: the windows of a few groups.
const SETS_MIN: usize = 64;

/// Fingerprints, the latest first; 0 is an empty way.
#[derive(Default)]
#[repr(align(32))]
struct GhostSet([AtomicU32; WAYS]);

/// The negatives whose fingerprints share a window: those of a memcg on a node of a mount.
#[derive(Clone, Copy)]
pub(crate) struct GhostWindow<'a> {
    pub(crate) memcg: &'a Memcg,
    /// The id of the superblock.
    pub(crate) sb: u16,
    pub(crate) node: NodeId,
    /// The number of such negatives that stay cached. It must be that of `node`: the sets of a
    /// window follow from it.
    pub(crate) capacity: u64,
}

/// A set-associative table of fingerprints of evicted names.
pub(crate) struct GhostTable {
    /// The number of sets is a power of two, or 0.
    sets: Box<[GhostSet]>,
}

impl GhostTable {
    pub(crate) fn new(buckets: usize) -> Self {
        let sets = (buckets / BUCKETS_PER_SET).next_power_of_two().max(SETS_MIN);
        Self { sets: (0..sets).map(|_| GhostSet::default()).collect() }
    }

    /// Returns a table without memory, for a policy that does not use it.
    pub(crate) fn empty() -> Self {
        Self { sets: Box::default() }
    }

    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Inserts a name as the first of its set. A full set loses its oldest fingerprint.
    pub(crate) fn insert(&self, hash: u64, window: GhostWindow<'_>) {
        let Some(set) = self.set(hash, window) else { return };
        let mut fingerprint = fingerprint(hash);
        for way in &set.0 {
            // Relaxed: a hint that orders no other access.
            let older = way.load(Ordering::Relaxed);
            way.store(fingerprint, Ordering::Relaxed);
            fingerprint = older;
            if older == 0 {
                break;
            }
        }
    }

    /// Removes a name. Returns whether its fingerprint was in the table.
    pub(crate) fn take(&self, hash: u64, window: GhostWindow<'_>) -> bool {
        let Some(set) = self.set(hash, window) else { return false };
        let wanted = fingerprint(hash);
        // Relaxed: a hint that orders no other access.
        let Some(way) = set.0.iter().find(|way| way.load(Ordering::Relaxed) == wanted) else { return false };
        way.store(0, Ordering::Relaxed);
        true
    }

    fn set(&self, hash: u64, window: GhostWindow<'_>) -> Option<&GhostSet> {
        let mask = self.sets.len().checked_sub(1)?;
        let sets = usize::try_from(window.capacity / WAYS as u64).ok()?.clamp(1, self.sets.len()).next_power_of_two();
        // Fibonacci hashing, once for each number: windows whose numbers are consecutive, or rise
        // together, are far apart. The highest bits of the product spread best.
        let numbers = [u32::from(window.node.get()), u32::from(window.sb), window.memcg.id().get()];
        let key = numbers.iter().fold(0, |key: u64, &n| key.wrapping_add(n.into()).wrapping_mul(GOLDEN_RATIO));
        let begin = ((u128::from(key) * self.sets.len() as u128) >> 64) as usize;
        // The bucket index is the highest bits of the hash; these lower bits spread the names of
        // one bucket over the sets.
        let at = (hash >> 32) as usize & (sets - 1);
        self.sets.get(begin.wrapping_add(at) & mask)
    }
}

/// Returns the fingerprint of a hash, which is never 0: 0 is an empty way.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use lowwater_lru_core::MemcgTree;

    fn hash(n: u64) -> u64 {
        n.wrapping_mul(GOLDEN_RATIO)
    }

    fn window(memcg: &Memcg) -> GhostWindow<'_> {
        GhostWindow { memcg, sb: 0, node: NodeId::ZERO, capacity: 128 }
    }

    #[test]
    fn a_name_trimmed_lately_is_taken_once() {
        let (ghosts, tree) = (GhostTable::new(1 << 16), MemcgTree::new(1));
        for n in 1..=64 {
            ghosts.insert(hash(n), window(tree.root()));
        }
        let recalled = |from, to| (from..=to).filter(|&n| ghosts.take(hash(n), window(tree.root()))).count();
        assert!(recalled(1, 64) > 56, "sets are filled nearly evenly");
        assert_eq!(recalled(1, 64), 0, "once");
        for n in 1..=10_000 {
            ghosts.insert(hash(n), window(tree.root()));
        }
        assert_eq!(recalled(1, 9_000), 0, "the latest fingerprints are kept");
        assert_eq!(recalled(9_001, 10_000), 128, "all ways of the window");
    }

    #[test]
    fn d24_a_group_a_mount_and_a_node_forget_their_own() {
        let (ghosts, tree) = (GhostTable::new(1 << 16), MemcgTree::new(1));
        let (memcg, noisy) = (tree.root().create("quiet").unwrap(), tree.root().create("noisy").unwrap());
        let quiet = window(&memcg);
        ghosts.insert(hash(1), quiet);
        for other in [window(&noisy), GhostWindow { sb: 1, ..quiet }, GhostWindow { node: NodeId::new(1), ..quiet }] {
            (2..10_000).for_each(|n| ghosts.insert(hash(n), other));
        }
        assert!(ghosts.take(hash(1), quiet));
    }

    #[test]
    fn windows_of_consecutive_numbers_do_not_overlap() {
        let (ghosts, tree) = (GhostTable::new(1 << 16), MemcgTree::new(1));
        let groups: Vec<_> = (0..20).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        let node = NodeId::ZERO;
        let of_mounts = (0..20).map(|sb| GhostWindow { memcg: &groups[0], sb, node, capacity: 256 });
        let of_groups = groups.iter().map(|memcg| GhostWindow { memcg, sb: 0, node, capacity: 256 });
        let of_both = (0..).zip(&groups).map(|(sb, memcg)| GhostWindow { memcg, sb, node, capacity: 256 });
        for windows in [of_mounts.collect::<Vec<_>>(), of_groups.collect(), of_both.collect()] {
            // The sets of the first fingerprint of each window: their distances are at least the
            // 32 sets of a window.
            let base = ghosts.sets.as_ptr().addr();
            let sets = windows.iter().map(|&window| std::ptr::from_ref(ghosts.set(0, window).unwrap()).addr());
            let mut begins: Vec<_> = sets.map(|set| (set - base) / size_of::<GhostSet>()).collect();
            begins.sort_unstable();
            assert!(begins.windows(2).all(|pair| pair[1] - pair[0] >= 32), "{begins:?}");
            assert!(begins[0] + ghosts.sets.len() - begins[19] >= 32, "{begins:?}");
        }
    }

    #[test]
    fn the_table_has_a_byte_for_each_bucket() {
        assert_eq!(GhostTable::new(1 << 16).footprint(), 1 << 16);
        assert_eq!(GhostTable::new(1).footprint(), SETS_MIN * size_of::<GhostSet>());
        assert_eq!(GhostTable::empty().footprint(), 0);
    }

    #[test]
    fn a_small_table_is_one_window() {
        let (ghosts, tree) = (GhostTable::new(1), MemcgTree::new(1));
        let all = GhostWindow { capacity: u64::MAX, ..window(tree.root()) };
        ghosts.insert(hash(1), all);
        assert!(ghosts.take(hash(1), all));
        assert!(!GhostTable::empty().take(hash(1), all));
    }
}
