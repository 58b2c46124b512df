//! The hook, with which all links begin: the list that the object is on.
//!
//! An item names its list (its home), so a removal needs neither the group nor the node. `claim`
//! decides which of several concurrent adds wins; docs/ORDERINGS.md lists the orderings of `home`,
//! `claim` and `set_home`, which must stay.

use crate::sync::atomic::{AtomicPtr, Ordering};
use core::ptr;

/// The list that an object is on, as an opaque type that only the list's owner casts back.
#[derive(Debug)]
#[doc(hidden)]
pub struct ListHome(());

/// The list that an object is on. The references to the neighbours follow it in memory: as
/// addresses in [`Links`](super::Links), as slot numbers in
/// [`CompressedLinks`](super::CompressedLinks). The [`LinkLayout`](super::LinkLayout) of the
/// object's type determines which.
///
/// # Invariants
///
/// 1. `home` is null: the object is on no list, and `next` and `prev` are not accessed.
/// 2. `home` is a list: the object is on that list or, if that list's group died, on the list that
///    took its items over. `next` and `prev` are accessed only under the lock of the list that
///    holds the object.
/// 3. `home` is `Hook::PRIVATE`: the object is on an [`Isolated`](crate::Isolated), and only its
///    owner accesses `next` and `prev`; or on an `EagerListLru`, which does not use them.
/// 4. `home` is `Hook::CURSOR`: the links are a walk's cursor and belong to no object.
/// 5. Transitions: null -> list under that list's lock; list -> null and list -> private under the
///    lock of the list that holds the object; null -> private, private -> null and private -> list
///    (under that list's lock) by the owner of the `Isolated`; null -> private and private -> null
///    by an `EagerListLru`.
#[derive(Debug)]
pub struct Hook {
    home: AtomicPtr<ListHome>,
}

impl Hook {
    /// The home of an object on an [`Isolated`](crate::Isolated), or on an `EagerListLru`.
    pub(crate) const PRIVATE: *mut ListHome = ptr::without_provenance_mut(1);

    /// The home of a walk's cursor, which is no object's.
    const CURSOR: *mut ListHome = ptr::without_provenance_mut(2);

    pub(super) fn new() -> Self {
        Self { home: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Creates the hook of a walk's cursor.
    pub(super) fn new_cursor() -> Self {
        Self { home: AtomicPtr::new(Self::CURSOR) }
    }

    /// Returns whether this is the hook of a walk's cursor.
    #[inline]
    pub(crate) fn is_cursor(&self) -> bool {
        // Relaxed: whether a hook is a cursor's never changes.
        self.home.load(Ordering::Relaxed) == Self::CURSOR
    }

    /// Returns whether the object is on a list; an `Isolated` or `EagerListLru` counts as one. The
    /// result may be outdated when it is returned.
    #[inline]
    pub fn is_linked(&self) -> bool {
        // Relaxed: a result that may be outdated orders nothing.
        !self.home.load(Ordering::Relaxed).is_null()
    }

    /// Returns the list to which the object was added; null if it is on none.
    #[inline]
    pub(crate) fn home(&self) -> *mut ListHome {
        // Acquire: pairs with the Release in `claim` and in `set_home`, so that the contents of the
        // list are visible.
        self.home.load(Ordering::Acquire)
    }

    /// Sets the home to `home` if the object is on no list, and returns whether it was on none.
    /// `unique`: no other thread can reach the object.
    #[inline]
    pub(crate) fn claim(&self, home: *mut ListHome, unique: bool) -> bool {
        if unique {
            let is_free = !self.is_linked();
            if is_free {
                self.set_home(home);
            }
            return is_free;
        }
        // Acquire: pairs with the Release in `set_home` of the thread that unlinked the object
        // last, so that its writes to `next` and `prev` are visible. Release: pairs with the
        // Acquire in `home`. Relaxed on failure: nothing was taken.
        let success = if crate::mutated!("claim_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
        self.home.compare_exchange(ptr::null_mut(), home, success, Ordering::Relaxed).is_ok()
    }

    /// Sets the home unconditionally: null or [`Hook::PRIVATE`] when the object leaves its list, or
    /// a list for an object that only the caller can reach (invariant 5).
    #[inline]
    pub(crate) fn set_home(&self, home: *mut ListHome) {
        // Release: pairs with the Acquire in `claim` and, for a list, with that in `home`.
        self.home.store(home, if crate::mutated!("unlink_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }
}
