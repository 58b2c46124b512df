//! The ghost table: fingerprints of names that were trimmed on probation. A name that comes back
//! soon was looked up twice, though it was not cached meanwhile.
//!
//! With it probation can be short. A name that is asked for again after a time longer than the queue, but shorter than this
//! memory, comes back as one that was used, and is promoted.
//!
//! ```text
//!     sets   ......|  group 3: 16 sets  |.......|  group 7: 16 sets  |....     each set: the last 8 fingerprints
//! ```
//!
//! A table of a fixed size, a byte for each bucket of the cache. A group uses a window of it that is as long as its room for
//! negatives, or up to twice that, at a place that follows from its number: so a flood forgets its own group's names, and another's only where two
//! windows lie over each other. A fingerprint is 32 bits of the name's hash; one that is wrong
//! keeps a name a little longer, no more. Nothing is locked: a fingerprint that is lost between two
//! writers is one that was not inserted.

use lowwater_base::hash::GOLDEN_RATIO;
use lowwater_base::sync::atomic::{AtomicU32, Ordering};
use lowwater_lru_core::Memcg;

/// Fingerprints of a set: half a cache line.
const WAYS: usize = 8;
/// Buckets for which there is one set.
const BUCKETS_PER_SET: usize = WAYS * size_of::<u32>();
/// Sets at least: the windows of a few groups.
const SETS_MIN: usize = 64;

#[derive(Default)]
#[repr(align(32))]
struct GhostSet([AtomicU32; WAYS]);

/// A set-associative table of fingerprints of trimmed names.
pub(crate) struct GhostTable {
    /// A power of two, or none.
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

    /// Inserts a name, and drops the oldest of its set.
    pub(crate) fn insert(&self, hash: u64, group: &Memcg, capacity: u64) {
        let Some(set) = self.set(hash, group, capacity) else { return };
        let mut fingerprint = fingerprint(hash);
        for way in &set.0 {
            // Relaxed: a hint; nothing is read on its strength. Here and below.
            let older = way.load(Ordering::Relaxed);
            way.store(fingerprint, Ordering::Relaxed);
            fingerprint = older;
            if older == 0 {
                break;
            }
        }
    }

    /// Removes a name. Returns whether it was there.
    pub(crate) fn take(&self, hash: u64, group: &Memcg, capacity: u64) -> bool {
        let Some(set) = self.set(hash, group, capacity) else { return false };
        let wanted = fingerprint(hash);
        // Relaxed: as above.
        let Some(way) = set.0.iter().find(|way| way.load(Ordering::Relaxed) == wanted) else { return false };
        way.store(0, Ordering::Relaxed);
        true
    }

    fn set(&self, hash: u64, group: &Memcg, capacity: u64) -> Option<&GhostSet> {
        let mask = self.sets.len().checked_sub(1)?;
        let window = usize::try_from(capacity / WAYS as u64).ok()?.clamp(1, self.sets.len()).next_power_of_two();
        let begin = (u64::from(group.id().get()).wrapping_mul(GOLDEN_RATIO) >> 32) as usize;
        // The bucket is the hash's high bits, so these are others.
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
        assert_eq!(recalled(1, 9_000), 0, "it is the last that are remembered");
        assert!(recalled(9_001, 10_000) <= 128);
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
