//! Arrays that are mapped from the system.
//!
//! Memory is returned one huge page at a time, because a munmap of a part of a huge page splits the
//! page and interrupts all processors.
//!
//! A change must ensure that a new array reads as zero, and that [`shrink`] unmaps nothing but the
//! end that it excludes from the returned length.

use crate::mapped_memory::{map_aligned, HUGE};
use core::ptr::NonNull;
use rustix::mm::{madvise, munmap, Advice};

/// The minimum size in bytes at which a mapping is worth its system calls: the size from which
/// glibc's allocator, by default, maps memory itself.
pub(super) const FROM: usize = 128 << 10;
/// The maximum number of bytes that one call frees: one huge page, and never a part of one.
pub(super) const STEP: usize = HUGE;
/// The largest size of normal pages; lengths of mappings are multiples of it on every system.
const PAGE: usize = 64 << 10;

/// Maps `bytes` zero bytes; `None` if the system refuses.
pub(super) fn make(bytes: usize) -> Option<NonNull<u8>> {
    let base = map_aligned(pages(bytes))?;
    // An incomplete huge page at the end is never a huge page, so the array takes no more memory
    // than its size.
    let advice = if bytes >= HUGE { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range was just mapped. If the advice is refused, accesses are slower, without
    // other effects.
    let _advised = unsafe { madvise(base.as_ptr().cast(), pages(bytes), advice) };
    Some(base)
}

/// Unmaps the last [`STEP`] or fewer bytes, and returns the number of bytes that are left.
///
/// # Safety
///
/// `base` came from [`make`], `bytes` bytes of that mapping are left, and no code uses the last
/// [`STEP`] of them.
pub(super) unsafe fn shrink(base: NonNull<u8>, bytes: usize) -> usize {
    let keep = bytes.saturating_sub(1) / STEP * STEP;
    // SAFETY: `keep` is less than the size of the mapping, or 0.
    let behind = unsafe { base.add(keep) };
    // SAFETY: these are the last bytes of the mapping, and no code uses them (this function's
    // clause).
    unsafe { free(behind, bytes - keep) };
    keep
}

/// Unmaps the end of a mapping.
///
/// # Safety
///
/// The range is the last `bytes` bytes of a mapping from [`make`], and no code uses it.
pub(super) unsafe fn free(base: NonNull<u8>, bytes: usize) {
    if bytes != 0 {
        // SAFETY: the range consists of whole pages of our mapping. If the call fails, they stay
        // mapped, without other effects.
        let _unmapped = unsafe { munmap(base.as_ptr().cast(), pages(bytes)) };
    }
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}
