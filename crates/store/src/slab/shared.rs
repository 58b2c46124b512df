//! What a slab and the handles of its objects share. It goes with the last of them.

mod alloc;
mod collect;
mod drops;
mod retire;

#[cfg(all(test, not(lowwater_loom)))]
pub(super) use retire::OPEN_MIN;

use super::bag::Bag;
use super::central_free_list::CentralFreeList;
use super::retired::RetiredBytes;
use super::slotted::Slotted;
use super::thread_caches::ThreadCaches;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};
use ::alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;
use lowwater_base::slots::{ChunkHeader, ChunkLayout, PtrCompressor};
use lowwater_base::NodeId;

/// See the module.
pub(crate) struct SharedSlab<T: Slotted> {
    pub(super) thread_caches: ThreadCaches,
    pool: Mutex<CentralFreeList>,
    /// Slots of all chunks.
    slots: AtomicUsize,
    /// Bytes that were retired and are not dropped yet.
    pub(super) waiting: RetiredBytes,
    /// The same, of other slabs as well.
    total: Option<Arc<RetiredBytes>>,
    /// Is there more than one node?
    mixed: AtomicBool,
    /// Are there chunks that are to be emptied?
    compacting: AtomicBool,
    pub(super) drop_panics: AtomicU64,
    objects: PhantomData<T>,
    /// Never changes: so that a model check sees who comes before it is published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

impl<T: Slotted> SharedSlab<T> {
    const GEOMETRY: ChunkLayout = ChunkLayout::of::<T>();
    /// Objects, in their slots.
    const COMPRESSOR: PtrCompressor = PtrCompressor::of::<T>(0);

    pub(super) fn new(total: Option<Arc<RetiredBytes>>) -> Self {
        Self {
            thread_caches: ThreadCaches::new(),
            pool: Mutex::new(CentralFreeList::new(Self::GEOMETRY)),
            slots: AtomicUsize::new(0),
            waiting: RetiredBytes::new(),
            total,
            mixed: AtomicBool::new(false),
            compacting: AtomicBool::new(false),
            drop_panics: AtomicU64::new(0),
            objects: PhantomData,
            #[cfg(lowwater_loom)]
            made: crate::sync::UnsafeCell::new(()),
        }
    }

    #[cfg(lowwater_loom)]
    pub(super) fn assert_made(&self) {
        self.made.with(|_| ());
    }

    // === slots and numbers ===

    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    #[inline]
    pub(super) unsafe fn header<'a>(object: NonNull<T>) -> &'a ChunkHeader {
        let chunk = object.as_ptr().map_addr(|address| address & !(Self::GEOMETRY.full - 1)).cast::<ChunkHeader>();
        // SAFETY: chunks are aligned to the size of a full one and no larger; one begins with its header, and is there while
        // one of its slots is not free.
        unsafe { &*chunk }
    }

    /// The number of an object of this slab.
    ///
    /// # Safety
    ///
    /// As for [`header`](Self::header).
    #[inline]
    pub(crate) unsafe fn number(object: NonNull<T>) -> u32 {
        // SAFETY: the caller's promise is the same.
        unsafe { Self::COMPRESSOR.compress(object.as_ptr().cast()) }
    }

    /// The object of this number.
    ///
    /// # Safety
    ///
    /// The number is that of a `T` whose slot is not free; the caller is in the read side, or otherwise knows that it stays so.
    #[inline]
    pub(crate) unsafe fn at(number: u32) -> NonNull<T> {
        // SAFETY: the caller's promise is the same.
        let object = unsafe { Self::COMPRESSOR.decompress(number) };
        // SAFETY: a chunk that has a slot which is not free is not null.
        unsafe { NonNull::new_unchecked(object.cast()) }
    }

    // === moving what is left together ===

    /// Are most slots of some node free, but for those that thread_caches have at hand?
    pub(super) fn is_sparse(&self) -> bool {
        self.pool.lock().is_sparse()
    }

    /// Has the emptiest chunks emptied, as [`CentralFreeList::begin_compaction`]. 0 if some are already.
    pub(super) fn begin_compaction(&self) -> usize {
        // Relaxed: a hint, as in `take_back`; who begins ends it.
        if self.compacting.swap(true, Ordering::Relaxed) {
            return 0;
        }
        for thread_cache in self.thread_caches.all() {
            let mut thread_cache = thread_cache.lock();
            self.flush(&mut thread_cache, &mut self.pool.lock(), 0);
        }
        let slots = self.pool.lock().begin_compaction();
        if slots == 0 {
            self.end_compaction();
        }
        slots
    }

    /// As [`CentralFreeList::end_compaction`].
    pub(super) fn end_compaction(&self) {
        self.pool.lock().end_compaction();
        // Relaxed: a hint, as in `take_back`.
        self.compacting.store(false, Ordering::Relaxed);
    }

    /// Of which node is an object, if it is in a chunk that is to be emptied?
    ///
    /// # Safety
    ///
    /// As for [`header`](Self::header).
    pub(crate) unsafe fn leaves(object: NonNull<T>) -> Option<NodeId> {
        // SAFETY: the caller's promise is the same.
        let header = unsafe { Self::header(object) };
        // Relaxed: a hint, as in `CentralFreeList::begin_compaction`.
        header.evacuating.load(Ordering::Relaxed).then_some(header.node)
    }

    /// The owner is gone, and with it every reader.
    ///
    /// # Safety
    ///
    /// `this` came from a box; the caller does not use it afterwards. No reader has a reference to one of its objects.
    pub(super) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: it lives at least until the pool is closed below.
        let shared = unsafe { this.as_ref() };
        for thread_cache in shared.thread_caches.all() {
            let mut locked = thread_cache.lock();
            locked.closed = true;
            let mut all = core::mem::replace(&mut locked.open, Bag::new());
            let mut beside = core::mem::take(&mut locked.beside_bytes);
            for mut sealed in locked.sealed.iter_mut().filter_map(Option::take) {
                beside += sealed.bytes;
                all.append(T::LAYOUT, &mut sealed.bag);
            }
            locked.unreported = locked.unreported.wrapping_sub(beside as i64);
            shared.report(&mut locked);
            all.append(T::LAYOUT, &mut locked.ready.take());
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            all.append(T::LAYOUT, &mut locked.pending);
            shared.flush(&mut locked, &mut shared.pool.lock(), 0);
            drop(locked);
            // SAFETY: nobody has them, there are no readers by the caller's promise, and the lock was given back. The pool is not closed yet.
            unsafe { Self::end_all(all) };
        }
        let mut pool = shared.pool.lock();
        pool.closed = true;
        let is_last = pool.free == pool.slots;
        drop(pool);
        if is_last {
            // SAFETY: it came from a box, says the caller; no object is left that leads to it.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Bytes of memory that this has.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + self.thread_caches.footprint() + self.pool.lock().footprint()
    }

    /// Slots that no thread_cache has.
    #[cfg(all(test, lowwater_loom))]
    pub(crate) fn free(&self) -> usize {
        self.pool.lock().free
    }

    /// Slots that are not free, those at hand in thread_caches included.
    #[cfg(test)]
    pub(crate) fn out(&self) -> usize {
        let pool = self.pool.lock();
        pool.slots - pool.free
    }

    pub(super) fn assert_valid(&self) {
        self.pool.lock().assert_valid();
    }
}
