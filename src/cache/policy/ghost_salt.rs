//! The hashes by which ghosts are recorded and found.
//!
//! All caches and tenants share one ghost table (`runtime/ghosts.rs`), and caches may have the same
//! keys and hashers. So the hash of a ghost is that of its key, mixed, with a salt of its cache,
//! tenant and their generations.
//!
//! A change must ensure that every bit of the salt and of the key's hash changes the bits of the
//! bucket (the low 32) and of the tag (the high 16). Otherwise two caches share their ghosts, or
//! each new key finds one, if the hasher leaves these bits constant.

use std::sync::atomic::{AtomicU16, Ordering};

use lowwater_base::hash::mix;

/// Returns the number of the next generation of any cache of the process, so that caches of one id
/// have no generation in common. Wraps after 2^16 calls.
pub(super) fn next_generation() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Relaxed: only the numbers must differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The common part of the hashes of a cache's ghosts of one tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GhostSalt(u64);

impl GhostSalt {
    /// Returns the salt of a cache and a group, by their ids, and by the generations of caches and
    /// of groups that had these ids.
    #[inline]
    pub(crate) fn new(cache: u32, cache_generation: u16, group: u32, group_generation: u8) -> Self {
        let pair = u64::from(cache) << 32 | u64::from(group);
        let generations = u64::from(cache_generation) << 48 ^ u64::from(group_generation) << 24;
        Self(mix(pair ^ generations))
    }

    /// Returns the hash of the ghost of a key with this hash, which is mixed.
    #[inline]
    pub(crate) fn hash(self, mixed: u64) -> u64 {
        mixed ^ self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The number of hashes of which the others of a bucket and tag are a thousandth, by chance.
    const HASHES: usize = 2_100;

    /// Returns the bucket, of 32 as in the smallest table, and the tag of a hash.
    fn place(hash: u64) -> (u64, u64) {
        (((hash & 0xffff_ffff) * 32) >> 32, hash >> 48)
    }

    #[test]
    fn each_number_of_a_salt_changes_the_places_of_ghosts() {
        for key in [0, 7, u64::MAX, 0x1234_5678_9abc_def0] {
            let n = 0..HASHES as u32;
            let of_caches: HashSet<_> = n.clone().map(|n| place(GhostSalt::new(n, 0, 0, 0).hash(key))).collect();
            let of_generations: HashSet<_> =
                n.clone().map(|n| place(GhostSalt::new(0, n as u16, 0, 0).hash(key))).collect();
            let of_groups: HashSet<_> = n.clone().map(|n| place(GhostSalt::new(0, 0, n, 0).hash(key))).collect();
            let of_group_generations: HashSet<_> =
                (0..=u8::MAX).map(|n| place(GhostSalt::new(0, 0, 9, n).hash(key))).collect();
            for places in [of_caches, of_generations, of_groups] {
                assert!(places.len() > HASHES * 99 / 100, "{} of {HASHES} places for key {key}", places.len());
            }
            assert!(of_group_generations.len() >= 254, "{}", of_group_generations.len());
        }
    }

    #[test]
    fn each_bit_of_a_key_changes_the_place_of_its_ghost() {
        let salt = GhostSalt::new(3, 5, 7, 1);
        for shift in [0, 20, 40, 52] {
            let places: HashSet<_> = (0..HASHES as u64).map(|n| place(salt.hash(mix(n << shift)))).collect();
            assert!(places.len() > HASHES * 99 / 100, "{} of {HASHES} places, bits from {shift}", places.len());
        }
    }
}
