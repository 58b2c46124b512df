//! Words that are mapped from the system.

use crate::mapped_memory::{map_aligned, HUGE};
use core::ptr::NonNull;
use rustix::mm::{madvise, munmap, Advice};

/// A mapping is worth its calls from so many bytes on: where the allocator has one for itself.
pub(super) const FROM: usize = 128 << 10;
/// What is given back at once, at most: one huge page, and no part of one.
pub(super) const STEP: usize = HUGE;
/// No page that is not huge is larger.
const PAGE: usize = 64 << 10;

/// Memory of so many bytes.
pub(super) fn make(bytes: usize) -> Option<NonNull<u8>> {
    let base = map_aligned(pages(bytes))?;
    // What does not fill a huge page at the end takes none; so none is larger than what it is for.
    let advice = if bytes >= HUGE { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: it was just mapped. If the advice is not taken it is slower, and nothing else.
    let _advised = unsafe { madvise(base.as_ptr().cast(), pages(bytes), advice) };
    Some(base)
}

/// Unmaps what is behind the bytes that it returns.
///
/// # Safety
///
/// `base` came from [`make`], of which so many bytes are left, and nobody uses the last [`STEP`] of them.
pub(super) unsafe fn shrink(base: NonNull<u8>, bytes: usize) -> usize {
    let keep = bytes.saturating_sub(1) / STEP * STEP;
    // SAFETY: it is inside the mapping.
    let behind = unsafe { base.add(keep) };
    // SAFETY: nobody uses it, says the caller.
    unsafe { free(behind, bytes - keep) };
    keep
}

/// # Safety
///
/// They are the last so many bytes of what came from [`make`], and nobody uses them.
pub(super) unsafe fn free(base: NonNull<u8>, bytes: usize) {
    if bytes != 0 {
        // SAFETY: these are whole pages of ours. Should it fail, they stay, and nothing else.
        let _unmapped = unsafe { munmap(base.as_ptr().cast(), pages(bytes)) };
    }
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}
