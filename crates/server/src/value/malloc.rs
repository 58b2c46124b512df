//! Sizes of heap blocks in glibc's allocator, for accounting.

/// Returns the bytes that a block of `bytes` takes in glibc's allocator: 8 bytes before it, the sum
/// rounded up to 16, 32 at least.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + 8).next_multiple_of(16).max(32)
    }
}
