//! A hint to the processor.

/// Says that the line at `of` will be wanted soon. Does nothing where the compiler has no such hint.
#[inline]
pub fn prefetch<T>(of: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a hint; it reads nothing, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(of).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = of;
}
