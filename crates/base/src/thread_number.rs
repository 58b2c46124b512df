//! A small number for each thread, to spread threads over the shards of a structure.

/// Returns a number that differs between the threads that run at the same time: threads are
/// numbered from 1 in the order of their first call. Without `std`, and in model checks, a hint
/// that threads may share ([`cpu::hint`](crate::cpu::hint)).
#[cfg(all(feature = "std", not(lowwater_loom)))]
#[inline]
pub fn current() -> usize {
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use core::cell::Cell;
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    std::thread_local! { static OWN: Cell<usize> = const { Cell::new(0) }; }
    let number = OWN.get();
    if number != 0 {
        return number;
    }
    // Relaxed: the number is unique by the addition alone, and orders nothing.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    OWN.set(number);
    number
}

/// Returns a hint that threads which run at the same time rarely share.
#[cfg(any(not(feature = "std"), lowwater_loom))]
pub fn current() -> usize {
    crate::cpu::hint()
}
