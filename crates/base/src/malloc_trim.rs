//! The one call into the C library: glibc's allocator gives free pages back to the system.
//!
//! It stands here because this crate is the one that may hold unsafe code. The `libc` crate has the same function as an
//! unsafe one; a declaration of one line is less to trust than a dependency.

use core::ffi::c_int;

use crate::ByteSize;

// SAFETY: the signature is that of glibc's <malloc.h>, `int malloc_trim(size_t pad)`, for which `usize` and `c_int` stand on
// every target that has glibc. Calling it asks for nothing: it is MT-Safe by glibc's manual, takes any number, and touches
// only memory that the allocator itself holds as free.
unsafe extern "C" {
    #[link_name = "malloc_trim"]
    safe fn glibc_malloc_trim(pad: usize) -> c_int;
}

/// Makes glibc's allocator give all free pages back to the system, and keep `pad` free bytes at the top of its main heap. True
/// if any memory was given back.
///
/// Takes each of the allocator's arenas' locks in turn and walks its free memory: milliseconds where much is free. With
/// another global allocator it finds nothing to give.
///
/// ```
/// use lowwater_base::{malloc_trim::malloc_trim, ByteSize};
///
/// drop(vec![0_u8; 1 << 20]);
/// malloc_trim(ByteSize::ZERO);
/// ```
pub fn malloc_trim(pad: ByteSize) -> bool {
    glibc_malloc_trim(usize::try_from(pad.get()).unwrap_or(usize::MAX)) != 0
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Resident memory, of which a call gives back what many small allocations left behind.
    fn resident() -> ByteSize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        ByteSize::kib(line.trim().strip_suffix(" kB").unwrap().parse().unwrap())
    }

    #[test]
    fn memory_that_was_freed_below_a_kept_piece_is_given_back() {
        if std::env::var_os("LOWWATER_SANITIZER").is_some() {
            return std::println!("skipped: a sanitizer brings an allocator of its own");
        }
        // Small pieces come from the heap, and the last one keeps its top in place.
        let mut pieces: Vec<_> = (0..32 << 10).map(|n| alloc::vec![n as u8; 1 << 10]).collect();
        let last = pieces.pop();
        drop(pieces);
        let before = resident();
        assert!(malloc_trim(ByteSize::ZERO), "32 MiB were free");
        let fell = before.saturating_sub(resident());
        assert!(fell >= ByteSize::mib(16), "only {fell} bytes of 32 MiB were given back");
        drop(last);
    }
}
