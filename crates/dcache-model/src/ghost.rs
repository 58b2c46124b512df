//! The ghost table: fingerprints of names that were evicted from the probation list, the list of
//! negatives that were looked up once. A lookup that finds its name there is a ghost hit: the name
//! was looked up twice within a short time, though it was not cached in between.
//!
//! With the ghost table the probation list can be short. A name that is looked up again after it
//! has left that list, but while its fingerprint is in the table, counts as used, and is promoted.
//!
//! ```text
//!     sets   ......|  group 3: 16 sets  |.......|  group 7: 16 sets  |....
//!                                                             each set: the last 8 fingerprints
//! ```
//!
//! The table has a fixed size: one byte for each bucket of the dentry hash table. A memcg uses a
//! window of the ghost table, at an offset derived from the memcg's id, with one to two times as
//! many entries as the memcg's capacity for negatives, within the bounds of one set and of the
//! table. So a flood evicts fingerprints of its own memcg, and those of another only where two
//! windows overlap.
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
use lowwater_lru_core::Memcg;

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
    pub(crate) fn insert(&self, hash: u64, group: &Memcg, capacity: u64) {
        let Some(set) = self.set(hash, group, capacity) else { return };
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
    pub(crate) fn take(&self, hash: u64, group: &Memcg, capacity: u64) -> bool {
        let Some(set) = self.set(hash, group, capacity) else { return false };
        let wanted = fingerprint(hash);
        // Relaxed: a hint that orders no other access.
        let Some(way) = set.0.iter().find(|way| way.load(Ordering::Relaxed) == wanted) else { return false };
        way.store(0, Ordering::Relaxed);
        true
    }

    fn set(&self, hash: u64, group: &Memcg, capacity: u64) -> Option<&GhostSet> {
        let mask = self.sets.len().checked_sub(1)?;
        let window = usize::try_from(capacity / WAYS as u64).ok()?.clamp(1, self.sets.len()).next_power_of_two();
        let begin = (u64::from(group.id().get()).wrapping_mul(GOLDEN_RATIO) >> 32) as usize;
        // The bucket index is the highest bits of the hash; these lower bits spread the names of
        // one bucket over the sets.
        let at = (hash >> 32) as usize & (window - 1);
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

    #[test]
    fn a_name_trimmed_lately_is_taken_once() {
        let (ghosts, tree) = (GhostTable::new(1 << 16), MemcgTree::new(1));
        for n in 1..=64 {
            ghosts.insert(hash(n), tree.root(), 128);
        }
        let recalled = |from, to| (from..=to).filter(|&n| ghosts.take(hash(n), tree.root(), 128)).count();
        assert!(recalled(1, 64) > 56, "sets are filled nearly evenly");
        assert_eq!(recalled(1, 64), 0, "once");
        for n in 1..=10_000 {
            ghosts.insert(hash(n), tree.root(), 128);
        }
        assert_eq!(recalled(1, 9_000), 0, "the latest fingerprints are kept");
        assert_eq!(recalled(9_001, 10_000), 128, "all ways of the window");
    }

    #[test]
    fn d24_a_group_forgets_its_own() {
        let (ghosts, tree) = (GhostTable::new(1 << 16), MemcgTree::new(1));
        let (quiet, noisy) = (tree.root().create("quiet").unwrap(), tree.root().create("noisy").unwrap());
        ghosts.insert(hash(1), &quiet, 128);
        for n in 2..10_000 {
            ghosts.insert(hash(n), &noisy, 128);
        }
        assert!(ghosts.take(hash(1), &quiet, 128));
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
        ghosts.insert(hash(1), tree.root(), u64::MAX);
        assert!(ghosts.take(hash(1), tree.root(), u64::MAX));
        assert!(!GhostTable::empty().take(hash(1), tree.root(), 1));
    }
}
