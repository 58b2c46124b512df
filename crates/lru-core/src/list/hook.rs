//! What all links begin with: which list the object is on.

use crate::sync::atomic::{AtomicPtr, Ordering};
use core::ptr;

/// The list that an object is on, as its hook names it: an opaque type, which only the owner of the list casts back.
#[derive(Debug)]
#[doc(hidden)]
pub struct ListHome(());

/// Which list an object is on. What is before it and behind it there comes after this in memory: addresses in [`Links`](super::Links),
/// numbers in [`CompressedLinks`](super::CompressedLinks), as the [`LinkLayout`](super::LinkLayout) of its kind says.
///
/// # Invariants
///
/// 1. `home` is null: the object is on no list, and nobody touches `next` and `prev`.
/// 2. `home` is a list: the object is on that list, or, if that list's group died, on the list that took its items over.
///    `next` and `prev` are touched only under the lock of the list that holds it.
/// 3. `home` is `Hook::PRIVATE`: the object is on an [`Isolated`](crate::Isolated), whose owner alone touches `next` and `prev`.
/// 4. `home` is the mark of a walk: these are no object's.
/// 5. null -> list happens under that list's lock; list -> null or private under the lock of the list that holds it;
///    null -> private, private -> null and private -> list (under that list's lock) by the owner of the `Isolated`.
#[derive(Debug)]
pub struct Hook {
    home: AtomicPtr<ListHome>,
}

impl Hook {
    /// On nobody's list but an [`Isolated`](crate::Isolated).
    pub(crate) const PRIVATE: *mut ListHome = ptr::without_provenance_mut(1);

    /// Not an object's: the mark that a walk leaves between the items.
    const MARK: *mut ListHome = ptr::without_provenance_mut(2);

    pub(super) fn new() -> Self {
        Self { home: AtomicPtr::new(ptr::null_mut()) }
    }

    /// A mark of where a walk goes on.
    pub(super) fn new_mark() -> Self {
        Self { home: AtomicPtr::new(Self::MARK) }
    }

    /// Does this mark where a walk goes on?
    #[inline]
    pub(crate) fn is_mark(&self) -> bool {
        // Relaxed: a mark is one from the beginning to its end.
        self.home.load(Ordering::Relaxed) == Self::MARK
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
    pub(crate) fn home(&self) -> *mut ListHome {
        // Acquire: meets the Release in `claim`, so that the list behind the pointer is seen as it was made.
        self.home.load(Ordering::Acquire)
    }

    /// Takes the object for `home`, if it is on no list. `unique`: the caller alone can reach the object.
    #[inline]
    pub(crate) fn claim(&self, home: *mut ListHome, unique: bool) -> bool {
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

    /// Says that the object left its list, for null or for [`Hook::PRIVATE`] (invariant 5).
    #[inline]
    pub(crate) fn set_home(&self, home: *mut ListHome) {
        // Release: meets the Acquire in `claim`.
        self.home.store(home, if crate::mutated!("unlink_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }
}
