//! The progress of a compaction (`compaction.rs`).
//!
//! Both the state and the pass are allocated when they are first needed, so a cache that was never
//! sparse has a flag and a pointer.
//!
//! A change must ensure that [`CompactionPass`] ends with its pass; the small [`CompactionState`]
//! stays.

use lowwater_lru_core::ByteSize;
use lowwater_store::index::Cursor;

/// Copied records, and bytes of their charges, after which the memory of the old records is
/// collected. The bytes are the low mark of the least allowance for retired memory
/// (`runtime/retired.rs`), above which compaction pauses. A pass also waits while readers hold back
/// as many bytes.
const COLLECT_EVERY: usize = 16_384;
pub(super) const COLLECT_BYTES: ByteSize = ByteSize::mib(4);

/// The pass in progress, or the number of records that must be stable before a pass.
#[derive(Default)]
pub(crate) struct CompactionState {
    /// The number of records at the last check. A pass begins if the next check finds nearly the
    /// same number.
    pub(crate) len: usize,
    /// None between passes.
    pub(crate) pass: Option<Box<CompactionPass>>,
}

/// One pass over the index.
pub(crate) struct CompactionPass {
    /// The part of the index that is compacted next.
    pub(crate) at: Cursor,
    /// Records copied since the last collection.
    pub(crate) compacted: Compacted,
    /// The slab's footprint when the pass began.
    pub(crate) footprint: ByteSize,
}

/// A number of copied records, and the sum of their charges.
#[derive(Clone, Copy, Default)]
pub(crate) struct Compacted {
    pub(crate) entries: usize,
    pub(crate) bytes: ByteSize,
}

impl Compacted {
    /// Returns whether the memory of the old records should be collected before more are copied.
    pub(crate) fn is_enough(self) -> bool {
        self.entries >= COLLECT_EVERY || self.bytes >= COLLECT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_records_or_many_bytes_are_enough() {
        let is_enough = |entries, bytes| Compacted { entries, bytes }.is_enough();
        assert!(!is_enough(COLLECT_EVERY - 1, COLLECT_BYTES - ByteSize::new(1)));
        assert!(is_enough(COLLECT_EVERY, ByteSize::ZERO));
        assert!(is_enough(0, COLLECT_BYTES));
    }
}
