//! What the map knows of one group on one node.

use hashbrown::HashMap;
use lowwater_lru_core::sync::Mutex;
use lowwater_lru_core::{Memcg, MemcgId};

use crate::bitmap::Bitmap;
use crate::deferred::Debts;
use crate::hash::IdHasher;

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

/// Heap bytes of a shard.
pub(super) fn bytes(units: &Units) -> usize {
    let parts: usize = units.values().map(|unit| unit.words.bytes() + unit.debts.lock().bytes()).sum();
    parts + units.allocation_size()
}
