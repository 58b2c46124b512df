//! Readers of hash chains.

use super::read;
use core::fmt;

/// Proof that the thread is inside the read side. Cheap to make; what is removed meanwhile is freed only after it is dropped, so
/// it is not for keeping. A leaked reader is inside for ever, even when its thread has ended.
///
/// Signals and forks: as for [`pin`](lowwater_rcu::pin()), but no call is allowed in the child of a
/// process with several threads. With `std`, a thread that leaks `usize::MAX` readers panics;
/// without, the process aborts as `pin` says.
///
/// Memory: with `std`, a thread's first reader allocates what the thread is known by, and what is
/// removed waits in lists that grow. Where there is no memory for that, the process ends.
pub struct Reader(pub(super) read::Guard);

// === impl Reader ===

impl Reader {
    /// Enters the read side. A few nanoseconds; next to nothing when the thread is inside already. Now and then objects are dropped here
    /// that left their tables before.
    ///
    /// One that is leaked keeps everything that chains retire from then on in memory, for good.
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
