//! A pointer that readers follow without a lock, and that somebody else may change at any time.

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

/// A value that is read without a lock, and replaced as a whole; or none.
///
/// A reader holds a [`Guard`] and writes no shared memory. A replaced value is dropped when every
/// reader that may still hold a reference has dropped its guard: by the thread that replaced it, as
/// soon as that thread holds no guard; or, if other readers are inside then, when a thread next
/// retires something.
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
#[doc(alias = "__rcu")]
pub struct RcuCell<T: Send + Sync + 'static> {
    held: AtomicPtr<RcuBox<T>>,
}

/// A value behind its head.
#[repr(C)]
struct RcuBox<T> {
    // First, so that a pointer to it is one to the whole.
    head: RcuHead,
    value: T,
    /// Never changes: so that a model check sees who comes before it is published.
    #[cfg(lowwater_loom)]
    made: UnsafeCell<()>,
}

/// The head of a value of any type: the link by which it waits, and how it is freed.
#[doc(alias = "rcu_head")]
struct RcuHead {
    retired: UnsafeCell<*mut RcuHead>,
    free: unsafe fn(*mut RcuHead),
    #[cfg(lowwater_loom)]
    unread: unsafe fn(*mut RcuHead),
}

// SAFETY: it is a part of a value that is Send (a bound of `RcuCell`); `retired` is used only by the queue that owns it.
unsafe impl Send for RcuHead {}

// SAFETY: one static, and a link of its own.
unsafe impl Retired for RcuHead {
    /// A table may be a large part of what a process has.
    const IS_LARGE: bool = true;

    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<RcuHead>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: it is live, says the caller.
        let free = unsafe { (*this).free };
        // SAFETY: it was made with this, and no reader sees it, says the caller.
        unsafe { free(this) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: it is live, says the caller.
        let unread = unsafe { (*this).unread };
        // SAFETY: it was made with this, and the caller alone has it.
        unsafe { unread(this) };
    }
}

impl<T> RcuBox<T> {
    /// # Safety
    ///
    /// `this` is the first part of a box of this type, and nobody uses it any more.
    unsafe fn free(this: *mut RcuHead) {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(this.cast::<Self>()) });
    }

    /// # Safety
    ///
    /// As for [`free`](Self::free), and it is not freed yet.
    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut RcuHead) {
        // SAFETY: as the caller says.
        unsafe { &*this.cast::<Self>() }.made.with_mut(|_| ());
    }
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Nothing.
    pub fn new() -> Self {
        Self { held: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value, as long as the guard is there. O(1), no lock, nothing written.
    #[doc(alias = "rcu_dereference")]
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // Acquire: meets the Release in `replace`, so that the value is seen as it was made.
        let held = self.held.load(Ordering::Acquire);
        // SAFETY: what is here is not freed in the read side, nor before this cell ends.
        let held = unsafe { held.as_ref() }?;
        #[cfg(lowwater_loom)]
        held.made.with(|_| ());
        Some(&held.value)
    }

    /// Puts a value in the place of the one that was loaded, or of none. False if somebody was faster, or there is no memory: then the value
    /// is dropped.
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
        // Relaxed: it is only compared.
        let old = self.held.load(Ordering::Relaxed);
        // SAFETY: as in `load`; nothing is read.
        let value = (!old.is_null()).then(|| unsafe { &raw const (*old).value });
        // Release: meets the Acquire in `load`, and in `clear`. Who is replaced was loaded, so it is known as it was made.
        let success = if crate::mutated!("cell_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        let is_it = value == there.map(ptr::from_ref)
            && self.held.compare_exchange(old, by, success, Ordering::Relaxed).is_ok();
        if is_it {
            Self::retire(old, guard);
        } else {
            // SAFETY: it came from a box just now, and nobody saw it.
            drop(unsafe { Box::from_raw(by) });
        }
        is_it
    }

    /// Leaves nothing.
    pub fn clear(&self, guard: &Guard) {
        // Acquire: meets the Release in `replace`, as what is retired is written to.
        let ordering = if crate::mutated!("clear_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        Self::retire(self.held.swap(ptr::null_mut(), ordering), guard);
    }

    /// What this cell does not have any more, or null.
    fn retire(old: *mut RcuBox<T>, guard: &Guard) {
        if !old.is_null() {
            // SAFETY: it came from a box, whose first part this is; who comes into the read side from now on does not find it, and whoever
            // took it out does this, once.
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
        // Relaxed: nobody else has access.
        let held = self.held.swap(ptr::null_mut(), Ordering::Relaxed);
        if !held.is_null() {
            // SAFETY: it came from a box, and readers' references borrow this cell.
            drop(unsafe { Box::from_raw(held) });
        }
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCell").field(&self.load(&crate::guard::pin())).finish()
    }
}
