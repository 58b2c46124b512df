//! Retiring of objects: they wait in bags of the thread cache until their readers have left.
//!
//! A grace period costs a fence on all processors, so the objects of a bag share one grace period.
//! Each call also drops a few objects of earlier bags, whose readers have left. A change must
//! ensure that a bag is sealed after its last object became unreachable, and that both its length
//! and its bytes are bounded: the bounds limit the memory that readers hold back.

use super::super::bag::{Bag, Weight};
#[cfg(all(feature = "std", not(lowwater_loom)))]
use super::super::nest;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::batch::{Batch, DROPS_MAX, RETIRE_MAX};
use super::SharedSlab;
use crate::rcu;
use crate::sync::atomic::Ordering;
use crate::sync::Mutex;
use crate::unwind;
use core::ptr::NonNull;

/// An open bag is sealed when it has one object for each `OPEN_PARTS` slots of the slab.
const OPEN_PARTS: usize = 64;
/// The lower bound of that number of objects.
pub(in crate::slab) const OPEN_MIN: usize = if cfg!(lowwater_loom) { 1 } else { 16 };
/// The upper bound of that number of objects.
const OPEN_MAX: usize = 4096;
/// The bytes at which an open bag is sealed, whatever the number of its objects.
const OPEN_BYTES_MAX: u64 = 128 << 10;
/// A thread cache checks after this many retired objects whether a fenced bag's readers have left.
const LOOK_EVERY: u32 = 64;
/// A thread cache adds its retired and dropped bytes to the slab's counter when their difference
/// reaches this many bytes.
const REPORT_EVERY: u64 = if cfg!(lowwater_loom) { 1 } else { 4 << 10 };

impl<T: Slotted> SharedSlab<T> {
    /// Drops an object and reuses its slot after its readers have left.
    ///
    /// # Safety
    ///
    /// The object was allocated by a slab, there is no handle to it any more, and no reader that
    /// enters from now on finds it.
    pub(crate) unsafe fn retire(object: NonNull<T>) {
        // SAFETY: the object is a slab's (this function's clause).
        let shared = unsafe { Self::owner(object) }.slab.cast::<Self>();
        // SAFETY: `shared` is the object's slab. There is no handle to the object any more, and no
        // reader that enters from now on finds it (this function's clauses).
        unsafe { Self::retire_batch(shared, &[object]) };
    }

    /// Drops objects, at least one and at most [`RETIRE_MAX`], and reuses their slots after their
    /// readers have left; all under one lock of the thread cache.
    ///
    /// # Safety
    ///
    /// The objects were allocated by the slab of `shared`, there is no handle to any of them any
    /// more, and no reader that enters from now on finds one.
    #[inline]
    pub(crate) unsafe fn retire_batch(shared: *const Self, objects: &[NonNull<T>]) {
        // SAFETY: a slab's shared part exists while one of its slots is not free.
        let this = unsafe { &*shared };
        // Before the lock is taken, because `weight` is the user's code.
        // SAFETY: no other code drops the objects, so they are live.
        let weights = unsafe { this.weigh(objects) };
        let weighed = || objects.iter().copied().zip(weights);
        let here = this.thread_caches.local();
        let mut thread_cache = here.lock();
        if thread_cache.closed {
            drop(thread_cache);
            for (object, weight) in weighed() {
                // SAFETY: this function's clauses; the shared part with the thread cache exists
                // while the slot of this object is not free.
                unsafe { Self::retire_closed(shared, here, object, weight) };
            }
            return;
        }
        let mut bytes = 0;
        for (object, weight) in weighed() {
            // SAFETY: the object is not dropped yet (this function's clauses).
            let links = unsafe { T::links(object) };
            // SAFETY: the caller owns the object and passes it to the bag.
            unsafe { thread_cache.open.push(T::LAYOUT, links, weight) };
            bytes += weight.unpack();
        }
        thread_cache.open_bytes += bytes;
        // Without a destructor the bytes are subtracted when the bag's readers have left, and not
        // slot by slot in `drop_object`.
        if !core::mem::needs_drop::<T>() {
            thread_cache.beside_bytes += bytes;
        }
        this.count_retired(&mut thread_cache, bytes as i64);
        if thread_cache.open_bytes >= OPEN_BYTES_MAX || thread_cache.open.len as usize >= this.open_max() {
            this.seal(&mut thread_cache);
        } else if thread_cache.open.len % LOOK_EVERY < objects.len() as u32 {
            this.advance(&mut thread_cache, false);
        }
        if thread_cache.ready.len() == 0 {
            return;
        }
        let due = Self::due(&thread_cache) * objects.len();
        if !core::mem::needs_drop::<T>() {
            for _ in 0..due {
                let Some(links) = thread_cache.ready.pop(T::LAYOUT) else { break };
                this.take_back(&mut thread_cache, links);
            }
            return;
        }
        // A drop may retire objects of the same type: such nested calls leave theirs to the
        // outermost call of the thread (`nest`), which without `std` is found through the thread
        // cache.
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        if nest::leave_to_outer::<T>(T::LAYOUT, |most| thread_cache.ready.pop_some(T::LAYOUT, due.min(most as usize))) {
            return;
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        if !thread_cache.begin_drops(T::LAYOUT, |ready, most| ready.pop_some(T::LAYOUT, due.min(most as usize))) {
            return;
        }
        let batch = Batch::ready(T::LAYOUT, &mut thread_cache, due);
        drop(thread_cache);
        // SAFETY: the objects were in this slab's thread cache, so there is no handle to them, and
        // their readers have left. Their slots are not free and keep the shared part, with its
        // thread caches, alive.
        unsafe { Self::drop_some(shared, here, batch) };
    }

    /// Drops an object of a slab that was dropped, at once, as the slab has no readers.
    ///
    /// # Safety
    ///
    /// The object was allocated by the slab of `shared`, and there is no handle to it any more;
    /// `here` is a thread cache of that slab, and is closed. No lock is held.
    #[cold]
    unsafe fn retire_closed(shared: *const Self, here: *const Mutex<ThreadCache>, object: NonNull<T>, weight: Weight) {
        // SAFETY: the object is not dropped yet (this function's clause).
        let links = unsafe { T::links(object) };
        // SAFETY: a slab's shared part exists while one of its slots is not free.
        let this = unsafe { &*shared };
        let bytes = weight.unpack() as i64;
        // The drop of an object with a destructor subtracts its weight.
        let subtracted = if core::mem::needs_drop::<T>() { bytes } else { 0 };
        // Relaxed: see `count_all`.
        let counted = if this.has_counted_all.load(Ordering::Relaxed) { bytes } else { 0 };
        this.add_retired(subtracted - counted);
        let mut one = Bag::new();
        // SAFETY: the caller owns the object and passes it to the bag.
        unsafe { one.push(T::LAYOUT, links, weight) };
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        {
            let _: *const Mutex<ThreadCache> = here;
            // SAFETY: the slab was dropped, so it has no readers, and there is no handle to the
            // object. No lock is held.
            unsafe { Self::end_all(one) };
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        {
            // SAFETY: the slab's shared part, with its thread cache, exists while the slot of the
            // object is not free.
            let mut thread_cache = unsafe { &*here }.lock();
            if thread_cache.begin_drops(T::LAYOUT, |_, _| core::mem::replace(&mut one, Bag::new())) {
                drop(thread_cache);
                // SAFETY: the slab was dropped, so it has no readers, and there is no handle to the
                // object; the object's slot keeps the shared part, with this thread cache, alive.
                unsafe { Self::drop_some(shared, here, Batch::one(links)) };
            }
        }
    }

    /// Returns the weights of objects; the size of a slot for an object whose weigher panics.
    ///
    /// # Safety
    ///
    /// The objects are live.
    #[inline]
    unsafe fn weigh(&self, objects: &[NonNull<T>]) -> [Weight; RETIRE_MAX] {
        let mut weights = [Weight::pack(size_of::<T>() as u64); RETIRE_MAX];
        let mut left = objects.iter().zip(&mut weights);
        // Repeated only after a panic: each call weighs all objects that are left.
        while unwind::caught(|| {
            for (object, weight) in left.by_ref() {
                // SAFETY: the object is live (this function's clause).
                *weight = Weight::pack(unsafe { object.as_ref() }.weight());
            }
        })
        .is_none()
        {
            self.count_panic();
        }
        weights
    }

    #[cold]
    pub(super) fn count_panic(&self) {
        // Relaxed: a statistic.
        self.drop_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the maximum number of objects in an open bag.
    pub(super) fn open_max(&self) -> usize {
        // Relaxed: a number that bounds a batch, as in `count`.
        (self.slots.load(Ordering::Relaxed) / OPEN_PARTS).clamp(OPEN_MIN, OPEN_MAX)
    }

    /// Seals the open bag, and advances the sealed bags. A fence on every processor takes 20 us if
    /// other threads run, so there is one for two bags, or for more if other thread caches issue
    /// fences meanwhile.
    pub(super) fn seal(&self, thread_cache: &mut ThreadCache) {
        let is_second = thread_cache.seal(T::LAYOUT, rcu::start_poll());
        self.advance(thread_cache, is_second);
    }

    /// Moves sealed bags whose readers have left to the objects that are ready to be dropped;
    /// `may_fence`: issues a fence on all processors first, if a bag waits for one.
    pub(in crate::slab) fn advance(&self, thread_cache: &mut ThreadCache, may_fence: bool) {
        let bytes = thread_cache.advance(T::LAYOUT, may_fence);
        self.count_retired(thread_cache, (bytes as i64).wrapping_neg());
    }

    /// Adds `more` retired bytes, or subtracts if negative.
    #[inline]
    pub(super) fn count_retired(&self, thread_cache: &mut ThreadCache, more: i64) {
        thread_cache.unreported = thread_cache.unreported.wrapping_add(more);
        if thread_cache.unreported.unsigned_abs() >= REPORT_EVERY {
            self.report(thread_cache);
        }
    }

    /// Adds the thread cache's unreported bytes to the slab's counter.
    pub(super) fn report(&self, thread_cache: &mut ThreadCache) {
        self.add_retired(core::mem::take(&mut thread_cache.unreported));
    }

    /// Adds `more` bytes to the slab's counter and the shared one, or subtracts if negative.
    pub(super) fn add_retired(&self, more: i64) {
        if more == 0 {
            return;
        }
        self.waiting.add(more);
        if let Some(total) = &self.total {
            total.add(more);
        }
    }

    /// Counts memory that was retired beside objects (segments of the index), and that readers hold
    /// back in the same way: the bytes are subtracted when the open bag's readers have left. Seals
    /// the bag if it is full, as no object may be retired for long.
    pub(crate) fn retire_beside(&self, bytes: usize) {
        let mut thread_cache = self.thread_caches.local().lock();
        if !thread_cache.closed {
            thread_cache.open_bytes += bytes as u64;
            thread_cache.beside_bytes += bytes as u64;
            self.count_retired(&mut thread_cache, bytes as i64);
            if thread_cache.open_bytes >= OPEN_BYTES_MAX {
                self.seal(&mut thread_cache);
            }
        }
    }

    /// Returns the number of objects to drop for each retired object: one, so that slots are freed
    /// as fast as they are needed; two if the queue is longer than two bags, because otherwise a
    /// backlog that readers once caused would never shrink.
    pub(super) fn due(thread_cache: &ThreadCache) -> usize {
        if thread_cache.ready.len() > 2 * thread_cache.bag_len {
            DROPS_MAX
        } else {
            1
        }
    }
}
