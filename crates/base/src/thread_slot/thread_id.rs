//! The identity of a thread. Available with `std` (and under loom); without `std` threads cannot be
//! distinguished.
//!
//! A visit of a shrinker reads the identity several times, so the read must be cheap.
//! `thread::current().id()` increments and decrements a reference count; a number in a thread-local
//! is a load and a comparison. The address of a thread-local would not work: a later thread may get
//! the same address, and would inherit a scope that was leaked.
//!
//! A change must ensure that no number is given to two threads, and that `current` works in
//! destructors of thread-locals.

/// The identity of a thread: a number that no other thread has or ever had. Without `std`, all
/// threads have the same identity ([`KNOWN`](Self::KNOWN)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(#[cfg(any(feature = "std", lowwater_loom))] Id);

#[cfg(all(feature = "std", not(lowwater_loom)))]
type Id = core::num::NonZeroUsize;
#[cfg(lowwater_loom)]
type Id = loom::thread::ThreadId;

impl ThreadId {
    /// Whether this build can distinguish threads. If not, re-entry cannot be detected, and
    /// preventing it is the embedder's duty.
    pub const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    /// Returns the identity of the calling thread.
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
    /// This thread's number; 0 before its first use. Without a destructor, so that it is available
    /// in the destructors of other thread-locals.
    static NUMBER: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
#[inline]
fn current() -> Id {
    Id::new(NUMBER.get()).unwrap_or_else(number)
}

/// Assigns a number to this thread.
#[cfg(all(feature = "std", not(lowwater_loom)))]
#[cold]
fn number() -> Id {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the number only has to be unique. Terminates: of two consecutive numbers at least
    // one is not 0.
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

/// Returns a number that concurrently running threads rarely share, to spread them over the shards
/// of a structure: the thread's own number, or without `std` and in model checks a
/// [hint](crate::cpu::hint).
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
