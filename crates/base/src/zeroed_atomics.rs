//! Large arrays of atomic words that are initially zero and take memory on first access.
//!
//! The ghost table is such an array: otherwise, the insert that allocates the table would clear all
//! of it. A change must ensure that `len` never exceeds the words that are still allocated, and
//! that `footprint` is the size of these words.

use crate::sync::atomic::AtomicU64;
use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
mod mapped;
#[cfg(test)]
mod tests;

/// The size of a cache line, to which the first word is aligned.
const LINE: usize = 64;

/// An array of atomic words that are initially zero.
///
/// On Linux with `std`, arrays of at least 128 KiB are mapped from the system: nothing is cleared
/// at creation, a page is allocated on first access, and huge pages are requested for arrays of at
/// least 2 MiB. Other arrays come from the allocator.
///
/// ```
/// use lowwater_base::ZeroedAtomics;
/// use std::sync::atomic::Ordering;
///
/// let words = ZeroedAtomics::try_new(1_000_000).expect("8 MB of addresses");
/// words[999_999].store(7, Ordering::Relaxed);
/// assert_eq!((words[0].load(Ordering::Relaxed), words[999_999].load(Ordering::Relaxed)), (0, 7));
/// ```
#[doc(alias = "kvcalloc")]
pub struct ZeroedAtomics {
    first: NonNull<AtomicU64>,
    len: usize,
    /// Whether the memory is mapped from the system; otherwise it comes from the allocator.
    is_mapped: bool,
}

// SAFETY: the array owns its words, as a box does, and atomics may be moved to any thread.
unsafe impl Send for ZeroedAtomics {}
// SAFETY: a shared reference gives access to atomics only.
unsafe impl Sync for ZeroedAtomics {}

impl ZeroedAtomics {
    /// Creates an array of `len` words, all zero. O(1) if it is mapped, else O(`len`). `None` if
    /// there is no memory or address space.
    pub fn try_new(len: usize) -> Option<Self> {
        let layout = layout(len)?;
        #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
        if layout.size() >= mapped::FROM {
            return Some(Self { first: mapped::make(layout.size())?.cast(), len, is_mapped: true });
        }
        if layout.size() == 0 {
            return Some(Self::default());
        }
        // SAFETY: the size is not 0.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Self { first, len, is_mapped: false })
    }

    /// Frees the memory of the last words: at most 2 MiB of it if the array is mapped, so that
    /// freeing a large array does not block for long; otherwise all. Returns whether words are
    /// left.
    pub fn shrink(&mut self) -> bool {
        #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
        if self.is_mapped {
            let bytes = self.len * size_of::<AtomicU64>();
            // SAFETY: the array is a mapping of `bytes` bytes, and `&mut self` excludes references
            // to words.
            self.len = unsafe { mapped::shrink(self.first.cast(), bytes) } / size_of::<AtomicU64>();
            return self.len != 0;
        }
        self.free();
        false
    }

    /// Returns the bytes of all words, accessed or not.
    pub fn footprint(&self) -> crate::ByteSize {
        crate::ByteSize::new(size_of_val(&**self) as u64)
    }

    fn free(&mut self) {
        let len = core::mem::take(&mut self.len);
        #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
        if self.is_mapped {
            // SAFETY: the array is a mapping of this many bytes, and since `len` is 0 now, no word
            // is accessed any more.
            return unsafe { mapped::free(self.first.cast(), len * size_of::<AtomicU64>()) };
        }
        let layout = layout(len).expect("the layout of the allocation");
        if layout.size() != 0 {
            // SAFETY: the memory came from the allocator with this layout, and since `len` is 0
            // now, no word is accessed any more.
            unsafe { dealloc(self.first.as_ptr().cast(), layout) };
        }
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::array::<AtomicU64>(len).ok()?.align_to(LINE).ok()
}

impl Deref for ZeroedAtomics {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: there are `len` words, initialized as zero, which is a valid value, and only this
        // array frees them.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.len).as_ref() }
    }
}

impl Default for ZeroedAtomics {
    /// Creates an empty array, without memory.
    fn default() -> Self {
        Self { first: NonNull::dangling(), len: 0, is_mapped: false }
    }
}

impl Drop for ZeroedAtomics {
    fn drop(&mut self) {
        self.free();
    }
}

impl fmt::Debug for ZeroedAtomics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZeroedAtomics")
            .field("len", &self.len)
            .field("is_mapped", &self.is_mapped)
            .finish_non_exhaustive()
    }
}
