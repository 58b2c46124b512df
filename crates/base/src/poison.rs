//! Poison in free memory of slabs and segments, under `--cfg lowwater_poison` (`ci/programs.sh`).
//!
//! Slots and segments lie in chunks that live on when one of them is freed, so AddressSanitizer does
//! not see a use after free there. Under the cfg freed memory is filled with 0xDB, which a
//! canary shows. Under `--cfg 'lowwater_poison="address"'` AddressSanitizer is told, too, and
//! reports the access itself. Without the cfgs both functions are empty.

#[cfg(lowwater_poison)]
const PATTERN: u8 = 0xDB;

#[cfg(lowwater_poison = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(begin: *const core::ffi::c_void, bytes: usize);
    fn __asan_unpoison_memory_region(begin: *const core::ffi::c_void, bytes: usize);
}

/// Poisons freed memory. Its first `linked` bytes, where a free list has its link, may be accessed.
///
/// # Safety
///
/// The memory is one allocation of ours, `linked` is at most `bytes`, and nobody uses it until
/// [`unpoison`].
#[inline(always)]
pub unsafe fn poison(begin: *mut u8, bytes: usize, linked: usize) {
    #[cfg(lowwater_poison)]
    // SAFETY: nobody uses the memory, which is ours: the caller's clause.
    unsafe {
        begin.write_bytes(PATTERN, bytes);
    }
    #[cfg(lowwater_poison = "address")]
    // SAFETY: changes what the sanitizer reports, and nothing in the memory.
    unsafe {
        __asan_poison_memory_region(begin.wrapping_add(linked).cast(), bytes - linked);
    }
    let _ = (begin, bytes, linked);
}

/// Lets memory be accessed again, before it is given out or goes back to the system.
///
/// # Safety
///
/// The memory is one allocation of ours.
#[inline(always)]
pub unsafe fn unpoison(begin: *mut u8, bytes: usize) {
    #[cfg(lowwater_poison = "address")]
    // SAFETY: changes what the sanitizer reports, and nothing in the memory.
    unsafe {
        __asan_unpoison_memory_region(begin.cast(), bytes);
    }
    let _ = (begin, bytes);
}
