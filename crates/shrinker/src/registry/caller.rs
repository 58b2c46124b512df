//! Which thread is this? Known under `std` (and to loom); without it nobody can tell.
//!
//! Asked several times for each shrinker that a pass visits, so it must cost next to nothing. `thread::current().id()` counts a
//! reference up and down; the address of a thread-local is one addition, and differs between threads that live at one time.
//! That is enough: whoever is inside a gate or a scope lives until it has left.

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
#[inline]
fn current() -> Id {
    std::thread_local! { static HERE: u8 = const { 0 } }
    HERE.with(|here| core::ptr::NonNull::from(here).addr())
}

#[cfg(lowwater_loom)]
fn current() -> Id {
    lowwater_lru_core::sync::thread::current().id()
}
