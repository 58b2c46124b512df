//! Which part a thread uses: as its processor's number says when it first asks, and again whenever it finds the part taken. So
//! threads that run at the same time come apart, and one that nobody meets need not ask.

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

// In a model each thread says which it uses.
#[cfg(all(any(feature = "std", test), lowwater_loom))]
loom::thread_local! { static PLACE: core::cell::Cell<usize> = core::cell::Cell::new(0); }

#[cfg(all(any(feature = "std", test), not(lowwater_loom)))]
const UNKNOWN: usize = usize::MAX;

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

/// The place to use in place of one that is taken: the processor's, or if it was that, the one behind it.
#[cfg(any(feature = "std", test))]
pub(super) fn next(place: usize) -> usize {
    let here = lowwater_base::cpu::hint();
    set(if here == place { here + 1 } else { here })
}

#[cfg(any(feature = "std", test))]
#[cold]
pub(super) fn set(place: usize) -> usize {
    // One bit less, so that it is not taken for unknown.
    let place = place & (usize::MAX >> 1);
    PLACE.with(|own| own.set(place));
    place
}
