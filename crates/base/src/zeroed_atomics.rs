//! Long arrays of words that are zero at first and take memory as they are touched: for tables of what is only a hint.

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

/// A line of the processor's cache, where the first word begins.
const LINE: usize = 64;

/// An array of atomic words that are zero at first.
///
/// On Linux with `std`, from 128 KiB on, they are mapped from the system: nothing is cleared when they are made, a page is taken when it is
/// first touched, and from 2 MiB on huge pages are asked for. Elsewhere they are the allocator's.
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
    /// From the system; else from the allocator.
    is_mapped: bool,
}

// SAFETY: it owns its words, as a box does, which may be used from any thread.
unsafe impl Send for ZeroedAtomics {}
// SAFETY: as for Send.
unsafe impl Sync for ZeroedAtomics {}

impl ZeroedAtomics {
    /// So many words, all zero. O(1) where they are mapped, else O(`len`). None without memory, or addresses.
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

    /// Gives the last words' memory back: 2 MiB of it at most where they are mapped, so that nobody has to wait for all of many; else all. Are
    /// there words left?
    pub fn shrink(&mut self) -> bool {
        #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
        if self.is_mapped {
            let bytes = self.len * size_of::<AtomicU64>();
            // SAFETY: it is a mapping of so many bytes, and nobody has a reference to a word.
            self.len = unsafe { mapped::shrink(self.first.cast(), bytes) } / size_of::<AtomicU64>();
            return self.len != 0;
        }
        self.free();
        false
    }

    /// Bytes of all words, touched or not.
    pub fn footprint(&self) -> crate::ByteSize {
        crate::ByteSize::new(size_of_val(&**self) as u64)
    }

    fn free(&mut self) {
        let len = core::mem::take(&mut self.len);
        #[cfg(all(target_os = "linux", feature = "std", not(miri)))]
        if self.is_mapped {
            // SAFETY: it is a mapping of so many bytes, and by the length nobody reaches it any more.
            return unsafe { mapped::free(self.first.cast(), len * size_of::<AtomicU64>()) };
        }
        let layout = layout(len).expect("as when they were made");
        if layout.size() != 0 {
            // SAFETY: it came from the allocator with this layout, and by the length nobody reaches it any more.
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
        // SAFETY: there are so many words, zero when they were made, which is a value of each, and nobody else frees them.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.len).as_ref() }
    }
}

impl Default for ZeroedAtomics {
    /// No words, and no memory.
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
