//! The directory: maps the first bits of a hash to a segment.
//!
//! The class of a segment is stored in the low bits of its address, so that a reader can compute
//! the bucket before it loads the segment's header. Readers use a directory without a lock. A
//! change must ensure that a directory's length never changes and that its entries change only
//! under the index's growth lock.

use super::class::{Class, CLASSES};
use super::segment::View;
use super::segment_header::Segment;
use crate::fallible::{try_box, try_slice};
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// The low bits of a segment's address, which hold the segment's class.
const CLASS: usize = CLASSES - 1;

/// A hash is shifted by one bit and then by this minus the depth: at depth 0 all 64 bits are
/// shifted out, which one shift cannot do. The depth of a directory is below this.
const DEPTH_END: u8 = 63;

/// An array of segments, indexed by the first `depth` bits of a hash. Replaced by one of twice the
/// length when a segment needs one more bit.
pub(crate) struct Directory {
    /// [`DEPTH_END`] minus the depth. Never changes; a cell only so that model checks detect a read
    /// that comes before the directory is published.
    shift: UnsafeCell<u8>,
    segments: Box<[AtomicPtr<Segment>]>,
    /// The link for the deferred free.
    retired: UnsafeCell<*mut Directory>,
}

// SAFETY: the segments may be used from any thread, and `retired` is used only by the thread that
// frees the directory.
unsafe impl Send for Directory {}
// SAFETY: shared access reads atomics and `shift`, which never changes; `retired` is used only by
// the thread that frees the directory.
unsafe impl Sync for Directory {}

// SAFETY: `kind` returns one static, and no other code uses the link of a retired Directory.
unsafe impl Retired for Directory {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<Directory>();
        &KIND
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: the caller's contract: the directory is live, and the caller has exclusive
        // access.
        let this = unsafe { &mut *this };
        for segment in &mut this.segments {
            segment.with_mut(|_| ());
        }
    }
}

impl Directory {
    /// Creates a directory with the segment `segment(index)` at each index; `None` without memory.
    pub(super) fn try_new(depth: u8, segment: impl Fn(usize) -> *mut Segment) -> Option<Box<Self>> {
        let segments = try_slice(1 << depth, |at| AtomicPtr::new(segment(at)))?;
        let shift = UnsafeCell::new(DEPTH_END - depth);
        try_box(Self { shift, segments, retired: UnsafeCell::new(ptr::null_mut()) })
    }

    /// Returns the number of bits of a hash that select a segment.
    pub(super) fn depth(&self) -> u8 {
        DEPTH_END - self.shift()
    }

    #[inline]
    fn shift(&self) -> u8 {
        // SAFETY: `shift` is written only in `try_new`, before the directory is shared.
        self.shift.with(|shift| unsafe { *shift })
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns the index of the segment of `hash`.
    #[inline]
    pub(super) fn index(&self, hash: u64) -> usize {
        (hash >> 1 >> self.shift()) as usize
    }

    /// Returns the tagged pointer at `at`: a segment's address and its class.
    #[inline]
    pub(super) fn raw(&self, at: usize) -> *mut Segment {
        // Acquire: pairs with the Release in `set`, so that the segment is seen initialized.
        self.segments[at].load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// The segments of this directory are not freed during `'g`.
    #[inline]
    pub(super) unsafe fn view<'g>(&self, at: usize) -> View<'g> {
        // SAFETY: the caller's clause: the segment at `at` is not freed during `'g`. `raw` came
        // from `tagged`.
        unsafe { view(self.raw(at)) }
    }

    /// Returns the segment of a hash.
    ///
    /// # Safety
    ///
    /// The segments of this directory are not freed during `'g`.
    #[inline]
    pub(super) unsafe fn view_of<'g>(&self, hash: u64) -> View<'g> {
        // SAFETY: the array has two to the power of `depth` elements, and `index` leaves `depth`
        // bits of the hash.
        let segment = unsafe { self.segments.get_unchecked(self.index(hash)) };
        // Acquire: pairs with the Release in `set`, so that the segment is seen initialized.
        let raw = segment.load(Ordering::Acquire);
        // SAFETY: the caller's clause: the segment is not freed during `'g`. `raw` came from
        // `tagged`.
        unsafe { view(raw) }
    }

    /// Stores a segment, as returned by [`tagged`], at `at`.
    pub(super) fn set(&self, at: usize, segment: *mut Segment) {
        // Release: pairs with the Acquire in `raw` and `view_of`.
        let ordering = if crate::mutated!("segment_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.segments[at].store(segment, ordering);
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.segments)
    }
}

/// Adds the class to a segment's address.
pub(super) fn tagged(segment: *mut Segment, class: Class) -> *mut Segment {
    segment.map_addr(|address| address | usize::from(class))
}

/// Removes the class from a segment's address.
pub(super) fn untagged(segment: *mut Segment) -> *mut Segment {
    segment.map_addr(|address| address & !CLASS)
}

/// # Safety
///
/// `raw` came from [`tagged`], of a segment that is not freed during `'g`.
#[inline]
pub(super) unsafe fn view<'g>(raw: *mut Segment) -> View<'g> {
    let class = (raw.addr() & CLASS) as Class;
    // SAFETY: a segment's address is not null, and segments are aligned beyond the bits that are
    // cleared.
    let at = unsafe { NonNull::new_unchecked(untagged(raw)) };
    // SAFETY: `tagged` stored the segment's class; the caller's clause: it is not freed during
    // `'g`.
    unsafe { View::new(at, class) }
}
