//! Model checks: loom's locks and atomics with parking_lot's interface.
//!
//! `Arc` is the ordinary one here, too: loom's cannot hold a `dyn Trait`, and its counting is not
//! under test.
//!
//! Each function must behave as the one of the same name in `std.rs` and `core.rs`; otherwise a
//! model check proves nothing about the real builds.

pub use ::loom::hint::spin_loop;
pub use ::loom::thread;
pub use ::loom::thread::yield_now;
pub use alloc::sync::{Arc, Weak};

extern crate std;

use core::ops::{Deref, DerefMut};

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use ::loom::sync::atomic::*;
}

/// Returns whether a failed model check is unwinding. Then loom must not be called any more, and
/// destructors leave things as they are; a second panic would abort the tests that are meant to
/// fail.
pub fn unwinding() -> bool {
    std::thread::panicking()
}

/// [`loom::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(::loom::sync::Mutex<T>);

/// A guard that gives access to the value of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<::loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Creates a mutex that contains `value`.
    pub fn new(value: T) -> Self {
        Self(::loom::sync::Mutex::new(value))
    }

    /// Takes the lock, waiting if necessary.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("loom mutexes are not poisoned")))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|g| MutexGuard(Some(g)))
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("loom mutexes are not poisoned")
    }

    /// Returns the value, without locking since the borrow is unique.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("loom mutexes are not poisoned")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard is empty only while its condvar waits")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if unwinding() {
            core::mem::forget(self.0.take());
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard is empty only while its condvar waits")
    }
}

/// [`loom::sync::RwLock`] without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(::loom::sync::RwLock<T>);

/// A guard that gives read access to the value of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = ::loom::sync::RwLockReadGuard<'a, T>;
/// A guard that gives write access to the value of an [`RwLock`].
pub type RwLockWriteGuard<'a, T> = ::loom::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// Creates a lock that contains `value`.
    pub fn new(value: T) -> Self {
        Self(::loom::sync::RwLock::new(value))
    }

    /// Takes the lock for reading, waiting if necessary.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect("loom locks are not poisoned")
    }

    /// Takes the lock for writing, waiting if necessary.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("loom locks are not poisoned")
    }
}

/// [`loom::sync::Condvar`] that takes the guard by reference.
#[derive(Debug, Default)]
pub struct Condvar(::loom::sync::Condvar);

impl Condvar {
    /// Creates a condition variable.
    pub fn new() -> Self {
        Self(::loom::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("a guard is empty only while its condvar waits");
        guard.0 = Some(self.0.wait(inner).expect("loom mutexes are not poisoned"));
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[doc(hidden)]
pub mod raw {
    use core::cell::UnsafeCell;

    /// A lock without data, over loom's mutex: between `lock` and `unlock` the guard is stored in
    /// the lock itself.
    pub struct RawLock {
        // Declared before `inner`, so that a remaining guard is dropped before its mutex.
        guard: UnsafeCell<Option<::loom::sync::MutexGuard<'static, ()>>>,
        inner: alloc::boxed::Box<::loom::sync::Mutex<()>>,
    }

    // SAFETY: only the holder of `inner` accesses `guard`, and model threads share one OS thread.
    unsafe impl Send for RawLock {}
    // SAFETY: only the holder of `inner` accesses `guard`, and model threads share one OS thread.
    unsafe impl Sync for RawLock {}

    impl Default for RawLock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl RawLock {
        /// Creates an unlocked lock.
        pub fn new() -> Self {
            Self { guard: UnsafeCell::new(None), inner: alloc::boxed::Box::new(::loom::sync::Mutex::new(())) }
        }

        /// Takes the lock, waiting if necessary.
        pub fn lock(&self) {
            self.keep(self.inner.lock().expect("loom mutexes are not poisoned"));
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> bool {
            self.inner.try_lock().map(|guard| self.keep(guard)).is_ok()
        }

        fn keep(&self, guard: ::loom::sync::MutexGuard<'_, ()>) {
            // SAFETY: only the lifetime changes; the mutex is boxed and is dropped after the guard
            // (field order).
            let guard = unsafe {
                core::mem::transmute::<::loom::sync::MutexGuard<'_, ()>, ::loom::sync::MutexGuard<'static, ()>>(guard)
            };
            // SAFETY: this thread holds `inner`, so no other thread accesses `guard`.
            unsafe { *self.guard.get() = Some(guard) };
        }

        /// Releases the lock.
        ///
        /// # Safety
        ///
        /// The caller holds the lock.
        pub unsafe fn unlock(&self) {
            // SAFETY: the caller holds `inner` (this function's clause), so no other thread
            // accesses `guard`.
            let guard = unsafe { (*self.guard.get()).take() };
            if super::unwinding() {
                core::mem::forget(guard);
            }
        }
    }
}
