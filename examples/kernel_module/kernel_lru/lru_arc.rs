// SPDX-License-Identifier: GPL-2.0

//! Shared handles on the objects of a [`ListLru`](super::ListLru).
//!
//! A handle counts a reference, as the kernel's `Arc` does, but its object is in a `kmem_cache`
//! that charges it to a memory control group, which `list_lru` needs. A change must ensure that the
//! last handle frees the object.

use super::list_lru::Inner;
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};
use kernel::{bindings, container_of, sync::Arc, types::Opaque};

/// An object and the state by which lists own it.
///
/// # Invariants
///
/// 1. `links` are initialized, and are on a list exactly while one of `inner`'s lists owns the
///    object. They are accessed under that list's lock.
/// 2. While `is_linked`, a list or an [`Isolated`](super::Isolated) owns one reference.
/// 3. `next` belongs to the `Isolated` that owns the object, if one does.
pub(super) struct LruItem<T> {
    links: Opaque<bindings::list_head>,
    pub(super) next: UnsafeCell<Option<NonNull<LruItem<T>>>>,
    is_linked: AtomicBool,
    refcount: Opaque<bindings::refcount_t>,
    pub(super) inner: Arc<Inner<T>>,
    value: T,
}

impl<T> LruItem<T> {
    /// Returns the place of the value in the memory for an object.
    #[inline]
    pub(super) fn value_at(at: NonNull<Self>) -> *mut T {
        let offset = core::mem::offset_of!(Self, value);
        at.as_ptr().cast::<u8>().wrapping_add(offset).cast()
    }

    /// Writes all but the value of a new object with one reference, which is on no list.
    ///
    /// # Safety
    ///
    /// `at` is memory for an object of the slab cache of `inner`, and its value is initialized.
    pub(super) unsafe fn write(at: NonNull<Self>, inner: Arc<Inner<T>>) {
        // SAFETY: `REFCOUNT_INIT` has no requirements.
        let refcount = unsafe { bindings::REFCOUNT_INIT(1) };
        let links: *mut bindings::list_head = Self::links(at);
        let empty = bindings::list_head {
            next: links,
            prev: links,
        };
        let item = at.as_ptr();
        // INVARIANT: The links are an empty list, and `is_linked` is false.
        // SAFETY: By the safety requirements, `at` is memory for an object.
        unsafe {
            (&raw mut (*item).links).write(Opaque::new(empty));
            (&raw mut (*item).next).write(UnsafeCell::new(None));
            (&raw mut (*item).is_linked).write(AtomicBool::new(false));
            (&raw mut (*item).refcount).write(Opaque::new(refcount));
            (&raw mut (*item).inner).write(inner);
        }
    }

    /// Returns the links of an object.
    #[inline]
    pub(super) fn links(at: NonNull<Self>) -> *mut bindings::list_head {
        let offset = core::mem::offset_of!(Self, links);
        at.as_ptr().cast::<u8>().wrapping_add(offset).cast()
    }

    /// Returns the object that has these links.
    ///
    /// # Safety
    ///
    /// The links are those of a `LruItem<T>`.
    #[inline]
    pub(super) unsafe fn from_links(links: *mut bindings::list_head) -> NonNull<Self> {
        let links: *mut Opaque<bindings::list_head> = links.cast();
        // SAFETY: By the safety requirements, the links are inside a `LruItem<T>`.
        let item = unsafe { container_of!(links, Self, links) };
        // SAFETY: A pointer to the inside of an object is not null.
        unsafe { NonNull::new_unchecked(item.cast_mut()) }
    }

    /// Claims the object for a list, and returns whether nothing owned it before: no list and no
    /// `Isolated`.
    #[inline]
    pub(super) fn claim(&self) -> bool {
        // Acquire: pairs with `unclaim`, so that the links are seen as the last list left them.
        let was =
            self.is_linked
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        was.is_ok()
    }

    /// Ends a claim: the caller takes over the reference of the list or `Isolated`.
    #[inline]
    pub(super) fn unclaim(&self) {
        // Release: pairs with `claim`.
        self.is_linked.store(false, Ordering::Release);
    }

    /// Returns the value.
    #[inline]
    pub(super) fn value(&self) -> &T {
        &self.value
    }
}

/// A shared handle on an object of a [`ListLru`](super::ListLru).
///
/// It comes from [`ListLru::alloc`](super::ListLru::alloc). A list that holds the object owns one
/// handle. The object is pinned: it never moves, and no handle gives `&mut T`.
///
/// The last handle frees the object; after the `ListLru` itself was dropped, the last handle on any
/// of its objects also destroys the slab cache, and may sleep.
///
/// # Invariants
///
/// The handle owns one reference of a live object.
pub(crate) struct LruArc<T>(NonNull<LruItem<T>>);

// SAFETY: The handle gives `&T` to the thread that has it, and drops `T` on the thread that drops
// the last one, as `Arc<T>` does.
unsafe impl<T: Send + Sync> Send for LruArc<T> {}
// SAFETY: `&LruArc<T>` gives `&T` and further handles, as `&Arc<T>` does.
unsafe impl<T: Send + Sync> Sync for LruArc<T> {}

impl<T> LruArc<T> {
    /// Converts a reference of an object to a handle.
    ///
    /// # Safety
    ///
    /// The object is alive, and the caller has a reference of it, which the handle takes over.
    #[inline]
    pub(super) unsafe fn from_item(item: NonNull<LruItem<T>>) -> Self {
        // INVARIANT: By the safety requirements, the caller's reference becomes the handle's.
        Self(item)
    }

    /// Converts the handle to the reference that it owns.
    #[inline]
    pub(super) fn into_item(self) -> NonNull<LruItem<T>> {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Returns the pointer to the object for a further handle: a pointer from a reference must not
    /// be written through.
    #[inline]
    pub(super) fn as_item(&self) -> NonNull<LruItem<T>> {
        self.0
    }

    /// Returns the object.
    #[inline]
    pub(super) fn item(&self) -> &LruItem<T> {
        // SAFETY: By the type invariant, the object is alive.
        unsafe { self.0.as_ref() }
    }

    /// Returns whether both are handles on the same object.
    pub(crate) fn ptr_eq(a: &Self, b: &Self) -> bool {
        a.0 == b.0
    }
}

impl<T> Deref for LruArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.item().value()
    }
}

impl<T> Clone for LruArc<T> {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant, the count is above zero.
        unsafe { bindings::refcount_inc(self.item().refcount.get()) };
        // INVARIANT: The reference was counted above.
        Self(self.0)
    }
}

impl<T> Drop for LruArc<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, one reference is ours.
        if !unsafe { bindings::refcount_dec_and_test(self.item().refcount.get()) } {
            return;
        }
        let item = self.0.as_ptr();
        // SAFETY: It was the last reference, so the object is ours; its `inner` is read once.
        let inner = unsafe { ptr::read(&raw const (*item).inner) };
        // SAFETY: It was the last reference, and the value is not used after this.
        unsafe { ptr::drop_in_place(&raw mut (*item).value) };
        // SAFETY: Only `ListLru::alloc` makes objects, in the slab cache of their `inner`. The
        // object is on no list, since a list would own a reference.
        unsafe { inner.slab.free(self.0) };
    }
}
