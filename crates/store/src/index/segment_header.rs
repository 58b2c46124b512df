//! The header of a segment.

use super::bucket::Bucket;
use super::class::{buckets, Class};
use crate::sync::raw::RawLock;
use crate::sync::UnsafeCell;
use core::alloc::Layout;
use core::ptr;

/// See the module. The buckets come behind it.
#[repr(C, align(64))]
pub(crate) struct Segment {
    pub(super) lock: RawLock,
    pub(super) class: Class,
    /// How many bits its objects' hashes share.
    pub(super) depth: u8,
    /// Is its memory a pool's, not the allocator's?
    pub(super) pooled: bool,
    /// Those bits, the first ones of a word.
    pub(super) prefix: u64,
    pub(super) state: UnsafeCell<SegmentState>,
    /// For who frees it.
    pub(super) retired: UnsafeCell<*mut Segment>,
    /// Never changes: so that a model check sees who comes before it is published.
    #[cfg(lowwater_loom)]
    pub(super) made: UnsafeCell<()>,
}

/// Guarded by the lock.
pub(super) struct SegmentState {
    pub(super) len: usize,
    /// Was it replaced?
    pub(super) dead: bool,
}

impl Segment {
    /// The header of an empty one.
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

// SAFETY: `state` is guarded by the lock, `retired` used only by who frees it; all else never changes, or is atomic.
unsafe impl Send for Segment {}
// SAFETY: as for Send.
unsafe impl Sync for Segment {}

/// Bytes of a segment of this class, which there is.
pub(super) const fn bytes(class: Class) -> usize {
    size_of::<Segment>() + buckets(class) * size_of::<Bucket>()
}

pub(super) fn layout(class: Class) -> Option<Layout> {
    let size = buckets(class).checked_mul(size_of::<Bucket>())?.checked_add(size_of::<Segment>())?;
    Layout::from_size_align(size, align_of::<Segment>()).ok()
}
