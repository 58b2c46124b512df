//! Iteration over the objects of a chain.
//!
//! A found object may leave the table while it is used; the reader, a thread inside a read-side
//! section, keeps it alive (invariant 4 of `hash_chains.rs`).
//!
//! A change must ensure that each `next` is read while the reader is inside.

use super::hash_link::{untagged, HashNode};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// An object that a reader found. It may have left the table since.
pub struct Found<'g, T> {
    /// The pointer as inserted: its provenance includes the counts of the `Arc`, in front of the
    /// object, which a reference's does not.
    pub(super) raw: NonNull<T>,
    reader: PhantomData<&'g T>,
}

// SAFETY: a `Found` is a shared reference for as long as the reader is inside, and can produce an
// `Arc<T>`; both are Send as T is Send and Sync.
unsafe impl<T: Send + Sync> Send for Found<'_, T> {}
// SAFETY: shared access gives `&T` and `Arc<T>` only, which may be shared as T is Send and Sync.
unsafe impl<T: Send + Sync> Sync for Found<'_, T> {}

/// An iterator over the objects of one chain.
///
/// The type is invariant in `T`, so that the iterator does not become one over a supertype, whose
/// link may be another field. A reference may:
///
/// ```
/// # use core::marker::PhantomData;
/// # use lowwater_store::{hash_chains::{ChainIter, HashLink}, hash_node};
/// # struct Node<F> {
/// #     link: HashLink<Node<Any>>,
/// #     other_link: HashLink<Node<One>>,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # hash_node!(impl[] for Node<Any> { link });
/// # hash_node!(impl[] for Node<One> { other_link });
/// fn shorten(any: &Node<Any>) -> &Node<One> {
///     any
/// }
/// fn keep<'g>(any: ChainIter<'g, Node<Any>>) -> ChainIter<'g, Node<Any>> {
///     any
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use core::marker::PhantomData;
/// # use lowwater_store::{hash_chains::{ChainIter, HashLink}, hash_node};
/// # struct Node<F> {
/// #     link: HashLink<Node<Any>>,
/// #     other_link: HashLink<Node<One>>,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # hash_node!(impl[] for Node<Any> { link });
/// # hash_node!(impl[] for Node<One> { other_link });
/// fn shorten<'g>(any: ChainIter<'g, Node<Any>>) -> ChainIter<'g, Node<One>> {
///     any // error: one type is more general than the other
/// }
/// ```
pub struct ChainIter<'g, T> {
    /// The object that the next step returns; it was read ahead.
    next: Option<Found<'g, T>>,
    invariant: PhantomData<fn(T) -> T>,
}

impl<'g, T> ChainIter<'g, T> {
    #[inline]
    pub(super) fn new(first: Option<Found<'g, T>>) -> Self {
        Self { next: first, invariant: PhantomData }
    }
}

impl<'g, T: HashNode> Iterator for ChainIter<'g, T> {
    type Item = Found<'g, T>;

    #[inline]
    fn next(&mut self) -> Option<Found<'g, T>> {
        let here = self.next.take()?;
        // SAFETY: the reader reached `here` while inside, so the object named by its `next` has not
        // been freed (invariant 4).
        self.next = unsafe { follow(&here.get().link().next) };
        Some(here)
    }
}

impl<T> fmt::Debug for ChainIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainIter").finish_non_exhaustive()
    }
}

/// Returns the object that a head or a `next` names.
///
/// # Safety
///
/// The thread is in the read side for all of `'g`, and `from` is a head, or the `next` of an object
/// that the thread reached in this read-side section.
#[inline]
pub(super) unsafe fn follow<'g, T: HashNode>(from: &AtomicPtr<T>) -> Option<Found<'g, T>> {
    // Acquire: pairs with the Release in `insert` and in `leave`.
    let raw = NonNull::new(untagged(from.load(Ordering::Acquire)))?;
    // By invariant 4 the chain's count is not dropped while the reader is inside.
    let found = Found { raw, reader: PhantomData };
    #[cfg(lowwater_loom)]
    found.get().link().seen.with(|_| ());
    Some(found)
}

impl<'g, T> Found<'g, T> {
    #[inline]
    pub(super) fn object(&self) -> &'g T {
        // SAFETY: the chain had a count on the object when the reader reached the object, and drops
        // that count after the reader has left (invariant 4).
        unsafe { self.raw.as_ref() }
    }
}

impl<'g, T: HashNode> Found<'g, T> {
    /// Returns the object, for as long as the reader is inside.
    #[inline]
    pub fn get(&self) -> &'g T {
        self.object()
    }

    /// Returns an `Arc` on the object, for use after the reader has left. Costs one atomic
    /// increment.
    #[inline]
    pub fn to_arc(&self) -> Arc<T> {
        let raw = self.raw.as_ptr().cast_const();
        // SAFETY: the pointer came from `Arc::into_raw`, and by invariants 3 and 4 the table's
        // count on it is not dropped while the reader is inside.
        unsafe { Arc::increment_strong_count(raw) };
        // SAFETY: this takes ownership of the count that was just added.
        unsafe { Arc::from_raw(raw) }
    }
}

impl<T> Deref for Found<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.object()
    }
}

impl<T> fmt::Debug for Found<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}
