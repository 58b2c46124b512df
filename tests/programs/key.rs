//! Keys, and their hashers.
//!
//! Keys differ in everything that an index relies on: whether they have a `Drop`, how many have one
//! hash, and whether the hash stays the same.
//!
//! A change must ensure that each callback of `Owning` calls `enter`, where a program acts or
//! panics.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowwater::cache::TenantKey;

use crate::callback::{enter, Callback};
use crate::token::{Tag, Token};

/// A key with a number.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {
    fn number(&self) -> u32;
}

/// A key that is made from a number alone.
pub trait FromNumber: Key {
    fn of(number: u32) -> Self;
}

impl Key for u32 {
    fn number(&self) -> u32 {
        *self
    }
}

impl FromNumber for u32 {
    fn of(number: u32) -> Self {
        number
    }
}

impl<K: Key> Key for TenantKey<K> {
    fn number(&self) -> u32 {
        self.key().number()
    }
}

/// A key that owns memory. Its `Clone`, `Eq`, `Hash` and `Drop` are callbacks.
#[derive(Debug)]
pub struct Owning(Token);

impl Key for Owning {
    fn number(&self) -> u32 {
        self.0.tag().key
    }
}

impl FromNumber for Owning {
    fn of(number: u32) -> Self {
        Self(Token::new(Tag { home: u32::MAX, key: number, version: 0 }, Callback::KeyDrop))
    }
}

impl Clone for Owning {
    fn clone(&self) -> Self {
        enter(Callback::KeyClone);
        Self(self.0.copy())
    }
}

impl PartialEq for Owning {
    fn eq(&self, other: &Self) -> bool {
        enter(Callback::KeyEq);
        self.number() == other.number()
    }
}

impl Eq for Owning {}

impl Hash for Owning {
    fn hash<H: Hasher>(&self, state: &mut H) {
        enter(Callback::KeyHash);
        self.number().hash(state);
    }
}

/// A hasher of keys, by the kind of its hashes.
#[derive(Clone, Debug)]
pub enum Hashing {
    Random(RandomState),
    /// One of this many hashes.
    Few(u64),
    /// A hash that changes with every third call, against the contract of `Hash`.
    Lying,
}

pub enum Hashed {
    Random(std::hash::DefaultHasher),
    Few(u64, u64),
    Lying,
}

static LIES: AtomicU64 = AtomicU64::new(0);

impl BuildHasher for Hashing {
    type Hasher = Hashed;

    fn build_hasher(&self) -> Hashed {
        match self {
            Self::Random(state) => Hashed::Random(state.build_hasher()),
            Self::Few(few) => Hashed::Few(*few, 0),
            Self::Lying => Hashed::Lying,
        }
    }
}

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Random(hasher) => hasher.write(bytes),
            Self::Few(_, sum) => *sum = bytes.iter().fold(*sum, |sum, &byte| sum * 31 + u64::from(byte)),
            Self::Lying => {}
        }
    }

    fn finish(&self) -> u64 {
        match self {
            Self::Random(hasher) => hasher.finish(),
            Self::Few(few, sum) => sum % few,
            Self::Lying => LIES.fetch_add(1, Relaxed) / 3,
        }
    }
}
