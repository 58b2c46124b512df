//! One leaf for all numbers, mapped from the system, which allocates its pages on first access.
//!
//! For Linux with `std`: a lookup then has one dependent load less than with `boxed.rs`, which has
//! the same interface.
//!
//! The entry of a number that was never set must read as none (null); fresh pages are zero.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// The number of bits of a number: for 256 GiB of chunks.
pub const LEAF_BITS: u32 = 22;
pub const LEAVES: usize = 1;

pub type Leaf = [AtomicPtr<u8>; 1 << LEAF_BITS];

/// Creates an empty leaf; `None` if the system refuses.
pub fn make() -> Option<NonNull<Leaf>> {
    // Without reserved swap space: nearly all of it is never accessed.
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address that the system chooses.
    let leaf = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<Leaf>(), ProtFlags::READ | ProtFlags::WRITE, flags) };
    let leaf = leaf.ok()?;
    // SAFETY: the range was just mapped. With transparent huge pages always enabled, the first
    // number would otherwise take a huge page.
    let _advised = unsafe { madvise(leaf, size_of::<Leaf>(), Advice::LinuxNoHugepage) };
    NonNull::new(leaf.cast::<Leaf>())
}

/// Unmaps a leaf.
///
/// # Safety
///
/// It was created by [`make`], and no code uses it any more.
pub unsafe fn drop(leaf: NonNull<Leaf>) {
    // SAFETY: the range is a whole mapping that no code uses (this function's clause). If the call
    // fails, the mapping stays, which is harmless.
    let _unmapped = unsafe { munmap(leaf.as_ptr().cast(), size_of::<Leaf>()) };
}
