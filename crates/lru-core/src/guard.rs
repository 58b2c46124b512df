//! The read side, for those who look things up in an [`Index`](crate::Index).

use crate::rcu;
use core::fmt;

/// Proof that this thread is inside the read side: what it finds while it has this stays where it is until this is dropped.
///
/// Short is good: what is taken out of any index meanwhile waits in memory for all guards that were there before. A thread may have
/// several, which costs no more than one. Not for sending.
pub struct Guard(pub(crate) rcu::Guard);

/// Enters the read side. A few nanoseconds; no line that others write is written.
///
/// ```
/// let guard = lowwater_lru_core::pin();
/// drop(guard);
/// ```
#[inline]
#[doc(alias = "rcu_read_lock")]
pub fn pin() -> Guard {
    Guard(rcu::pin())
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
