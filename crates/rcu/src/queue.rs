//! Queues of retired objects, linked through the objects themselves: retiring needs no memory.
//!
//! Objects of at most eight types (`KINDS_MAX`) are queued, one list for each type, so that a link
//! is one pointer and the free function is stored once. A change must ensure that `push` and
//! `append` neither allocate nor fail, except for the panic at a ninth type.

use crate::retired::{Retired, RetiredKind};
use core::ptr;

/// The maximum number of types of retired objects in a process. `Guard::retire` documents the
/// number, and `tests/kinds.rs` expects it.
pub const KINDS_MAX: usize = 8;

/// Retired objects of one kind, in no order.
#[derive(Clone, Copy)]
struct Queue {
    /// `None`: no object was queued here yet.
    kind: Option<&'static RetiredKind>,
    /// Null if the queue is empty.
    first: *mut (),
    len: usize,
}

#[cold]
fn too_many_kinds() -> ! {
    panic!("a process can retire objects of at most {KINDS_MAX} types (`KINDS_MAX`), and this is one more")
}

/// Retired objects of all kinds. A drop leaks the objects; [`free`](Self::free) frees them.
///
/// Queues get their kinds from the first to the last, and keep them: the first queue without a kind
/// ends a search.
pub(crate) struct Queues([Queue; KINDS_MAX]);

// SAFETY: the queues own their objects, which are `Send` (a bound of `Retired`).
unsafe impl Send for Queues {}

impl Queues {
    pub(crate) const fn new() -> Self {
        Self([Queue { kind: None, first: ptr::null_mut(), len: 0 }; KINDS_MAX])
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|queue| queue.len).sum()
    }

    /// Removes and returns all objects.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Queues an object.
    ///
    /// # Safety
    ///
    /// `object` is an object that [`Retired::free`] can free, and is retired: no other code uses
    /// its link or frees it.
    ///
    /// # Panics
    ///
    /// If there are more than [`KINDS_MAX`] kinds.
    pub(crate) unsafe fn push<T: Retired>(&mut self, object: *mut T) {
        let queue = self.of(T::kind());
        // SAFETY: `queue` is the one of `T`, and the rest is this function's clause.
        unsafe { queue.push(object.cast()) };
    }

    /// Returns the queue of a kind.
    fn of(&mut self, kind: &'static RetiredKind) -> &mut Queue {
        let is_it = |queue: &&mut Queue| queue.kind.is_none_or(|other| ptr::eq(other, kind));
        let Some(queue) = self.0.iter_mut().find(is_it) else { too_many_kinds() };
        queue.kind = Some(kind);
        queue
    }

    /// Moves all objects of `other` here. For each kind O(the shorter queue): a collection puts all
    /// waiting objects back to the few that were retired meanwhile.
    #[cfg(all(not(lowwater_loom), feature = "std"))]
    pub(crate) fn append(&mut self, mut other: Self) {
        for theirs in &mut other.0 {
            let Some(kind) = theirs.kind else { continue };
            let queue = self.of(kind);
            if queue.len < theirs.len {
                core::mem::swap(queue, theirs);
            }
            while let Some(object) = theirs.pop() {
                // SAFETY: the object was queued there as one of this kind, and was just taken out.
                unsafe { queue.push(object) };
            }
        }
    }

    /// Frees all objects. With `std` a panic of a destructor is caught; otherwise the other objects
    /// are freed during the unwinding, as with `Vec`.
    ///
    /// # Safety
    ///
    /// The grace period of each object is over.
    pub(crate) unsafe fn free(mut self) {
        struct Rest<'q>(&'q mut Queues);
        impl Drop for Rest<'_> {
            fn drop(&mut self) {
                // SAFETY: the clause of `free`, the only function that creates this.
                unsafe { self.0.free_some() };
            }
        }
        let rest = Rest(&mut self);
        // SAFETY: this function's clause is that of `free_some`.
        unsafe { rest.0.free_some() };
    }

    /// Frees objects until there is none left, or, without `std`, until a destructor panics.
    ///
    /// # Safety
    ///
    /// The grace period of each object is over.
    unsafe fn free_some(&mut self) {
        for queue in &mut self.0 {
            let Some(kind) = queue.kind else { continue };
            while let Some(object) = queue.pop() {
                #[cfg(lowwater_loom)]
                // SAFETY: the object is of this kind and retired, and no reader uses it (this
                // function's clause).
                unsafe {
                    (kind.assert_unread)(object);
                };
                let free = || {
                    // SAFETY: the object was queued once as one of this kind and was just taken
                    // out; its grace period is over (this function's clause).
                    unsafe { (kind.free)(object) };
                };
                // The caller may have retired other objects, and may be in the middle of its own
                // work: it has dropped a guard.
                #[cfg(not(lowwater_loom))]
                lowwater_base::unwind::caught(free);
                // The panic of a model check that fails is not caught.
                #[cfg(lowwater_loom)]
                free();
            }
        }
    }
}

impl Queue {
    /// Prepends an object.
    ///
    /// # Safety
    ///
    /// The queue has a kind, `object` is of this kind, and the clause of [`Queues::push`] holds.
    unsafe fn push(&mut self, object: *mut ()) {
        let kind = self.kind.expect("`of` sets the kind");
        // SAFETY: the object is retired and of this kind (this function's clause).
        unsafe { (kind.set_next)(object, self.first) };
        self.first = object;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<*mut ()> {
        let (kind, object) = (self.kind?, self.first);
        if object.is_null() {
            return None;
        }
        // SAFETY: a queued object is live, retired and of the queue's kind.
        self.first = unsafe { (kind.next)(object) };
        self.len -= 1;
        Some(object)
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
pub(crate) mod thing {
    use crate::retired::{Retired, RetiredKind};
    use crate::sync::UnsafeCell;
    use alloc::sync::Arc;
    use core::ptr;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// An object that counts the freed objects of its test.
    pub(crate) struct Thing {
        link: UnsafeCell<*mut Thing>,
        freed: Arc<AtomicUsize>,
    }

    impl Thing {
        pub(crate) fn new(freed: Arc<AtomicUsize>) -> Self {
            Self { link: UnsafeCell::new(ptr::null_mut()), freed }
        }
    }

    // SAFETY: only the queue that owns the object uses the link.
    unsafe impl Send for Thing {}

    // SAFETY: `kind` returns one static, and no other code uses the link.
    unsafe impl Retired for Thing {
        fn kind() -> &'static RetiredKind {
            static KIND: RetiredKind = RetiredKind::of::<Thing>();
            &KIND
        }

        fn link(&self) -> &UnsafeCell<*mut Self> {
            &self.link
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
