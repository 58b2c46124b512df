// SPDX-License-Identifier: GPL-2.0

//! LRU lists per memory control group and per node: the kernel's `list_lru`.
//!
//! The C functions trust their caller; this type makes each call safe. A change must ensure that an
//! object on the list has exactly one reference that the list owns, and that `list_lru_destroy`
//! runs with the list empty.

use super::{
    lru_arc::{LruArc, LruItem},
    shrinker::Occupancy,
    slab_cache::SlabCache,
    walk::{walk, Isolate, LruStatus},
    Isolated, MemCgroup, NodeId,
};
use core::{alloc::Layout, marker::PhantomData};
use kernel::{
    alloc::{AllocError, Flags},
    bindings,
    error::to_result,
    init::{pin_init_from_closure, PinInit},
    prelude::*,
    static_lock_class,
    sync::{Arc, LockClassKey},
    types::Opaque,
};

/// The state that the lists and each of their objects share.
///
/// # Invariants
///
/// `lru` is initialized, and is memcg-aware if its shrinker is. Each object comes from `slab`, and
/// is only ever added to `lru`.
#[pin_data(PinnedDrop)]
pub(super) struct Inner<T> {
    #[pin]
    lru: Opaque<bindings::list_lru>,
    pub(super) slab: SlabCache,
    /// Objects are put in and taken out by a shared reference, so `T` is invariant: with a
    /// covariant one, a list of `&'static U` could be used as a list of shorter references.
    objects: PhantomData<fn(T) -> T>,
}

// SAFETY: Functions that change a `list_lru` take its locks, and counts are single loads, so they
// may be called on any thread. The objects, which the lists pass from thread to thread, are `Send`
// and `Sync`.
unsafe impl<T: Send + Sync> Send for Inner<T> {}
// SAFETY: Functions that change a `list_lru` take its locks, and counts are single loads, so they
// may be called on several threads at once. The objects, which the lists share between threads, are
// `Send` and `Sync`.
unsafe impl<T: Send + Sync> Sync for Inner<T> {}

#[pinned_drop]
impl<T> PinnedDrop for Inner<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant, the lists are initialized. They are empty, since an object
        // on them would own a reference of `self`.
        unsafe { bindings::list_lru_destroy(self.lru.get()) };
    }
}

/// The LRU lists of one kind of object: one list per memory control group and node.
///
/// Dropping it drops the handles of the lists, and may sleep. Objects with further handles live on,
/// on no list.
///
/// The lists own their objects by [`LruArc`] handles. An object belongs to the group that was
/// charged for it and to the node of its memory, so neither is passed to
/// [`add_obj`](Self::add_obj) and [`del`](Self::del), and passing the wrong one, which corrupts a
/// C caller's lists, cannot happen.
///
/// When a group is removed, the kernel moves its objects to its parent's list.
///
/// The locks of all `ListLru`s of a module are one class for lockdep, apart from those of other
/// modules.
///
/// C header: [`include/linux/list_lru.h`](srctree/include/linux/list_lru.h)
#[doc(alias = "list_lru")]
pub(crate) struct ListLru<T> {
    inner: Arc<Inner<T>>,
}

/// An object that could not be added; each variant returns the handle.
pub(crate) enum AddError<H> {
    /// The object is on a list already, or on an [`Isolated`].
    Linked(H),
    /// The object was allocated by another `ListLru`.
    Foreign(H),
}

impl<H> AddError<H> {
    /// Returns the handle of the object that was not added, whatever the reason.
    pub(crate) fn into_handle(self) -> H {
        match self {
            Self::Linked(handle) | Self::Foreign(handle) => handle,
        }
    }
}

/// The number of objects that [`ListLru::clear`] removes and drops without a pause.
const CLEAR_BATCH: u64 = 1024;

/// Lets other tasks run if the kernel does not preempt a task by itself.
fn cond_resched() {
    // The kernel has the function if it does not preempt, or selects at its start whether it does.
    #[cfg(any(not(CONFIG_PREEMPTION), CONFIG_PREEMPT_DYNAMIC))]
    // SAFETY: No lock is held, so the task may sleep.
    unsafe {
        bindings::__cond_resched()
    };
}

impl<T> ListLru<T> {
    /// Creates lists that report to the shrinker of `occupancy` when one of them goes from empty to
    /// non-empty: only then is the shrinker called for a group and node.
    ///
    /// May sleep. Objects must not be added before the shrinker is registered: until then a report
    /// may be lost, see [`Prepared::register`](super::Prepared::register).
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, and for objects that are larger than the largest slab;
    /// `EINVAL` for objects of more than 4 GiB.
    pub(crate) fn try_with_occupancy(occupancy: Occupancy<'_>) -> Result<Self>
    where
        T: Send + Sync,
    {
        let (name, shrinker) = (occupancy.slab_name()?, occupancy.as_ptr());
        // A shrinker that is called for all groups at once counts one list of a node, so there must
        // not be one for each group.
        let memcg_aware = occupancy.is_memcg_aware();
        let init = move |slot: *mut Opaque<bindings::list_lru>| {
            let lru = Opaque::raw_get(slot);
            // SAFETY: `slot` is memory for the lists.
            unsafe { lru.write_bytes(0, 1) };
            let class: *const LockClassKey = static_lock_class!();
            // SAFETY: `slot` is memory for the lists, the shrinker is alive, and the class is
            // static. `LockClassKey` is transparent over C's type, which only C accesses.
            to_result(unsafe {
                bindings::__list_lru_init(lru, memcg_aware, class.cast_mut().cast(), shrinker)
            })
        };
        // SAFETY: The closure initializes the lists at `slot`, or returns an error.
        let lru = unsafe { pin_init_from_closure(init) };
        // INVARIANT: The lists are initialized above, and only `alloc` makes objects.
        let inner = Arc::pin_init(
            // The lists last: if a later field failed, they would be freed while the kernel has
            // them in its table of all lists.
            try_pin_init!(Inner {
                slab: SlabCache::new(&name, Layout::new::<LruItem<T>>())?,
                objects: PhantomData,
                lru <- lru,
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self { inner })
    }

    /// Allocates an object that can be added to these lists, in the current task's group.
    ///
    /// The object is charged to that group. The group's lists, which its first object makes, are
    /// charged to no group.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory, or the group is at its `memory.max`; `value` is
    /// dropped.
    pub(crate) fn alloc(&self, value: T, flags: Flags) -> Result<LruArc<T>, AllocError> {
        self.try_pin_init(value, flags)
    }

    /// Allocates an object as [`alloc`](Self::alloc) does, and initializes it in place.
    ///
    /// # Errors
    ///
    /// Those of `alloc` and of the initializer.
    pub(crate) fn pin_init<E>(&self, init: impl PinInit<T, E>, flags: Flags) -> Result<LruArc<T>>
    where
        Error: From<E>,
    {
        let init = |slot| {
            // SAFETY: The requirements of the function are those of a closure of
            // `pin_init_from_closure`.
            unsafe { init.__pinned_init(slot) }.map_err(Error::from)
        };
        // SAFETY: The closure initializes the value at `slot` or returns an error, as `init` does.
        self.try_pin_init(unsafe { pin_init_from_closure(init) }, flags)
    }

    /// Allocates an object as [`pin_init`](Self::pin_init) does, with the initializer's type of
    /// error.
    ///
    /// # Errors
    ///
    /// Those of `alloc`, converted, and of the initializer.
    pub(crate) fn try_pin_init<E>(
        &self,
        init: impl PinInit<T, E>,
        flags: Flags,
    ) -> Result<LruArc<T>, E>
    where
        E: From<AllocError>,
    {
        let Inner { slab, lru, .. } = &*self.inner;
        // SAFETY: The lists are initialized by the invariant of `Inner`.
        let item = unsafe { slab.alloc::<LruItem<T>>(lru.get(), flags) }.ok_or(AllocError)?;
        // SAFETY: The memory was allocated for an object, whose value stays there until it is
        // dropped. After an error, the memory is only freed.
        if let Err(error) = unsafe { init.__pinned_init(LruItem::value_at(item)) } {
            // SAFETY: The memory was allocated above, and nothing in it is initialized.
            unsafe { slab.free(item) };
            return Err(error);
        }
        // SAFETY: The memory was allocated for an object of these lists, and its value is
        // initialized.
        unsafe { LruItem::write(item, self.inner.clone()) };
        // SAFETY: The new object has one reference, which is ours.
        Ok(unsafe { LruArc::from_item(item) })
    }

    /// Adds an object as the youngest of its group on its node.
    ///
    /// The list owns the handle until the object is removed. O(1), allocates nothing.
    ///
    /// # Errors
    ///
    /// [`AddError`] with the handle. Of several threads that add the same object, exactly one
    /// succeeds.
    #[doc(alias = "list_lru_add_obj")]
    #[inline]
    pub(crate) fn add_obj(&self, item: LruArc<T>) -> Result<(), AddError<LruArc<T>>> {
        if !Arc::ptr_eq(&item.item().inner, &self.inner) {
            return Err(AddError::Foreign(item));
        }
        if !item.item().claim() {
            return Err(AddError::Linked(item));
        }
        let links = LruItem::links(item.into_item());
        // SAFETY: The object is one of these lists' and on none of them, since it was claimed. Its
        // allocation made the list of its group, or of the ancestor that took over.
        unsafe { bindings::list_lru_add_obj(self.inner.lru.get(), links) };
        Ok(())
    }

    /// Removes an object if it is on one of these lists, and returns the handle by which the list
    /// owned it.
    ///
    /// O(1). Returns `None` if the object is on no list, on another `ListLru`'s, or isolated by a
    /// walk. Of several threads that remove the same object, exactly one gets the handle.
    #[doc(alias = "list_lru_del_obj")]
    #[inline]
    pub(crate) fn del(&self, item: &LruArc<T>) -> Option<LruArc<T>> {
        if !Arc::ptr_eq(&item.item().inner, &self.inner) {
            return None;
        }
        let links = LruItem::links(item.as_item());
        // SAFETY: The object is one of these lists', so it is on one of them or its links are
        // empty, which C checks under the list's lock.
        if !unsafe { bindings::list_lru_del_obj(self.inner.lru.get(), links) } {
            return None;
        }
        item.item().unclaim();
        // SAFETY: The list's reference of the object becomes the caller's.
        Some(unsafe { LruArc::from_item(item.as_item()) })
    }

    /// Returns the number of objects on the group's own list on `node`, without a lock.
    ///
    /// O(1). `None` means the root's list. The list of a group that was removed is its parent's,
    /// which got its objects. If the lists are not memcg-aware, returns the number of all objects
    /// on `node`.
    #[doc(alias = "list_lru_count_one")]
    pub(crate) fn count_one(&self, memcg: Option<&MemCgroup>, node: NodeId) -> u64 {
        let lru = self.inner.lru.get();
        // SAFETY: The lists are initialized, the group is alive, and the machine can have the node
        // (invariant of `NodeId`).
        unsafe { bindings::list_lru_count_one(lru, node.0, MemCgroup::as_ptr(memcg)) as u64 }
    }

    /// Returns the number of objects of all groups on `node`, without a lock.
    ///
    /// O(1).
    #[doc(alias = "list_lru_count_node")]
    pub(crate) fn count_node(&self, node: NodeId) -> u64 {
        // SAFETY: The lists are initialized, and the machine can have the node (invariant of
        // `NodeId`).
        unsafe { bindings::list_lru_count_node(self.inner.lru.get(), node.0) as u64 }
    }

    /// Returns the number of objects of all groups on all nodes.
    ///
    /// O(nodes).
    pub(crate) fn count(&self) -> u64 {
        NodeId::all().map(|node| self.count_node(node)).sum()
    }

    /// Walks the group's list on `node`, oldest first, under the list's lock, does with each object
    /// what `callback` returns, and returns the number of removed objects.
    ///
    /// The table of verdicts is in [`walk`](super::walk). The walk ends after `nr_to_walk` visits,
    /// or as many as there are objects at the start, so rotated ones are not visited again; the
    /// visits are subtracted from `nr_to_walk`. `None` means the root's list, and the list of a
    /// group that was removed is its parent's.
    ///
    /// The callback must not sleep, and must not use these lists: their lock is held. So it must
    /// allocate nothing, as reclaim could walk them. A callback that has unlocked may do both.
    ///
    /// All groups of the node share the lock. A callback that uses another `ListLru` of the module
    /// takes a second lock of the same class, which lockdep reports.
    #[doc(alias = "list_lru_walk_one")]
    #[inline]
    pub(crate) fn walk_one<F>(
        &self,
        memcg: Option<&MemCgroup>,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: F,
    ) -> u64
    where
        F: for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    {
        let lru = self.inner.lru.get();
        let present = self.count_one(memcg, node);
        walk(nr_to_walk, present, &mut callback, |isolate, arg, left| {
            let memcg = MemCgroup::as_ptr(memcg);
            // SAFETY: The lists are initialized, all their objects are `LruItem<T>`, the group is
            // alive, the machine can have the node (invariant of `NodeId`), and `isolate` fits to
            // `arg` (clause of `walk`).
            unsafe { bindings::list_lru_walk_one(lru, node.0, memcg, Some(isolate), arg, left) }
        })
    }

    /// Walks as [`walk_one`](Self::walk_one) does, for all groups on a node, one after the other.
    ///
    /// Rotated objects of a group may be visited again, and use up the visits of the groups after
    /// it.
    #[doc(alias = "list_lru_walk_node")]
    pub(crate) fn walk_node<F>(&self, node: NodeId, nr_to_walk: &mut u64, mut callback: F) -> u64
    where
        F: for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    {
        let lru = self.inner.lru.get();
        let present = self.count_node(node);
        walk(nr_to_walk, present, &mut callback, |isolate, arg, left| {
            // SAFETY: The lists are initialized, all their objects are `LruItem<T>`, the machine
            // can have the node (invariant of `NodeId`), and `isolate` fits to `arg` (clause of
            // `walk`).
            unsafe { bindings::list_lru_walk_node(lru, node.0, Some(isolate), arg, left) }
        })
    }

    /// Removes as many objects of each node as are on its lists at the start, and drops their
    /// handles.
    ///
    /// Takes a list's lock for at most [`CLEAR_BATCH`] objects at a time, and may sleep between
    /// them, so the caller must hold no spin lock.
    pub(crate) fn clear(&self) {
        for node in NodeId::all() {
            let mut left = self.count_node(node);
            while left > 0 {
                let (mut batch, mut old) = (left.min(CLEAR_BATCH), Isolated::new());
                left -= batch;
                let removed = self.walk_node(node, &mut batch, |it| it.isolate(&mut old));
                drop(old);
                cond_resched();
                if removed == 0 {
                    break;
                }
            }
        }
    }
}

impl<T> Drop for ListLru<T> {
    fn drop(&mut self) {
        // Again while a group that ends has moved its objects to a list that was cleared before.
        // Nothing can be added meanwhile.
        while self.count() != 0 {
            self.clear();
        }
    }
}
