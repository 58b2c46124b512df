//! The shard that a thread uses, as a *place*: a number, of which the number of shards, a power of
//! two, uses the lower bits. It is derived from the processor's number on the thread's first add,
//! and again whenever the thread finds its shard locked. So threads that run at the same time
//! spread over the shards, and an uncontended thread need not query its processor. Without `std` it
//! is derived from the address of the stack, for each add.
//!
//! The value is only a hint: any value is correct, a good one avoids contention. A change must
//! ensure that an uncontended add costs no system call.

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
extern crate std;

#[cfg(not(any(feature = "std", test)))]
pub(super) use lowwater_base::cpu::stack as get;

#[cfg(not(any(feature = "std", test)))]
pub(super) fn next(place: usize) -> usize {
    place.wrapping_add(1)
}

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
std::thread_local! { static PLACE: core::cell::Cell<usize> = const { core::cell::Cell::new(UNKNOWN) }; }

// In a model each thread sets the shard it uses.
#[cfg(all(any(feature = "std", test), lowwater_loom))]
loom::thread_local! { static PLACE: core::cell::Cell<usize> = core::cell::Cell::new(0); }

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
const UNKNOWN: usize = usize::MAX;

/// The bits of a place: without the top bit, so that each place differs from `UNKNOWN`.
#[cfg(any(feature = "std", test))]
const PLACES: usize = usize::MAX >> 1;

#[cfg(any(feature = "std", test))]
#[inline]
pub(super) fn get() -> usize {
    let place = PLACE.with(core::cell::Cell::get);
    #[cfg(not(lowwater_loom))]
    if place == UNKNOWN {
        return set(lowwater_base::cpu::hint());
    }
    place
}

/// Assigns and returns the place to use instead of `place`, whose shard is locked: the current
/// processor's number, or the next number if `place` is that. Two places may have the same shard: a
/// thread that gets such a place waits for the lock of its shard.
#[cfg(any(feature = "std", test))]
pub(super) fn next(place: usize) -> usize {
    set(after(place, lowwater_base::cpu::hint()))
}

/// Returns the place to use instead of `place` on the processor `here`.
#[cfg(any(feature = "std", test))]
fn after(place: usize, here: usize) -> usize {
    // A hint that is a hash may have the bit that `set` has cleared in `place`.
    let here = here & PLACES;
    if here == place {
        here + 1
    } else {
        here
    }
}

#[cfg(any(feature = "std", test))]
#[cold]
pub(super) fn set(place: usize) -> usize {
    let place = place & PLACES;
    PLACE.with(|own| own.set(place));
    place
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
        for hint in [0, 7, PLACES, 7 | !PLACES, UNKNOWN] {
            let locked = set(hint);
            assert_ne!(set(after(locked, hint)), locked, "{hint:#x}");
        }
    }
}
