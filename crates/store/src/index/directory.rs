//! From the first bits of a hash to its segment.

use super::class::{Class, CLASSES};
use super::segment::View;
use super::segment_header::Segment;
use crate::fallible::{try_box, try_slice};
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// The low bits of a segment's address, where its class is kept.
const CLASS: usize = CLASSES - 1;

/// A directory goes by fewer bits than a hash has.
const DEPTH_END: u8 = 63;

/// An array of segments by the first `depth` bits of a hash. Replaced by one of twice the length when a segment needs one bit more.
pub(crate) struct Directory {
    /// How far to the right a hash is shifted, after one. Never changes; a cell only so that model checks see who reads it before it is
    /// published.
    shift: UnsafeCell<u8>,
    segments: Box<[AtomicPtr<Segment>]>,
    /// For who frees it.
    retired: UnsafeCell<*mut Directory>,
}

// SAFETY: segments may be used from any thread, and `retired` is used only by who frees the directory.
unsafe impl Send for Directory {}
// SAFETY: as for Send.
unsafe impl Sync for Directory {}

// SAFETY: one static; nobody uses the link of a retired Directory.
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
        // SAFETY: it is live, says the caller, who alone has it.
        let this = unsafe { &mut *this };
        for segment in &mut this.segments {
            segment.with_mut(|_| ());
        }
    }
}

impl Directory {
    /// One whose segments are all `segment`, or twice those of `old`; none without memory.
    pub(super) fn try_new(depth: u8, segment: impl Fn(usize) -> *mut Segment) -> Option<Box<Self>> {
        let segments = try_slice(1 << depth, |at| AtomicPtr::new(segment(at)))?;
        let shift = UnsafeCell::new(DEPTH_END - depth);
        try_box(Self { shift, segments, retired: UnsafeCell::new(ptr::null_mut()) })
    }

    /// How many bits of a hash it goes by.
    pub(super) fn depth(&self) -> u8 {
        DEPTH_END - self.shift()
    }

    #[inline]
    fn shift(&self) -> u8 {
        // SAFETY: nobody writes it after `try_new`.
        self.shift.with(|shift| unsafe { *shift })
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Which is that of `hash`.
    #[inline]
    pub(super) fn index(&self, hash: u64) -> usize {
        (hash >> 1 >> self.shift()) as usize
    }

    /// What is at `at`: a segment's address and its class.
    #[inline]
    pub(super) fn raw(&self, at: usize) -> *mut Segment {
        // Acquire: meets the Release in `set`, so that the segment is seen as it was made.
        self.segments[at].load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// Segments that are here are not freed during `'g`.
    #[inline]
    pub(super) unsafe fn view<'g>(&self, at: usize) -> View<'g> {
        // SAFETY: the caller's promise is the same.
        unsafe { view(self.raw(at)) }
    }

    /// The segment of a hash.
    ///
    /// # Safety
    ///
    /// As for [`view`](Self::view).
    #[inline]
    pub(super) unsafe fn view_of<'g>(&self, hash: u64) -> View<'g> {
        // SAFETY: there are two to the power of `depth`, and so many bits are left of the hash.
        let segment = unsafe { self.segments.get_unchecked(self.index(hash)) };
        // Acquire: as in `raw`.
        let raw = segment.load(Ordering::Acquire);
        // SAFETY: the caller's promise is the same.
        unsafe { view(raw) }
    }

    /// Puts a segment at `at`, as [`tagged`] gives it.
    pub(super) fn set(&self, at: usize, segment: *mut Segment) {
        // Release: meets the Acquire in `raw`.
        let ordering = if crate::mutated!("segment_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.segments[at].store(segment, ordering);
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.segments)
    }
}

/// A segment's address with its class.
pub(super) fn tagged(segment: *mut Segment, class: Class) -> *mut Segment {
    segment.map_addr(|address| address | usize::from(class))
}

/// A segment's address without.
pub(super) fn untagged(segment: *mut Segment) -> *mut Segment {
    segment.map_addr(|address| address & !CLASS)
}

/// # Safety
///
/// `raw` came from [`tagged`], of a segment that is not freed during `'g`.
#[inline]
pub(super) unsafe fn view<'g>(raw: *mut Segment) -> View<'g> {
    let class = (raw.addr() & CLASS) as Class;
    // SAFETY: a segment's address is not null.
    let at = unsafe { NonNull::new_unchecked(untagged(raw)) };
    // SAFETY: the class was put there with it; the rest says the caller.
    unsafe { View::new(at, class) }
}
