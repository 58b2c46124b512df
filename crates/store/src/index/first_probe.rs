//! The result of a first probe.
//!
//! The probe of the home bucket is separate so that a caller can inline it alone; in nearly all
//! lookups it is the only one.
//!
//! A change must ensure that `Absent` is returned only if no following bucket can have the key.

use crate::rcu::Guard;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// The result of probing the home bucket of a key, from
/// [`ExtendibleIndex::probe_first`](crate::ExtendibleIndex::probe_first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstProbe<T> {
    /// The object is in its home bucket.
    Found(T),
    /// The object is not in the index.
    Absent,
    /// One probe does not decide: the home bucket has another object with the same tag, a tag
    /// changed during the probe, or the bucket's overflow count is not zero.
    Undecided,
}

/// The result of [`ExtendibleIndex::probe_held`](crate::ExtendibleIndex::probe_held): as
/// [`FirstProbe`], with the guard of the probe.
#[doc(hidden)]
#[derive(Debug)]
pub enum HeldProbe<'i, T> {
    /// See [`FirstProbe::Found`].
    Found(Held<'i, T>),
    /// See [`FirstProbe::Absent`].
    Absent(Guard),
    /// See [`FirstProbe::Undecided`].
    Undecided(Guard),
}

/// An object of an index, and the guard that keeps the object alive: for a function that is called
/// last, and takes over both.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<'i, T> {
    object: NonNull<T>,
    guard: Guard,
    index: PhantomData<&'i T>,
}

impl<T> Held<'_, T> {
    /// # Safety
    ///
    /// The object was found under `guard`, in an index that outlives the result's lifetime.
    #[inline]
    pub(super) unsafe fn new(object: NonNull<T>, guard: Guard) -> Self {
        Self { object, guard, index: PhantomData }
    }

    /// Returns the guard, after the last use of the object.
    #[inline]
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the clause of `new`: the object is not freed while `guard` and the index exist,
        // and objects in an index are only borrowed shared.
        unsafe { self.object.as_ref() }
    }
}
