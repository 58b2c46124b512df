//! Sizes of heap blocks in glibc's allocator, for accounting.
//!
//! The charge of a value should be what it takes from the system, and glibc's blocks are
//! predictable; with another allocator the charge is an estimate.
//!
//! A change must ensure that the computed size is that of glibc's block.

/// Returns the size of a block of `bytes` bytes in glibc's allocator: a header of 8 bytes, the sum
/// rounded up to 16, at least 32.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + 8).next_multiple_of(16).max(32)
    }
}
