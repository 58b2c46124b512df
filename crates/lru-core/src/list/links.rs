//! What an object carries to be on a list.

use super::Handle;
use crate::list_lru::One;
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

/// The links inside an object: next, previous, and which list it is on. 24 bytes.
///
/// # Invariants
///
/// 1. `home` is null: the object is on no list, and nobody touches `next` and `prev`.
/// 2. `home` is a list: the object is on that list, or, if that list's group died, on the list that took its items over.
///    `next` and `prev` are touched only under the lock of the list that holds it.
/// 3. `home` is `Links::PRIVATE`: the object is on an [`Isolated`](crate::Isolated), whose owner alone touches `next` and `prev`.
/// 4. `home` is the mark of a walk: these are no object's.
/// 5. null -> list happens under that list's lock; list -> null or private under the lock of the list that holds it;
///    null -> private, private -> null and private -> list (under that list's lock) by the owner of the `Isolated`.
pub struct Links {
    next: UnsafeCell<*mut Links>,
    prev: UnsafeCell<*mut Links>,
    home: AtomicPtr<One>,
}

// SAFETY: `next` and `prev` are only touched by whoever invariants 1 to 3 name, one at a time; `home` is atomic.
unsafe impl Send for Links {}
// SAFETY: as for Send.
unsafe impl Sync for Links {}

impl Links {
    /// On nobody's list but an [`Isolated`](crate::Isolated).
    pub(crate) const PRIVATE: *mut One = ptr::without_provenance_mut(1);

    /// Not an object's: the mark that a walk leaves between the items.
    const MARK: *mut One = ptr::without_provenance_mut(2);

    /// Links that mark where a walk goes on.
    pub(crate) fn new_mark() -> Self {
        Self { home: AtomicPtr::new(Self::MARK), ..Self::new() }
    }

    /// Do these mark where a walk goes on?
    #[inline]
    pub(crate) fn is_mark(&self) -> bool {
        // Relaxed: a mark is one from the beginning to its end.
        self.home.load(Ordering::Relaxed) == Self::MARK
    }

    /// Links that are on no list.
    pub fn new() -> Self {
        Self {
            next: UnsafeCell::new(ptr::null_mut()),
            prev: UnsafeCell::new(ptr::null_mut()),
            home: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Is the object on a list (a private one counts)? True for no longer than it takes to ask.
    pub fn is_linked(&self) -> bool {
        // Relaxed: an answer that is old when it arrives orders nothing.
        !self.home.load(Ordering::Relaxed).is_null()
    }

    /// Is the object on a list that is not private?
    pub(crate) fn is_on_a_list(&self) -> bool {
        // Relaxed: as in `is_linked`.
        let home = self.home.load(Ordering::Relaxed);
        !home.is_null() && home != Self::PRIVATE
    }

    /// The list this object counts as added to; null when on none.
    #[inline]
    pub(crate) fn home(&self) -> *mut One {
        // Acquire: meets the Release in `claim`, so that the list behind the pointer is seen as it was made.
        self.home.load(Ordering::Acquire)
    }

    /// Takes the object for `home`, if it is on no list. `unique`: the caller alone can reach the object.
    #[inline]
    pub(crate) fn claim(&self, home: *mut One, unique: bool) -> bool {
        if unique {
            let is_free = !self.is_linked();
            if is_free {
                self.set_home(home);
            }
            return is_free;
        }
        // Acquire: meets the Release in `set_home` by whoever unlinked it last, so that their writes to next and prev are done.
        // Release: meets the Acquire in `home`. Relaxed on failure: nothing was taken.
        let success = if crate::mutated!("claim_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
        self.home.compare_exchange(ptr::null_mut(), home, success, Ordering::Relaxed).is_ok()
    }

    /// Says that the object left its list, for null or for [`Links::PRIVATE`] (invariant 5).
    #[inline]
    pub(crate) fn set_home(&self, home: *mut One) {
        // Release: meets the Acquire in `claim`.
        self.home.store(home, if crate::mutated!("unlink_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }

    /// # Safety
    ///
    /// `this` is live and the caller is the one who may touch its `next` (invariants 1 to 3).
    #[inline]
    pub(super) unsafe fn next(this: *const Self) -> *mut Links {
        // SAFETY: live, says the caller.
        let cell = unsafe { &(*this).next };
        // SAFETY: nobody else touches it, says the caller.
        cell.with(|p| unsafe { *p })
    }

    /// # Safety
    ///
    /// As for [`Links::next`], of `prev`.
    #[inline]
    pub(super) unsafe fn prev(this: *const Self) -> *mut Links {
        // SAFETY: live, says the caller.
        let cell = unsafe { &(*this).prev };
        // SAFETY: nobody else touches it, says the caller.
        cell.with(|p| unsafe { *p })
    }

    /// # Safety
    ///
    /// As for [`Links::next`].
    #[inline]
    pub(super) unsafe fn set_next(this: *const Self, to: *mut Links) {
        // SAFETY: live, says the caller.
        let cell = unsafe { &(*this).next };
        // SAFETY: nobody else touches it, says the caller.
        cell.with_mut(|p| unsafe { *p = to });
    }

    /// # Safety
    ///
    /// As for [`Links::next`], of `prev`.
    #[inline]
    pub(super) unsafe fn set_prev(this: *const Self, to: *mut Links) {
        // SAFETY: live, says the caller.
        let cell = unsafe { &(*this).prev };
        // SAFETY: nobody else touches it, says the caller.
        cell.with_mut(|p| unsafe { *p = to });
    }

    /// The links after `this` on its list.
    ///
    /// # Safety
    ///
    /// As for [`Links::next`].
    #[inline]
    pub(crate) unsafe fn after(this: *const Self) -> *mut Links {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::next(this) }
    }
}

impl Default for Links {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("linked", &self.is_linked()).finish_non_exhaustive()
    }
}

/// An object with [`Links`] inside. Do not implement it by hand: [`linked!`](crate::linked) does, without unsafe code of yours.
///
/// # Safety
///
/// `links` and `from_links` are inverse and lead to a [`Links`] that is part of the object, always the same one.
pub unsafe trait Linked: Sized {
    /// How a list owns the object: `Box<Self>` or `Arc<Self>`.
    type Handle: Handle<Target = Self>;

    /// The links of an object.
    fn links(object: NonNull<Self>) -> NonNull<Links>;

    /// The object of these links.
    ///
    /// # Safety
    ///
    /// `links` came from [`links`](Self::links) of this type.
    unsafe fn from_links(links: NonNull<Links>) -> NonNull<Self>;
}

/// Implements [`Linked`] for a type that has a field of type [`Links`].
///
/// ```
/// #![forbid(unsafe_code)]
/// use lowwater_lru_core::{linked, Links};
/// use std::sync::Arc;
///
/// struct Inode {
///     links: Links,
///     number: u64,
/// }
/// linked!(impl[] for Inode { links, handle: Arc<Inode> });
///
/// struct Entry<K: Send, V> {
///     lru: Links,
///     key: K,
///     value: V,
/// }
/// linked!(impl[K: Send, V] for Entry<K, V> { lru, handle: Box<Entry<K, V>> });
/// ```
#[macro_export]
macro_rules! linked {
    (impl[$($generics:tt)*] for $type:ty { $field:tt, handle: $handle:ty $(,)? }) => {
        // SAFETY: `links` adds the field's offset to the object's address, `from_links` takes it off again, and the
        // `as_links` line does not compile unless the field is a `Links`.
        unsafe impl<$($generics)*> $crate::Linked for $type {
            type Handle = $handle;

            #[inline]
            fn links(object: ::core::ptr::NonNull<Self>) -> ::core::ptr::NonNull<$crate::Links> {
                let _as_links: fn(&Self) -> &$crate::Links = |object| &object.$field;
                // SAFETY: the field lies inside the object.
                unsafe { object.byte_add(::core::mem::offset_of!(Self, $field)).cast() }
            }

            #[inline]
            unsafe fn from_links(links: ::core::ptr::NonNull<$crate::Links>) -> ::core::ptr::NonNull<Self> {
                // SAFETY: `links` is the field of an object, says the caller, so the object begins before it.
                unsafe { links.byte_sub(::core::mem::offset_of!(Self, $field)).cast() }
            }
        }
    };
}
