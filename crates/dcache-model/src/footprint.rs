//! The footprint of a dentry: the bytes that are charged to its memcg.
//!
//! Tenants are charged this figure, so it includes the allocator's overhead. `DENTRY_BYTES` follows
//! the size of `Dentry`. Not included: the inode, and a directory's `Dir`, except for the slot of
//! each child, which the child's figure contains (`charge.rs`). A change that allocates other
//! memory for a dentry must add it here.

use crate::dentry::Dentry;
use crate::flag;
use crate::qstr::INLINE_MAX;
use lowwater_lru_core::ByteSize;

/// Bytes that common allocators keep before an object.
const HEADER: usize = 8;
/// The alignment of common allocators.
const ALIGN: usize = 16;

/// The bytes of a dentry with a name of up to [`INLINE_MAX`] bytes, including the allocator's
/// overhead and the dentry's slot among the children of its parent.
pub(crate) const DENTRY_BYTES: usize = {
    /// Both counts of an `Arc`.
    const COUNTS: usize = 16;
    let object = COUNTS + size_of::<Dentry>();
    let allocated = (object + HEADER).div_ceil(ALIGN) * ALIGN;
    // The slot among the parent's children: a pointer, a used bit and a positive bit, and this
    // child's share of the bitmaps of pages.
    allocated + size_of::<usize>() + 1
};

/// Returns the bytes of a dentry with a name of `name_len` bytes, including the allocator's
/// overhead.
pub(crate) fn bytes_of(name_len: usize) -> u64 {
    /// The allocation of the outer box of a long name's tail, with its header: the tail is boxed
    /// twice.
    const OUTER: usize = 32;
    let tail = match name_len.saturating_sub(INLINE_MAX) {
        0 => 0,
        tail => OUTER + (tail + HEADER).next_multiple_of(ALIGN),
    };
    (DENTRY_BYTES + tail) as u64
}

impl Dentry {
    /// Returns the bytes that the memcg is charged with while [`flag::CHARGED`] is set.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_of((self.flags() >> flag::LEN_SHIFT) as usize)
    }

    /// Uncharges the memcg. The dentry is dead.
    pub(crate) fn uncharge(&self) {
        if self.has(flag::CHARGED) {
            self.memcg.uncharge(ByteSize::new(self.bytes()));
        }
    }
}
