//! A hint to the processor.

/// Says that the lines where `of` begins and ends will be wanted soon. Does nothing where the compiler has no such hint.
#[inline]
pub fn prefetch<T>(of: &T) {
    let first = core::ptr::from_ref(of).cast::<u8>();
    prefetch_at(first);
    // What is no larger than its alignment lies in one line.
    if size_of::<T>() > align_of::<T>() {
        prefetch_at(first.wrapping_add(size_of::<T>() - 1));
    }
}

/// Says that the line at an address will be wanted soon, if there is one.
#[inline]
pub fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a hint; it reads nothing, faults never, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
