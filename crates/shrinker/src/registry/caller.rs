//! Which thread is this? Known under `std` (and to loom); without it nobody can tell.
//!
//! Asked several times for each shrinker that a pass visits, so it must cost next to nothing. `thread::current().id()` counts a
//! reference up and down; a number in a thread-local is a load and a comparison. Not the local's address: the next thread may get that
//! one, and with it a scope that was leaked.

/// The thread that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller(#[cfg(any(feature = "std", lowwater_loom))] Id);

#[cfg(all(feature = "std", not(lowwater_loom)))]
type Id = core::num::NonZeroUsize;
#[cfg(lowwater_loom)]
type Id = loom::thread::ThreadId;

impl Caller {
    /// Does this build know one thread from another? Where not, re-entry cannot be noticed and is up to the embedder.
    pub(crate) const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    #[inline]
    pub(crate) fn current() -> Self {
        Self(
            #[cfg(any(feature = "std", lowwater_loom))]
            current(),
        )
    }
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
std::thread_local! {
    /// This thread's number; 0 before it is first asked for. No destructor, so that it is there in those of others.
    static NUMBER: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
#[inline]
fn current() -> Id {
    Id::new(NUMBER.get()).unwrap_or_else(number)
}

/// Gives this thread its number.
#[cfg(all(feature = "std", not(lowwater_loom)))]
#[cold]
fn number() -> Id {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: any number does that no other thread gets. Ends: of two in a row one is not 0.
    loop {
        if let Some(number) = Id::new(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)) {
            NUMBER.set(number.get());
            return number;
        }
    }
}

#[cfg(lowwater_loom)]
fn current() -> Id {
    lowwater_base::sync::thread::current().id()
}
