//! The 64-bit hash that is the cache's key.
//!
//! A key is stored in its value's block, and the entry holds a hash of fixed size: 24 bytes less
//! for each value than with an owned key in the entry. Each lookup compares the key in the block.
//! If two keys have the same hash, the one that is stored later replaces the other. Clients cannot
//! construct such keys, because the hash is keyed at random; among 2^32 keys, half a colliding pair
//! is expected.
//!
//! A change must ensure that the hash stays keyed at random, as clients choose the keys: two keys
//! with one hash may lose a value, but no lookup may return it under the other key.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use super::siphash::{self, SipKey};

/// The hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

/// Hashes keys. Clients choose the keys, so the hash is keyed at random.
#[derive(Debug)]
pub struct KeyHasher {
    key: SipKey,
    /// The bits of the hash that are used: tests set fewer, to produce collisions.
    #[cfg(test)]
    pub bits: u64,
}

/// A hasher that returns the 64-bit hash it is given.
pub type BuildIdentityHasher = BuildHasherDefault<IdentityHasher>;

/// See [`BuildIdentityHasher`].
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl KeyHasher {
    /// Creates a hasher with new random keys.
    pub fn new() -> Self {
        let random = RandomState::new();
        Self {
            // Two hashes with a random key of 128 bits are again a random key.
            key: SipKey(random.hash_one(0), random.hash_one(1)),
            #[cfg(test)]
            bits: u64::MAX,
        }
    }

    /// Hashes `key`.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = siphash::hash(self.key, key);
        #[cfg(test)]
        let hash = hash & self.bits;
        KeyHash(hash)
    }
}

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is 64 bits");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
