//! One leaf for all numbers, from the system, which gives its pages when they are first touched.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// All bits that a number has: for 256 GiB of chunks.
pub const LEAF_BITS: u32 = 22;
pub const LEAVES: usize = 1;

pub type Leaf = [AtomicPtr<u8>; 1 << LEAF_BITS];

/// An empty one.
pub fn make() -> Option<NonNull<Leaf>> {
    // Without a reserve: nearly all of it is never touched.
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping, wherever there is room.
    let leaf = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<Leaf>(), ProtFlags::READ | ProtFlags::WRITE, flags) };
    let leaf = leaf.ok()?;
    // SAFETY: it was just mapped. Where a system gives huge pages to whoever does not object, the first number would take one.
    let _advised = unsafe { madvise(leaf, size_of::<Leaf>(), Advice::LinuxNoHugepage) };
    NonNull::new(leaf.cast::<Leaf>())
}

/// # Safety
///
/// It was [made](make), and nobody uses it any more.
pub unsafe fn drop(leaf: NonNull<Leaf>) {
    // SAFETY: it is a whole mapping, that nobody uses, says the caller. Should it fail, it stays, and takes nothing.
    let _unmapped = unsafe { munmap(leaf.as_ptr().cast(), size_of::<Leaf>()) };
}
