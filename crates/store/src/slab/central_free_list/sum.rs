//! Sums of slots over several chunks.
//!
//! Fullness is decided for a whole node and for one chunk by the same numbers. A change must ensure
//! that a slot in a thread cache, or in the transfer cache, counts as used: the central free list
//! cannot allocate it.

/// The number of chunks, and of their slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) chunks: usize,
    pub(super) slots: usize,
    /// Free slots, without those in thread caches and in the transfer cache.
    pub(super) free: usize,
}

impl Sum {
    pub(super) fn used(self) -> usize {
        self.slots - self.free
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.add(other);
        self
    }

    pub(super) fn add(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.slots += other.slots;
        self.free += other.free;
    }

    pub(super) fn sub(&mut self, other: Self) {
        self.chunks -= other.chunks;
        self.slots -= other.slots;
        self.free -= other.free;
    }
}
