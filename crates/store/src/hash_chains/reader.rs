//! Readers of hash chains.
//!
//! [`Reader`] is the public name of `read::Guard`. A change must ensure that every found object
//! borrows its reader, so that no object is used after its reader has left.

use super::read;
use core::fmt;

/// Proof that the thread is inside the read side. Cheap to create. Removed objects are freed only
/// after all readers that may have seen them are dropped, so a reader should be short-lived. A
/// leaked reader stays inside for ever, even after its thread has ended.
///
/// Signals and forks: as for [`pin`](lowwater_rcu::pin()), except that no call is allowed in the
/// child of a process with several threads. With `std`, a thread that leaks `usize::MAX` readers
/// panics; without `std`, the process aborts as documented at `pin`.
///
/// Memory: with `std`, a thread's first reader allocates the thread's registration, and removed
/// objects wait in lists that grow. Without memory for either, the process aborts. Without `std`, a
/// reader needs no memory. An object that is removed while others wait for readers takes a place in
/// a vector; if the vector cannot grow, the table's `Arc` on the object is never dropped.
pub struct Reader(pub(super) read::Guard);

// === impl Reader ===

impl Reader {
    /// Enters the read side. Takes a few nanoseconds, and almost no time if the thread is inside
    /// already. A call may drop objects that left their tables earlier.
    ///
    /// If the reader is leaked, everything that chains retire from then on stays in memory for
    /// good.
    #[inline]
    #[doc(alias = "rcu_read_lock")]
    pub fn enter() -> Self {
        Self(read::pin())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
