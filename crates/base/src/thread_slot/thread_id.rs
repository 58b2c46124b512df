//! The identity of a thread. Known under `std` (and to loom); without `std` threads cannot be told apart.
//!
//! The shrinkers ask several times for each visit, so asking must cost next to nothing. `thread::current().id()` counts a reference up
//! and down; a number in a thread-local is a load and a comparison. The local's address would not do: the next thread may get the
//! same one, and with it a scope that was leaked.

/// The identity of a thread: a number that no other thread has, or ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(#[cfg(any(feature = "std", lowwater_loom))] Id);

#[cfg(all(feature = "std", not(lowwater_loom)))]
type Id = core::num::NonZeroUsize;
#[cfg(lowwater_loom)]
type Id = loom::thread::ThreadId;

impl ThreadId {
    /// Can this build tell threads apart? If not, re-entry cannot be noticed and is the embedder's duty.
    pub const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    /// The calling thread.
    #[inline]
    pub fn current() -> Self {
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
    crate::sync::thread::current().id()
}

/// Returns a number that threads which run at the same time rarely share, to spread them over the shards of a structure: the thread's
/// own number, or without `std` and in model checks a [hint](crate::cpu::hint).
#[inline]
pub fn spread() -> usize {
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    {
        current().get()
    }
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    {
        crate::cpu::hint()
    }
}
