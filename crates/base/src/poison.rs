//! Poisoning of free memory in slabs and segments, under `--cfg lowwater_poison`
//! (`ci/programs.sh`).
//!
//! Slots and segments are in chunks that stay allocated when one of them is freed, so
//! AddressSanitizer does not detect a use after free there. Under the cfg, freed memory is filled
//! with 0xDB, so that a canary in the object (`tests/programs/token.rs`) no longer has its value.
//! With `--cfg 'lowwater_poison="address"'` in addition, AddressSanitizer's region poisoning
//! reports the access itself. Without the cfgs both functions are empty.
//!
//! A change must ensure that memory is unpoisoned before it is used again, and that both functions
//! are empty without the cfgs.

#[cfg(lowwater_poison)]
const PATTERN: u8 = 0xDB;

#[cfg(lowwater_poison = "address")]
unsafe extern "C" {
    fn __asan_poison_memory_region(begin: *const core::ffi::c_void, bytes: usize);
    fn __asan_unpoison_memory_region(begin: *const core::ffi::c_void, bytes: usize);
}

/// Poisons freed memory. Its first `linked` bytes, where a free list has its link, are overwritten,
/// but may be accessed afterwards.
///
/// # Safety
///
/// The memory is one allocation of the caller's, `linked` is at most `bytes`, and no code uses the
/// memory behind the first `linked` bytes until [`unpoison`].
#[inline(always)]
pub unsafe fn poison(begin: *mut u8, bytes: usize, linked: usize) {
    #[cfg(lowwater_poison)]
    // SAFETY: the memory is the caller's (this function's clause).
    unsafe {
        begin.write_bytes(PATTERN, bytes);
    }
    #[cfg(lowwater_poison = "address")]
    // SAFETY: the call changes only the sanitizer's state for the region, not the memory.
    unsafe {
        __asan_poison_memory_region(begin.wrapping_add(linked).cast(), bytes - linked);
    }
    let _ = (begin, bytes, linked);
}

/// Permits accesses to the memory again, before it is allocated or returned to the system.
///
/// # Safety
///
/// The memory is one allocation of the caller's.
#[inline(always)]
pub unsafe fn unpoison(begin: *mut u8, bytes: usize) {
    #[cfg(lowwater_poison = "address")]
    // SAFETY: the call changes only the sanitizer's state for the region, not the memory.
    unsafe {
        __asan_unpoison_memory_region(begin.cast(), bytes);
    }
    let _ = (begin, bytes);
}
