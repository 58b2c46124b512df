//! Model checks: loom's locks and atomics under parking_lot's shape.
//!
//! `Arc` is the ordinary one here too: loom's cannot hold a `dyn Trait`, and its counting is not what we check.

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

/// Is a failed model check being unwound? Then loom may not be called any more, and destructors leave things as they are; a
/// second panic would abort the twin tests that are meant to fail.
pub fn unwinding() -> bool {
    std::thread::panicking()
}

/// [`loom::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(::loom::sync::Mutex<T>);

/// The right to what a [`Mutex`] holds.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<::loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Makes a mutex around `value`.
    pub fn new(value: T) -> Self {
        Self(::loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("loom mutexes are not poisoned")))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|g| MutexGuard(Some(g)))
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("loom mutexes are not poisoned")
    }

    /// The value, by the right of the only owner.
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

/// The right to read what an [`RwLock`] holds.
pub type RwLockReadGuard<'a, T> = ::loom::sync::RwLockReadGuard<'a, T>;
/// The right to change what an [`RwLock`] holds.
pub type RwLockWriteGuard<'a, T> = ::loom::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// Makes a lock around `value`.
    pub fn new(value: T) -> Self {
        Self(::loom::sync::RwLock::new(value))
    }

    /// Waits for the right to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect("loom locks are not poisoned")
    }

    /// Waits for the right to change.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("loom locks are not poisoned")
    }
}

/// [`loom::sync::Condvar`] with a guard that stays in the caller's hand.
#[derive(Debug, Default)]
pub struct Condvar(::loom::sync::Condvar);

impl Condvar {
    /// Makes a condition variable.
    pub fn new() -> Self {
        Self(::loom::sync::Condvar::new())
    }

    /// Gives the lock back, waits to be told, and takes it again.
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

    /// A lock without data, over loom's mutex: the guard is kept in the lock itself between `lock` and `unlock`.
    pub struct RawLock {
        // Before `inner`, so that a guard left behind is dropped before its mutex.
        guard: UnsafeCell<Option<::loom::sync::MutexGuard<'static, ()>>>,
        inner: alloc::boxed::Box<::loom::sync::Mutex<()>>,
    }

    // SAFETY: `guard` is touched only by the holder of `inner`, and model threads share one OS thread.
    unsafe impl Send for RawLock {}
    // SAFETY: as for Send.
    unsafe impl Sync for RawLock {}

    impl Default for RawLock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl RawLock {
        /// Makes an unlocked lock.
        pub fn new() -> Self {
            Self { guard: UnsafeCell::new(None), inner: alloc::boxed::Box::new(::loom::sync::Mutex::new(())) }
        }

        /// Waits for the lock and takes it.
        pub fn lock(&self) {
            self.keep(self.inner.lock().expect("loom mutexes are not poisoned"));
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> bool {
            self.inner.try_lock().map(|guard| self.keep(guard)).is_ok()
        }

        fn keep(&self, guard: ::loom::sync::MutexGuard<'_, ()>) {
            // SAFETY: only the lifetime changes; the mutex is boxed and is dropped after the guard (field order).
            let guard = unsafe {
                core::mem::transmute::<::loom::sync::MutexGuard<'_, ()>, ::loom::sync::MutexGuard<'static, ()>>(guard)
            };
            // SAFETY: we hold `inner`, so nobody else touches `guard`.
            unsafe { *self.guard.get() = Some(guard) };
        }

        /// Gives the lock back.
        ///
        /// # Safety
        ///
        /// The caller holds the lock.
        pub unsafe fn unlock(&self) {
            // SAFETY: the caller holds `inner`, so nobody else touches `guard`.
            let guard = unsafe { (*self.guard.get()).take() };
            if super::unwinding() {
                core::mem::forget(guard);
            }
        }
    }
}
