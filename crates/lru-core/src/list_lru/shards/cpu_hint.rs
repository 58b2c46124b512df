//! The shard that a thread uses, as a *hint*: a number, of which the number of shards, a power of
//! two, uses the lower bits. It is derived from the processor's number on the thread's first add,
//! and again whenever the thread finds its shard locked. So threads that run at the same time
//! spread over the shards, and an uncontended thread need not query its processor. Without `std` it
//! is derived from the address of the stack, for each add.
//!
//! Any value is correct; a good one avoids contention. A change must ensure that an uncontended add
//! costs no system call.

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
extern crate std;

#[cfg(not(any(feature = "std", test)))]
pub(super) use lowwater_base::cpu::stack as get;

#[cfg(not(any(feature = "std", test)))]
pub(super) fn next(hint: usize) -> usize {
    hint.wrapping_add(1)
}

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
std::thread_local! { static HINT: core::cell::Cell<usize> = const { core::cell::Cell::new(UNKNOWN) }; }

// In a model each thread sets the shard it uses.
#[cfg(all(any(feature = "std", test), lowwater_loom))]
loom::thread_local! { static HINT: core::cell::Cell<usize> = core::cell::Cell::new(0); }

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
const UNKNOWN: usize = usize::MAX;

/// The bits of a hint: without the top bit, so that each hint differs from `UNKNOWN`.
#[cfg(any(feature = "std", test))]
const HINT_BITS: usize = usize::MAX >> 1;

#[cfg(any(feature = "std", test))]
#[inline]
pub(super) fn get() -> usize {
    let hint = HINT.with(core::cell::Cell::get);
    #[cfg(not(lowwater_loom))]
    if hint == UNKNOWN {
        return set(lowwater_base::cpu::hint());
    }
    hint
}

/// Assigns and returns the hint to use instead of `hint`, whose shard is locked: the current
/// processor's number, or the next number if `hint` is that. Two hints may have the same shard: a
/// thread that gets such a hint waits for the lock of its shard.
#[cfg(any(feature = "std", test))]
pub(super) fn next(hint: usize) -> usize {
    set(after(hint, lowwater_base::cpu::read_hint()))
}

/// Returns the hint to use instead of `hint` on this `processor`.
#[cfg(any(feature = "std", test))]
fn after(hint: usize, processor: usize) -> usize {
    // A hint that is a hash may have the bit that `set` has cleared in `hint`.
    let processor = processor & HINT_BITS;
    if processor == hint {
        processor + 1
    } else {
        processor
    }
}

#[cfg(any(feature = "std", test))]
#[cold]
pub(super) fn set(hint: usize) -> usize {
    let hint = hint & HINT_BITS;
    HINT.with(|own| own.set(hint));
    hint
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_a_locked_shard_for_another_and_stays_there() {
        for _ in 0..1_000 {
            // The thread may move to another processor in between, which changes nothing.
            let locked = lowwater_base::cpu::hint();
            let instead = next(locked);
            assert_ne!(instead, locked);
            assert_eq!(get(), instead);
        }
        assert_eq!(set(7), 7);
        assert_eq!(get(), 7);
        // A thread on another processor than the one that was locked uses its own.
        let far = usize::MAX >> 1;
        assert!(next(far) < far);
        assert_ne!(set(UNKNOWN), UNKNOWN);
    }

    /// Where the processor's number is unknown, the hint is a hash of the thread's id.
    #[test]
    fn a_thread_with_any_hint_leaves_a_locked_shard() {
        for hint in [0, 7, HINT_BITS, 7 | !HINT_BITS, UNKNOWN] {
            let locked = set(hint);
            assert_ne!(set(after(locked, hint)), locked, "{hint:#x}");
        }
    }
}
