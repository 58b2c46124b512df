//! The progress of a compaction.

use std::sync::atomic::{AtomicBool, Ordering};

use lowwater_lru_core::ByteSize;
use lowwater_store::index::Cursor;
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use crate::cache::record::Record;

/// Records that are copied, and their charges, until the memory of the old ones is collected.
const COLLECT_EVERY: usize = 16_384;
const COLLECT_BYTES: ByteSize = ByteSize::mib(4);

/// Clones the key and the value of a record.
pub(crate) type CloneFn<K, V> = fn(&Record<K, V>) -> (K, V);

/// The compaction of a cache. Small until one is requested.
#[doc(alias = "mm/compaction")]
#[derive(Default)]
pub(crate) struct Compaction {
    /// The cache was seen to be sparse.
    pub(crate) is_requested: AtomicBool,
    /// None before the first request.
    state: OnceBox<Mutex<CompactionState>>,
}

impl Compaction {
    /// The state; none before the first request.
    pub(crate) fn state(&self) -> Option<&Mutex<CompactionState>> {
        // Relaxed: as in `request_compaction`.
        match self.is_requested.load(Ordering::Relaxed) {
            false => self.state.get(),
            true => Some(self.state.get_or_init(Box::default)),
        }
    }

    /// Bytes of the state.
    pub(crate) fn footprint(&self) -> usize {
        self.state.get().map_or(0, size_of_val)
    }
}

/// The pass under way, or the number of records that must be stable before one.
#[derive(Default)]
pub(crate) struct CompactionState {
    /// The number of records at the last look.
    pub(crate) len: usize,
    pub(crate) pass: Option<Box<CompactionPass>>,
}

/// One pass over the index.
pub(crate) struct CompactionPass {
    pub(crate) at: Cursor,
    /// Since the last collection.
    pub(crate) compacted: Compacted,
    /// The slab's footprint when the pass began.
    pub(crate) footprint: ByteSize,
}

/// The amount of records copied.
#[derive(Clone, Copy, Default)]
pub(crate) struct Compacted {
    pub(crate) entries: usize,
    pub(crate) bytes: ByteSize,
}

impl Compacted {
    pub(crate) fn is_enough(self) -> bool {
        self.entries >= COLLECT_EVERY || self.bytes >= COLLECT_BYTES
    }
}
