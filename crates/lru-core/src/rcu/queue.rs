//! What was retired and waits for its readers: linked through the things themselves, so that retiring never needs memory.

use super::{Erased, Retired};
use crate::index::{Directory, Segment};
use crate::list_lru::{One, Part, Split, Table};
use core::ptr;

/// Things of one kind, the last retired first.
pub(crate) struct Queue<T: Retired> {
    first: *mut T,
    len: usize,
}

// SAFETY: the queue owns its things, which are `Send` (a bound of `Retired`).
unsafe impl<T: Retired> Send for Queue<T> {}

/// All kinds that there are.
pub(crate) struct Queues {
    pub(crate) ones: Queue<One>,
    pub(crate) parts: Queue<Part>,
    pub(crate) splits: Queue<Split>,
    pub(crate) tables: Queue<Table>,
    pub(crate) segments: Queue<Segment>,
    pub(crate) directories: Queue<Directory>,
    pub(crate) values: Queue<Erased>,
    #[cfg(all(test, feature = "std", not(lowwater_loom)))]
    pub(crate) things: Queue<thing::Thing>,
}

impl Queues {
    pub(super) const fn new() -> Self {
        Self {
            ones: Queue::new(),
            parts: Queue::new(),
            splits: Queue::new(),
            tables: Queue::new(),
            segments: Queue::new(),
            directories: Queue::new(),
            values: Queue::new(),
            #[cfg(all(test, feature = "std", not(lowwater_loom)))]
            things: Queue::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        #[cfg(all(test, feature = "std", not(lowwater_loom)))]
        let things = self.things.len;
        #[cfg(not(all(test, feature = "std", not(lowwater_loom))))]
        let things = 0;
        let lists = self.ones.len + self.parts.len + self.splits.len + self.tables.len;
        lists + self.segments.len + self.directories.len + self.values.len + things
    }

    /// Takes everything out.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Puts everything on `other` back here.
    #[cfg(all(not(lowwater_loom), feature = "std"))]
    pub(super) fn append(&mut self, other: Self) {
        self.ones.append(other.ones);
        self.parts.append(other.parts);
        self.splits.append(other.splits);
        self.tables.append(other.tables);
        self.segments.append(other.segments);
        self.directories.append(other.directories);
        self.values.append(other.values);
        #[cfg(all(test, feature = "std", not(lowwater_loom)))]
        self.things.append(other.things);
    }

    /// Frees everything.
    ///
    /// # Safety
    ///
    /// No reader can see any of it any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: this function's own clause.
        unsafe { self.ones.free() };
        // SAFETY: this function's own clause.
        unsafe { self.parts.free() };
        // SAFETY: this function's own clause.
        unsafe { self.splits.free() };
        // SAFETY: this function's own clause.
        unsafe { self.tables.free() };
        // SAFETY: this function's own clause.
        unsafe { self.segments.free() };
        // SAFETY: this function's own clause.
        unsafe { self.directories.free() };
        // SAFETY: this function's own clause.
        unsafe { self.values.free() };
        #[cfg(all(test, feature = "std", not(lowwater_loom)))]
        // SAFETY: this function's own clause.
        unsafe {
            self.things.free();
        };
    }
}

impl<T: Retired> Queue<T> {
    const fn new() -> Self {
        Self { first: ptr::null_mut(), len: 0 }
    }

    /// Takes a thing over.
    ///
    /// # Safety
    ///
    /// `thing` is what [`Retired::free`] frees, and is retired: nobody uses its link, and nobody else frees it.
    pub(super) unsafe fn push(&mut self, thing: *mut T) {
        // SAFETY: it is live, says the caller.
        let link = unsafe { &*thing }.link();
        // SAFETY: nobody else uses a retired thing's link.
        link.with_mut(|next| unsafe { *next = self.first });
        self.first = thing;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<*mut T> {
        let thing = self.first;
        if thing.is_null() {
            return None;
        }
        // SAFETY: what is queued is live.
        let link = unsafe { &*thing }.link();
        // SAFETY: nobody else uses a retired thing's link.
        self.first = link.with(|next| unsafe { *next });
        self.len -= 1;
        Some(thing)
    }

    #[cfg(all(not(lowwater_loom), feature = "std"))]
    fn append(&mut self, mut other: Self) {
        while let Some(thing) = other.pop() {
            // SAFETY: it was queued there, and is not any more.
            unsafe { self.push(thing) };
        }
    }

    /// Frees all things. If a destructor panics, the others are freed while it unwinds, as with
    /// `Vec`.
    ///
    /// # Safety
    ///
    /// As for [`Queues::free`].
    unsafe fn free(mut self) {
        struct Rest<'q, T: Retired>(&'q mut Queue<T>);
        impl<T: Retired> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                // SAFETY: the clause of `free`, which alone makes this.
                unsafe { self.0.free_some() };
            }
        }
        let rest = Rest(&mut self);
        // SAFETY: this function's own clause.
        unsafe { rest.0.free_some() };
    }

    /// Frees things until there is none, or until a destructor panics.
    ///
    /// # Safety
    ///
    /// As for [`Queues::free`].
    unsafe fn free_some(&mut self) {
        while let Some(thing) = self.pop() {
            #[cfg(lowwater_loom)]
            // SAFETY: it was retired, and no reader sees it: this function's own clause.
            unsafe {
                T::assert_unread(thing);
            };
            // SAFETY: the thing was queued once and was just taken out, and by this function's
            // clause no reader sees it.
            unsafe { T::free(thing) };
        }
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
pub(crate) mod thing {
    use super::{Queue, Queues, Retired};
    use crate::sync::UnsafeCell;
    use alloc::sync::Arc;
    use core::ptr;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Counts those of its kind that were freed.
    pub(crate) struct Thing {
        link: UnsafeCell<*mut Thing>,
        freed: Arc<AtomicUsize>,
    }

    impl Thing {
        pub(crate) fn new(freed: Arc<AtomicUsize>) -> Self {
            Self { link: UnsafeCell::new(ptr::null_mut()), freed }
        }
    }

    // SAFETY: the link is used only by the queue that owns the thing.
    unsafe impl Send for Thing {}

    impl Retired for Thing {
        fn link(&self) -> &UnsafeCell<*mut Self> {
            &self.link
        }

        fn queue(queues: &mut Queues) -> &mut Queue<Self> {
            &mut queues.things
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
