//! The header of a segment, one of the hash tables of which an index consists.
//!
//! Header and buckets are one allocation whose length depends on the [size class](super::class), so
//! a segment is used through raw pointers ([`View`](super::segment::View)): a reference to the
//! header must not be used to reach the buckets. A change must keep the header within one cache
//! line.

use super::bucket::Bucket;
use super::class::{buckets, Class};
use crate::sync::raw::RawLock;
use crate::sync::UnsafeCell;
use core::alloc::Layout;
use core::ptr;

/// The header of a segment. The buckets follow it in memory.
#[repr(C, align(64))]
pub(crate) struct Segment {
    pub(super) lock: RawLock,
    pub(super) class: Class,
    /// The number of leading bits that the hashes of all the segment's objects share.
    pub(super) depth: u8,
    /// True if the memory comes from a pool, not from the allocator.
    pub(super) pooled: bool,
    /// The shared bits, as the highest bits of a word.
    pub(super) prefix: u64,
    pub(super) state: UnsafeCell<SegmentState>,
    /// The link in the queue of retired segments, which are freed after a grace period.
    pub(super) retired: UnsafeCell<*mut Segment>,
    /// Never changes: a model check uses it to detect a read before the segment is published.
    #[cfg(lowwater_loom)]
    pub(super) made: UnsafeCell<()>,
}

/// The mutable part of a header, guarded by its lock.
pub(super) struct SegmentState {
    /// The number of objects.
    pub(super) len: usize,
    /// True once the segment has been replaced in the directory; then its contents do not change.
    pub(super) dead: bool,
}

impl Segment {
    /// Creates the header of an empty segment that is not pooled.
    pub(super) fn new(class: Class, depth: u8, prefix: u64) -> Self {
        Self {
            lock: RawLock::new(),
            class,
            depth,
            pooled: false,
            prefix,
            state: UnsafeCell::new(SegmentState { len: 0, dead: false }),
            retired: UnsafeCell::new(ptr::null_mut()),
            #[cfg(lowwater_loom)]
            made: UnsafeCell::new(()),
        }
    }
}

// SAFETY: `state` is guarded by the lock, `retired` is used only by the thread that frees the
// segment; all other fields never change or are atomic.
unsafe impl Send for Segment {}
// SAFETY: `state` is accessed only under the lock, `retired` only by the thread that frees the
// segment; all other fields never change or are atomic.
unsafe impl Sync for Segment {}

/// Returns the bytes of a segment of this class, which must be a valid class.
pub(super) const fn bytes(class: Class) -> usize {
    size_of::<Segment>() + buckets(class) * size_of::<Bucket>()
}

/// Returns the layout of a segment of this class; `None` if its size overflows.
pub(super) fn layout(class: Class) -> Option<Layout> {
    let size = buckets(class).checked_mul(size_of::<Bucket>())?.checked_add(size_of::<Segment>())?;
    Layout::from_size_align(size, align_of::<Segment>()).ok()
}
