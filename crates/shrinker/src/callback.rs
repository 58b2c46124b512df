//! Callback scopes: whether the calling thread runs a callback.
//!
//! A thread inside a callback is waited for: by the end of the shrinker's registration, by the drop
//! of the reclaimer that runs the thread, and by threads that need a value that the callback loads.
//! If a thread inside a callback waited for another such thread, both could wait for ever. So a
//! thread inside a [`CallbackScope`] that drops one of these objects does not wait: the object is
//! closed at once, and the last thread that leaves its callbacks finishes the cleanup.
//!
//! A change must ensure that the end of no object waits if the calling thread is inside a scope.

use core::marker::PhantomData;

#[cfg(lowwater_loom)]
use loom::thread_local;
#[cfg(all(feature = "std", not(lowwater_loom)))]
use std::thread_local;

/// Marks the calling thread as inside a callback until this is dropped. Scopes nest.
///
/// The registry enters a scope around each callback of a shrinker. The threads of a
/// [`Reclaimer`](crate::Reclaimer) and of a pressure monitor (`lowwater::pressure`) are inside one
/// as long as they run. A user of this crate enters one around its own callbacks that other threads
/// may wait for.
/// Inside a scope, the drop of a [`Registration`](crate::Registration), a reclaimer or a monitor
/// does not wait.
///
/// Without `std` there is no thread identity, and the scope does nothing.
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
    /// Not `Send`: the scope belongs to the thread that entered it.
    not_send: PhantomData<*const ()>,
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
thread_local! {
    /// The number of scopes around the current point. Without a destructor, so that it can be read
    /// while the thread ends.
    static DEPTH: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}
#[cfg(lowwater_loom)]
thread_local! {
    static DEPTH: core::cell::Cell<usize> = core::cell::Cell::new(0);
}

impl CallbackScope {
    /// True if this build can tell threads apart.
    pub(crate) const KNOWN: bool = cfg!(any(feature = "std", lowwater_loom));

    /// Enters a scope on the calling thread, until the returned value is dropped. Has no effect
    /// without `std`.
    #[inline]
    pub fn enter() -> Self {
        #[cfg(any(feature = "std", lowwater_loom))]
        // Saturates: a leaked scope counts for as long as the thread runs.
        DEPTH.with(|depth| depth.set(depth.get().saturating_add(1)));
        Self { not_send: PhantomData }
    }

    /// Returns true if the calling thread is inside a scope. Always false without `std`.
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
