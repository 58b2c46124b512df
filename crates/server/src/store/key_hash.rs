//! The hash of 64 bits that the cache has in place of a key.
//!
//! A key lies in its value's block, and hashes are all of one size: that is 24 bytes less for each
//! value than with a key of its own. Who looks one up compares the key. Of two keys that have the
//! same hash, which nobody can aim at, the one that is stored later takes the other's place: among
//! 2^32 keys, half a pair of them is to be expected.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// The hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

/// Hashes keys. Clients choose these, so it is by a hash that clients cannot aim at.
#[derive(Debug)]
pub struct KeyHasher {
    hasher: RandomState,
    /// Few, to see what keys of one hash do to each other.
    #[cfg(test)]
    pub bits: u64,
}

/// Passes a hash of 64 bits through.
pub type BuildIdentityHasher = BuildHasherDefault<IdentityHasher>;

/// See [`BuildIdentityHasher`].
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl KeyHasher {
    /// A hasher with random keys of its own.
    pub fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            #[cfg(test)]
            bits: u64::MAX,
        }
    }

    /// Hashes `key`.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = self.hasher.hash_one(key);
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
