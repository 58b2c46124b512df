//! Whether the calling thread runs a callback.
//!
//! A thread inside a callback is waited for: by the end of that shrinker's registration, by the drop of the reclaimer whose
//! thread it is, by threads that wait for a value which it loads. If it waited for another such thread, the two could wait
//! for each other for ever. So no call of this workspace that ends something waits on a thread inside a [`CallbackScope`]:
//! what is ended is closed at once, and the last thread to leave it finishes the end.

use core::marker::PhantomData;

#[cfg(lowwater_loom)]
use loom::thread_local;
#[cfg(all(feature = "std", not(lowwater_loom)))]
use std::thread_local;

/// Marks the calling thread as inside a callback until this is dropped. Scopes nest.
///
/// The registry enters one around each callback of a shrinker, and the threads of [`Reclaimer`](crate::Reclaimer) and of a pressure
/// monitor (`lowwater::pressure`) are inside one for as long as they run. An embedder enters one where other threads
/// may wait for its own callbacks. Inside, the drop of a [`Registration`](crate::Registration), a reclaimer or a monitor
/// does not wait.
///
/// Without `std` threads cannot be told apart, and the scope does nothing.
///
/// ```
/// use lowwater_shrinker::CallbackScope;
///
/// assert!(!CallbackScope::is_inside());
/// let scope = CallbackScope::enter();
/// assert!(CallbackScope::is_inside());
/// drop(scope);
/// assert!(!CallbackScope::is_inside());
/// ```
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub struct CallbackScope {
    /// It speaks of the thread it was made on.
    not_send: PhantomData<*const ()>,
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
thread_local! {
    /// Scopes that the thread is inside. No destructor, so it can be read while the thread ends.
    static DEPTH: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}
#[cfg(lowwater_loom)]
thread_local! {
    static DEPTH: core::cell::Cell<usize> = core::cell::Cell::new(0);
}

impl CallbackScope {
    /// Does this build know one thread from another?
    pub(crate) const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    /// Enters a scope.
    #[inline]
    pub fn enter() -> Self {
        #[cfg(any(feature = "std", lowwater_loom))]
        // Saturates: a scope that is leaked counts for as long as the thread runs.
        DEPTH.with(|depth| depth.set(depth.get().saturating_add(1)));
        Self { not_send: PhantomData }
    }

    /// Is the calling thread inside a scope? False without `std`.
    #[inline]
    pub fn is_inside() -> bool {
        #[cfg(any(feature = "std", lowwater_loom))]
        return DEPTH.with(|depth| depth.get() > 0);
        #[cfg(not(any(feature = "std", lowwater_loom)))]
        return false;
    }
}

impl Drop for CallbackScope {
    #[inline]
    fn drop(&mut self) {
        #[cfg(any(feature = "std", lowwater_loom))]
        DEPTH.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}
