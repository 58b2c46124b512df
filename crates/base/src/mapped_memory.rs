//! Memory mapped directly from the system: zeroed, and allocated page by page on first access.
//!
//! Large tables are mapped instead of allocated: an allocator may clear them at once, and keep them
//! after a free. The caller owns the mapping and must unmap exactly that range, whole or in parts.

use core::ptr::{self, NonNull};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// The size of a huge page.
pub const HUGE: usize = 2 << 20;

/// Maps `bytes` bytes, a multiple of the page size, at an address aligned to a huge page. `None` if
/// the system refuses.
pub fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the system chooses.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes.checked_add(HUGE)?, prot, flags) }.ok()?.cast::<u8>();
    let before = base.addr().next_multiple_of(HUGE) - base.addr();
    // SAFETY: `before` is less than `HUGE`, and the mapping is `HUGE` longer than `bytes`.
    let aligned = unsafe { base.add(before) };
    if before != 0 {
        // SAFETY: the part before `aligned` belongs to this mapping and is not used. If the call
        // fails, it stays mapped, and was never accessed.
        let _unmapped = unsafe { munmap(base.cast(), before) };
    }
    // SAFETY: the result is inside the mapping, or one past its end.
    let behind = unsafe { aligned.add(bytes) };
    // SAFETY: the part from `behind` on belongs to this mapping and is not used.
    let _unmapped = unsafe { munmap(behind.cast(), HUGE - before) };
    NonNull::new(aligned)
}
