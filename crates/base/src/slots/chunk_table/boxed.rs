//! Leaves from the allocator: small, and made as they are needed.

use crate::fallible::try_slice;
use crate::sync::atomic::AtomicPtr;
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// Bits of a number that choose in a leaf.
pub const LEAF_BITS: u32 = if cfg!(lowwater_loom) { 1 } else { 10 };
/// Leaves that there can be: for 256 GiB of chunks, and 16 GiB without `std`, where the table is not free until it is used.
pub const LEAVES: usize = match (cfg!(lowwater_loom), cfg!(feature = "std")) {
    (true, _) => 16,
    (false, true) => 1 << 12,
    (false, false) => 1 << 8,
};

pub type Leaf = [AtomicPtr<u8>; 1 << LEAF_BITS];

/// An empty one.
pub fn make() -> Option<NonNull<Leaf>> {
    let leaf = try_slice(1 << LEAF_BITS, |_| AtomicPtr::<u8>::new(ptr::null_mut()))?;
    NonNull::new(Box::into_raw(leaf).cast::<Leaf>())
}

/// # Safety
///
/// It was [made](make), and nobody uses it any more.
pub unsafe fn drop(leaf: NonNull<Leaf>) {
    // SAFETY: it came from a box of so many.
    core::mem::drop(unsafe { Box::from_raw(leaf.as_ptr()) });
}
