//! Leaves from the allocator: small, and created as needed.
//!
//! For systems that do not allocate memory on first access, for Miri and for model checks. Same
//! interface as `mapped.rs`; `chunk_table.rs` chooses one by cfg.
//!
//! A change must ensure that a leaf in the root neither moves nor is freed: readers use it without
//! a lock.

use crate::fallible::try_slice;
use crate::sync::atomic::AtomicPtr;
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// The number of low bits, which select an entry in a leaf.
pub const LEAF_BITS: u32 = if cfg!(lowwater_loom) { 1 } else { 10 };
/// The maximum number of leaves: for 256 GiB of chunks, and 16 GiB without `std`, where the root
/// takes memory even if it is unused.
pub const LEAVES: usize = match (cfg!(lowwater_loom), cfg!(feature = "std")) {
    (true, _) => 16,
    (false, true) => 1 << 12,
    (false, false) => 1 << 8,
};

pub type Leaf = [AtomicPtr<u8>; 1 << LEAF_BITS];

/// Creates an empty leaf; `None` if there is no memory.
pub fn make() -> Option<NonNull<Leaf>> {
    let leaf = try_slice(1 << LEAF_BITS, |_| AtomicPtr::<u8>::new(ptr::null_mut()))?;
    NonNull::new(Box::into_raw(leaf).cast::<Leaf>())
}

/// Frees a leaf.
///
/// # Safety
///
/// It was created by [`make`], and no code uses it any more.
pub unsafe fn drop(leaf: NonNull<Leaf>) {
    // SAFETY: the leaf came from a box of this many entries.
    core::mem::drop(unsafe { Box::from_raw(leaf.as_ptr()) });
}
