//! Entering the read side.

#[cfg(any(lowwater_loom, not(any(feature = "std", feature = "embedder"))))]
use crate::counted as backend;
#[cfg(all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))))]
use crate::crossbeam as backend;
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
use crate::embedded as backend;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
use crate::membarrier as backend;
use crate::retired::Retired;
use core::fmt;

/// Proof that this thread is inside the read side: what it finds while it has this stays where it is until this is dropped.
///
/// Short is good: what is taken out of any index meanwhile waits in memory for all guards that were there before. A thread may have
/// several, which costs no more than one. Not for sending.
///
/// A guard in a thread-local variable is a reader until the variable is destroyed, however late. A
/// guard that is leaked (`mem::forget`, `Box::leak`) is a reader for ever, even when its thread has
/// ended: from then on, nothing that is taken out of any index is freed.
pub struct Guard(backend::Guard);

/// Enters the read side. A few nanoseconds; no line that others write is written.
///
/// ```
/// let guard = lowwater_rcu::pin();
/// drop(guard);
/// ```
///
/// # Signals
///
/// Not async-signal-safe, so not to be called by a signal handler: a thread's first pin allocates
/// memory and takes a lock, the drop of a guard may run destructors, and a pin that interrupts
/// another pin of its thread may take the thread to be inside too early, and so protects nothing.
/// (Signal handlers are installed by `unsafe` code, which promises this.)
///
/// # Forks
///
/// The child of a `fork` has only the thread that forked.
///
/// - That thread's guards, and the references that they protect, stay valid in the child.
/// - Pins, loads and lookups in an `lowwater_store::ExtendibleIndex` work if the thread had pinned before the
///   fork: they take no lock.
/// - Everything else may wait for ever for a lock that another thread held at the fork. It is
///   allowed if no other thread was in a call of this library then.
/// - Guards that other threads had at the fork are readers for ever in the child, as references
///   that they protect may have been lent to the thread that forked. The child frees no retired
///   memory if there were any.
///
/// The `Runtime` of the crate `lowwater` has threads of its own, which are not in the child: a
/// child of such a process calls `exec` or `_exit`, and does not drop the runtime.
///
/// # Aborts
///
/// Where pins of several threads are counted in one word (without `std`; with `std`, those of
/// threads that could not be registered or were unregistered), the process aborts when more than
/// `isize::MAX` guards were leaked, as with `Arc`.
#[inline]
#[doc(alias = "rcu_read_lock")]
pub fn pin() -> Guard {
    Guard(backend::pin())
}

impl Guard {
    /// Retires an object: it is freed when every reader that may have seen it has left. Needs no memory, but on crossbeam-epoch.
    ///
    /// # Safety
    ///
    /// `object` is what [`Retired::free`] frees: a box, unless the type says otherwise. It was unlinked, so that readers that pin from
    /// now on do not find it, and it is retired once.
    ///
    /// # Panics
    ///
    /// If a process retires objects of more than eight types; lowwater has seven.
    #[doc(hidden)]
    #[doc(alias = "call_rcu")]
    #[inline]
    pub unsafe fn retire<T: Retired>(&self, object: *mut T) {
        // SAFETY: this function's own clause.
        unsafe { self.0.retire(object) };
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
