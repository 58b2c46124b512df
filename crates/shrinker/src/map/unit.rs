//! What the map knows of one group on one node.

use core::hash::{BuildHasherDefault, Hasher};
use core::mem::size_of;

use hashbrown::HashMap;
use lowwater_lru_core::sync::Mutex;
use lowwater_lru_core::{Memcg, MemcgId};

use crate::bitmap::Bitmap;
use crate::deferred::Debts;

/// A group's bits and debts on one node; there from its first bit to its last.
pub(super) struct Unit {
    /// The group. The handle keeps its id from being given to another while the unit stands under it.
    pub(super) memcg: Memcg,
    pub(super) words: Bitmap,
    pub(super) debts: Mutex<Debts>,
}

impl Unit {
    pub(super) fn new(memcg: Memcg) -> Self {
        Self { memcg, words: Bitmap::default(), debts: Mutex::new(Debts::default()) }
    }
}

/// The units of one shard.
pub(super) type Units = HashMap<MemcgId, Unit, IdHasher>;

/// Hashes ids: they are dense and small and nobody's secret, so one multiplication spreads them.
pub(super) type IdHasher = BuildHasherDefault<IdHash>;

/// See [`IdHasher`].
#[derive(Default)]
pub(super) struct IdHash(u64);

/// 2^64 divided by the golden ratio: neighbours land far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHash {
    fn finish(&self) -> u64 {
        // The table takes its bucket from the low bits and its tag from the high ones; the product mixes upwards only.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(GOLDEN);
    }
}

/// Heap bytes of a shard.
pub(super) fn bytes(units: &Units) -> usize {
    let parts: usize = units.values().map(|unit| unit.words.bytes() + unit.debts.lock().bytes()).sum();
    parts + units.capacity() * (size_of::<(MemcgId, Unit)>() + 1)
}
