//! Prefetch hints to the processor.
//!
//! A prefetch of any address is harmless, so these functions are safe. They never change a result:
//! a call may be removed or added wherever measurements support it.

/// Prefetches the cache lines with the first and the last byte of `of`. Does nothing where the
/// target has no prefetch instruction.
#[inline]
pub fn prefetch<T>(of: &T) {
    let first = core::ptr::from_ref(of).cast::<u8>();
    prefetch_at(first);
    // A value no larger than its alignment lies in one line, if the alignment is at most a line.
    if size_of::<T>() > align_of::<T>() {
        prefetch_at(first.wrapping_add(size_of::<T>() - 1));
    }
}

/// Prefetches the cache line at an address, which need not be valid.
#[inline]
pub fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: the instruction is a hint that reads nothing and never faults, and every x86-64
        // processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
