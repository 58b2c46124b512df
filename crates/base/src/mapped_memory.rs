//! Memory from the system itself: zero, and taken a page at a time as it is touched.

use core::ptr::{self, NonNull};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// A huge page.
pub const HUGE: usize = 2 << 20;

/// A mapping of so many bytes, a multiple of a page, that begins where a huge page can.
pub fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, where the system likes.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes.checked_add(HUGE)?, prot, flags) }.ok()?.cast::<u8>();
    let before = base.addr().next_multiple_of(HUGE) - base.addr();
    // SAFETY: `before` is less than the huge page that was mapped beyond `bytes`.
    let aligned = unsafe { base.add(before) };
    if before != 0 {
        // SAFETY: what is before is ours and not used. If it stays, it was never touched.
        let _unmapped = unsafe { munmap(base.cast(), before) };
    }
    // SAFETY: it is inside the mapping, or just behind it.
    let behind = unsafe { aligned.add(bytes) };
    // SAFETY: what is behind is ours and not used.
    let _unmapped = unsafe { munmap(behind.cast(), HUGE - before) };
    NonNull::new(aligned)
}
