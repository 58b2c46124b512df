//! Entering the read side.
//!
//! [`pin`] and [`Guard`] are the public interface to the four backends (`membarrier`, `crossbeam`,
//! `counted`, `embedded`), of which each build has one: `backend` below. `lib.rs` lists the builds.
//!
//! A change must ensure that `Guard` does not become `Send`: most backends record readers by
//! thread. The conditions below are those of the modules in `lib.rs`.

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

/// Proof that this thread is inside the read side: objects that the thread finds while it holds the
/// guard are not freed before the guard is dropped.
///
/// Guards should be short-lived: an object that is removed from any index stays in memory until all
/// guards that existed at that time are dropped. A thread may hold several guards at no higher cost
/// than one. A guard is not `Send`.
///
/// A guard in a thread-local variable is a reader until the variable is destroyed. A leaked guard
/// (`mem::forget`, `Box::leak`) is a reader for ever, even after its thread has ended: from then
/// on, no object that is removed from any index is freed.
pub struct Guard(backend::Guard);

/// Enters the read side. With `std`, takes a few nanoseconds. Under `membarrier` it writes no cache
/// line that other threads write, unless the thread could not be registered or is unregistered
/// already; with crossbeam-epoch a pin now and then advances the shared epoch. Without `std`, a pin
/// adds to a counter that all threads share, or is the embedder's.
///
/// ```
/// let guard = lowwater_rcu::pin();
/// drop(guard);
/// ```
///
/// # Signals
///
/// Not async-signal-safe, so a signal handler must not call it: a thread's first pin allocates
/// memory and takes a lock, the drop of a guard may run destructors, and a pin that interrupts
/// another pin of its thread may find the thread marked as inside too early, and then protects
/// nothing. (Signal handlers are installed by `unsafe` code, which is responsible for this.)
///
/// # Forks
///
/// The child of a `fork` has only the thread that forked.
///
/// - That thread's guards, and the references that they protect, stay valid in the child.
/// - Pins, loads and lookups in an `lowwater_store::ExtendibleIndex` work if the thread had pinned
///   before the fork: they take no lock.
/// - All other calls may block for ever on a lock that another thread held at the fork. They are
///   allowed if no other thread was in a call of this library at the fork.
/// - The drop of a thread's last guard is such a call if the thread has replaced a value of an
///   [`RcuCell`](crate::RcuCell) or removed an object while it had a guard, also before the fork.
///   The child leaks this guard (`mem::forget`). With crossbeam-epoch, on systems other than Linux,
///   the drop of each last guard is such a call.
/// - Guards that other threads held at the fork are readers for ever in the child, since references
///   that they protect may have been lent to the thread that forked. If there were any, the child
///   frees no retired memory.
///
/// The `Runtime` of the crate `lowwater` has threads of its own, which do not exist in the child: a
/// child of such a process must call `exec` or `_exit`, and must not drop the runtime.
///
/// # Aborts
///
/// In builds and cases where the pins of several threads are counted in one word, the process
/// aborts when more than `isize::MAX` guards were leaked, as with `Arc`. This applies without
/// `std`; with `std`, to threads that could not be registered or are unregistered already.
#[inline]
#[doc(alias = "rcu_read_lock")]
pub fn pin() -> Guard {
    Guard(backend::pin())
}

/// Enters the read side as [`pin`] does, if that takes only a few instructions. Otherwise returns
/// `None`, and the caller calls [`pin`]: at the thread's first pin, or while it has a guard. For a
/// caller that is inlined, and leaves everything else to a function that is not.
#[doc(hidden)]
#[inline]
pub fn try_pin() -> Option<Guard> {
    backend::try_pin().map(Guard)
}

impl Guard {
    /// Retires an object: it is freed after its grace period, when every reader that may have seen
    /// it has left. Needs no memory, except with crossbeam-epoch.
    ///
    /// # Safety
    ///
    /// `object` is an object that [`Retired::free`] can free: a box, unless the type documents
    /// otherwise. It was unlinked, so that readers that pin from now on do not find it, and it is
    /// retired once.
    ///
    /// # Panics
    ///
    /// If a process retires objects of more than eight types, except with crossbeam-epoch; lowwater
    /// has seven.
    #[doc(hidden)]
    #[doc(alias = "call_rcu")]
    #[inline]
    pub unsafe fn retire<T: Retired>(&self, object: *mut T) {
        // SAFETY: this function's clause is that of the backend's `retire`.
        unsafe { self.0.retire(object) };
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
