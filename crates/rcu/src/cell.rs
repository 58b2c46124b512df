//! A cell with a value that readers read without a lock while other threads replace it.
//!
//! Readers of the ghost table and of other replaceable tables must not write a shared cache line,
//! so neither a lock nor an `Arc` count is possible. A change must ensure that a value is retired
//! exactly once, by the thread that took it out of the cell. docs/ORDERINGS.md lists the model
//! checks of the orderings.

use crate::fallible::try_box;
use crate::guard::Guard;
use crate::retired::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::boxed::Box;
use core::fmt;
use core::ptr;

#[cfg(test)]
mod tests;

/// A value, or none, that is read without a lock and replaced as a whole.
///
/// A reader holds a [`Guard`] and writes no shared memory. A replaced value is dropped after every
/// reader that may still hold a reference has dropped its guard. With `membarrier` the thread that
/// replaced the value tries this when it drops its own last guard; if other readers are still
/// inside then, the value waits for a later collection: the next replacement in any cell, a full
/// batch of other retired objects, or a flush.
///
/// ```
/// use lowwater_rcu::{pin, RcuCell};
///
/// let limits = RcuCell::new();
/// let guard = pin();
/// assert!(limits.load(&guard).is_none());
/// assert!(limits.replace(None, vec![1, 2], &guard));
/// let there = limits.load(&guard);
/// assert!(limits.replace(there, vec![3], &guard));
/// assert_eq!((there.unwrap(), limits.load(&guard).unwrap()), (&vec![1, 2], &vec![3]));
/// ```
///
/// The drop of the cell drops its value at once: references to it borrow the cell, so there are no
/// readers. A replaced value may be dropped later, on any thread. So a type that holds an
/// `RcuCell<T>` repeats the bounds of `T`.
#[doc(alias = "__rcu")]
pub struct RcuCell<T: Send + Sync + 'static> {
    held: AtomicPtr<RcuBox<T>>,
}

/// A value of a cell behind its header, in one allocation.
#[repr(C)]
struct RcuBox<T> {
    // The first field, so that a pointer to it is also one to the whole.
    head: RcuHead,
    value: T,
    /// Never changes; an `UnsafeCell` only so that a model check detects a read before publication.
    #[cfg(lowwater_loom)]
    made: UnsafeCell<()>,
}

/// The type-erased header of a value: its link in the retire queue, and its free function.
#[doc(alias = "rcu_head")]
struct RcuHead {
    /// The link in the queue of retired objects.
    retired: UnsafeCell<*mut RcuHead>,
    /// [`RcuBox::free`] of the value's type.
    free: unsafe fn(*mut RcuHead),
    #[cfg(lowwater_loom)]
    unread: unsafe fn(*mut RcuHead),
}

// SAFETY: the header is part of a value that is `Send` (a bound of `RcuCell`); `retired` is used
// only by the queue that owns it.
unsafe impl Send for RcuHead {}

// SAFETY: `kind` returns one static, and no other code uses the link of a retired header.
unsafe impl Retired for RcuHead {
    /// A value may be large, such as a table.
    const IS_LARGE: bool = true;

    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<RcuHead>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: the object is live (clause of `Retired::free`).
        let free = unsafe { (*this).free };
        // SAFETY: `free` was stored for the type of this box when it was created, and no reader
        // uses it any more (clause of `Retired::free`).
        unsafe { free(this) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: the object is live (clause of `Retired::assert_unread`).
        let unread = unsafe { (*this).unread };
        // SAFETY: `unread` was stored for the type of this box when it was created, and the caller
        // alone has it (clause of `Retired::assert_unread`).
        unsafe { unread(this) };
    }
}

impl<T> RcuBox<T> {
    /// Drops the value, and frees the box that contains this header.
    ///
    /// # Safety
    ///
    /// `this` is the header of a box of this type, and no thread uses it any more.
    unsafe fn free(this: *mut RcuHead) {
        // SAFETY: `this` came from a box of this type, and no thread uses it any more (this
        // function's clause).
        drop(unsafe { Box::from_raw(this.cast::<Self>()) });
    }

    /// Makes loom report a reader that still accesses the value.
    ///
    /// # Safety
    ///
    /// The clause of [`free`](Self::free), and the box is not freed yet.
    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut RcuHead) {
        // SAFETY: `this` is the header of a box of this type that is not freed yet (this function's
        // clause).
        unsafe { &*this.cast::<Self>() }.made.with_mut(|_| ());
    }
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Creates an empty cell.
    pub fn new() -> Self {
        Self { held: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value, for as long as the guard lives. O(1), takes no lock, writes nothing.
    #[doc(alias = "rcu_dereference")]
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // Acquire: pairs with the Release in `replace`, so that the contents of the value are
        // visible.
        let held = self.held.load(Ordering::Acquire);
        // SAFETY: a value that is loaded in the read side is not freed before the guard is dropped,
        // nor before this cell is dropped.
        let held = unsafe { held.as_ref() }?;
        #[cfg(lowwater_loom)]
        held.made.with(|_| ());
        Some(&held.value)
    }

    /// Replaces `there`, the value that the caller has [loaded](Self::load) before (or none), by
    /// `by`. Returns false, and drops `by`, if another thread changed the cell meanwhile, or if
    /// there is no memory.
    #[doc(alias = "rcu_assign_pointer")]
    pub fn replace(&self, there: Option<&T>, by: T, guard: &Guard) -> bool {
        let by = RcuBox {
            head: RcuHead {
                retired: UnsafeCell::new(ptr::null_mut()),
                free: RcuBox::<T>::free,
                #[cfg(lowwater_loom)]
                unread: RcuBox::<T>::assert_unread,
            },
            value: by,
            #[cfg(lowwater_loom)]
            made: UnsafeCell::new(()),
        };
        let Some(by) = try_box(by).map(Box::into_raw) else { return false };
        // Relaxed: the pointer is only compared.
        let old = self.held.load(Ordering::Relaxed);
        // SAFETY: a value loaded in the read side is not freed before the guard is dropped; only
        // the address of a field is computed.
        let value = (!old.is_null()).then(|| unsafe { &raw const (*old).value });
        // AcqRel: Release pairs with the Acquire in `load` and in `clear`; Acquire is for the
        // header of the old value. The caller has loaded `there`, but the address of a value of
        // size 0 may be that of another object.
        let success = if crate::mutated!("cell_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
        let is_it = value == there.map(ptr::from_ref)
            && self.held.compare_exchange(old, by, success, Ordering::Relaxed).is_ok();
        if is_it {
            Self::retire(old, guard);
        } else {
            // SAFETY: the pointer came from a box just now, and was not published.
            drop(unsafe { Box::from_raw(by) });
        }
        is_it
    }

    /// Removes the value, if there is one, and drops it after its grace period.
    pub fn clear(&self, guard: &Guard) {
        // Acquire: pairs with the Release in `replace`, since retiring writes to the value's
        // header.
        let ordering = if crate::mutated!("clear_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        Self::retire(self.held.swap(ptr::null_mut(), ordering), guard);
    }

    /// Retires a value that was taken out of the cell, unless it is null.
    fn retire(old: *mut RcuBox<T>, guard: &Guard) {
        if !old.is_null() {
            // SAFETY: the value came from a box, of which the header is the first part. Readers
            // that pin from now on do not find it, and only the thread that took it out of the cell
            // retires it, once.
            unsafe { guard.retire(old.cast::<RcuHead>()) };
        }
    }
}

impl<T: Send + Sync + 'static> Default for RcuCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self`, so no other thread has access.
        let held = self.held.swap(ptr::null_mut(), Ordering::Relaxed);
        if !held.is_null() {
            // SAFETY: the value came from a box, and readers' references borrow this cell, so none
            // exist.
            drop(unsafe { Box::from_raw(held) });
        }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCell").field(&self.load(&crate::guard::pin())).finish()
    }
}
