//! A declaration of one glibc function, which returns the allocator's free pages to the system.
//!
//! It is in this crate because unsafe code is allowed here. The `libc` crate declares the same
//! function as unsafe; a declaration of one line needs less trust than a dependency.
//!
//! A change must keep the declaration equal to glibc's.

use core::ffi::c_int;

use crate::ByteSize;

// SAFETY: the signature is that of glibc's <malloc.h>, `int malloc_trim(size_t pad)`, where `usize`
// and `c_int` have the C types' layout on every target that has glibc. A call has no precondition:
// by glibc's manual it is MT-Safe, it accepts any number, and it accesses only memory that the
// allocator itself holds as free.
unsafe extern "C" {
    #[link_name = "malloc_trim"]
    safe fn glibc_malloc_trim(pad: usize) -> c_int;
}

/// Makes glibc's allocator return all free pages to the system, except `pad` free bytes at the top
/// of its main heap. Returns true if any memory was returned.
///
/// The call takes each arena's lock of the allocator in turn and walks its free memory, which takes
/// milliseconds if much memory is free. If Rust's global allocator is another one, the call returns
/// only memory that C code has freed.
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

    /// Returns the resident memory of the process.
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
        // Small allocations come from the heap, and the last one keeps the heap's top in place.
        let mut pieces: Vec<_> = (0..32 << 10).map(|n| alloc::vec![n as u8; 1 << 10]).collect();
        let last = pieces.pop();
        drop(pieces);
        let before = resident();
        assert!(malloc_trim(ByteSize::ZERO), "32 MiB were free");
        let fell = before.saturating_sub(resident());
        assert!(fell >= ByteSize::mib(16), "only {fell} bytes of 32 MiB were returned");
        drop(last);
    }
}
