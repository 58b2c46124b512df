//! What the cache knows a key by: 64 bits of it.
//!
//! A key lies in its value's block, and names are all of one size: that is 24 bytes less for each value than with a key of its own. Who looks
//! one up compares the key. Of two keys that have the same name, which nobody can aim at, the one that is stored later takes the other's place:
//! among 2^32 keys, half a pair of them is to be expected.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// A key's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(u64);

/// Names keys. Clients choose these, so it is by a hash that clients cannot aim at.
#[derive(Debug)]
pub struct Names {
    hasher: RandomState,
    /// Few, to see what keys of one name do to each other.
    #[cfg(test)]
    pub bits: u64,
}

/// A name is a hash already.
pub type AsIs = BuildHasherDefault<Same>;

/// See [`AsIs`].
#[derive(Debug, Default)]
pub struct Same(u64);

impl Names {
    /// Those of a cache.
    pub fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            #[cfg(test)]
            bits: u64::MAX,
        }
    }

    /// That of `key`.
    pub fn of(&self, key: &[u8]) -> Name {
        let name = self.hasher.hash_one(key);
        #[cfg(test)]
        let name = name & self.bits;
        Name(name)
    }
}

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a name is 64 bits");
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }
}
