//! The progress of a compaction.

use std::sync::atomic::{AtomicBool, Ordering};

use lowwater_lru_core::index::Cursor;
use lowwater_lru_core::Bytes;
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use crate::cache::record::Record;

/// Entries that are moved, and what they are charged for, until the memory of the old ones is asked for.
const COLLECT_EVERY: usize = 16_384;
const COLLECT_BYTES: Bytes = Bytes::mib(4);

/// A key and a value like an entry's.
pub(crate) type Copy<K, V> = fn(&Record<K, V>) -> (K, V);

/// How far it has come. Small while there is none.
#[derive(Default)]
pub(crate) struct Migration {
    /// Somebody has seen that it is worth it.
    pub(crate) wanted: AtomicBool,
    /// None before it first is.
    state: OnceBox<Mutex<State>>,
}

impl Migration {
    /// None as long as none was wanted.
    pub(crate) fn state(&self) -> Option<&Mutex<State>> {
        // Relaxed: as in `want_migration`.
        match self.wanted.load(Ordering::Relaxed) {
            false => self.state.get(),
            true => Some(self.state.get_or_init(Box::default)),
        }
    }

    /// Bytes of what was made when one was first wanted.
    pub(crate) fn footprint(&self) -> usize {
        self.state.get().map_or(0, size_of_val)
    }
}

#[derive(Default)]
pub(crate) struct State {
    /// How many entries there were when last asked.
    pub(crate) len: usize,
    pub(crate) under_way: Option<Box<UnderWay>>,
}

/// A migration that was begun.
pub(crate) struct UnderWay {
    pub(crate) at: Cursor,
    /// Since old ones were collected.
    pub(crate) moved: Moved,
    /// What the slab had when it began.
    pub(crate) footprint: Bytes,
}

/// What was moved.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) entries: usize,
    pub(crate) bytes: Bytes,
}

impl Moved {
    pub(crate) fn is_enough(self) -> bool {
        self.entries >= COLLECT_EVERY || self.bytes >= COLLECT_BYTES
    }
}
