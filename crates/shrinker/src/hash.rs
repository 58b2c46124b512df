//! Hashing of ids (of groups, shrinkers, pairs, threads), and shrinking of the tables that use the
//! hash. Ids are dense and small, so one multiplication spreads them.
//!
//! Not for keys from outside: an attacker could choose keys that collide.
//!
//! A change must be measured: every lookup in the map of non-empty pairs hashes an id.

use core::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

use hashbrown::HashMap;
use lowwater_base::hash::GOLDEN_RATIO;

/// Builds [`IdHash`].
pub(crate) type IdHasher = BuildHasherDefault<IdHash>;

/// The hash of one id, or of a few ids in sequence.
#[derive(Default)]
pub(crate) struct IdHash(u64);

/// Returns the hash of an id.
pub(crate) fn hash_of(id: impl Hash) -> u64 {
    IdHasher::default().hash_one(id)
}

impl Hasher for IdHash {
    fn finish(&self) -> u64 {
        // A hash table takes the bucket from the low bits and the tag from the high bits; a product
        // mixes bits upwards only.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        // The default hashes byte by byte.
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(GOLDEN_RATIO);
    }
}

/// Shrinks a table that has more than sixteen times the capacity it needs, and frees an empty one.
/// Called after a removal; amortized O(1). With a factor of eight, a pass that empties a table of
/// thousands would copy more than twice as much.
pub(crate) fn shrink_after_removal<K: Eq + Hash, V>(map: &mut HashMap<K, V, IdHasher>) {
    if map.is_empty() {
        *map = HashMap::default();
    } else if map.len() < map.capacity() / 16 {
        let mut smaller = HashMap::default();
        // Without memory for a smaller table the present one stays.
        if smaller.try_reserve(map.len() * 2).is_ok() {
            smaller.extend(map.drain());
            *map = smaller;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    /// Asserts that each bit is set in 40 to 60 % of the hashes, and that their low bits, which
    /// select the bucket, spread as random numbers do.
    fn assert_spread(hashes: &[u64]) {
        let count = hashes.len();
        for bit in 0..64 {
            let set = hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count();
            assert!((count * 2 / 5..=count * 3 / 5).contains(&set), "bit {bit} is set in {set} of {count} hashes");
        }
        let buckets: BTreeSet<u64> = hashes.iter().map(|hash| hash % count as u64).collect();
        // Random numbers take 63 % of the buckets.
        assert!(buckets.len() * 2 > count, "{} of {count} buckets", buckets.len());
    }

    #[test]
    fn the_hashes_of_dense_ids_spread_over_buckets_and_tags() {
        assert_spread(&(0..4_096_u16).map(hash_of).collect::<Vec<_>>());
        assert_spread(&(0..4_096_u32).map(hash_of).collect::<Vec<_>>());
        assert_spread(&(0..4_096_u64).map(hash_of).collect::<Vec<_>>());
        assert_spread(&(0..4_096_u32).map(|at| hash_of((at / 64, at % 64))).collect::<Vec<_>>());
    }
}
