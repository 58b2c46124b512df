//! The part of a slab that the slab and its objects' handles share: free slots, and retired
//! objects.
//!
//! Handles may outlive the slab, and need this part to free their slots, so the slab does not own
//! it alone. The slab's drop closes the shared part, and frees it if no slot is in use; otherwise
//! the call that frees the last slot of a closed slab frees the shared part.
//!
//! A change must ensure that nothing here is used after the call that frees it, and that the lock
//! of a thread cache is taken before `pool`.

mod alloc;
mod batch;
mod collect;
mod drops;
mod retire;

pub(super) use batch::RETIRE_MAX;
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
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkOwner, PtrCompressor};
use lowwater_base::NodeId;

/// The shared part of a slab; see the module.
pub(crate) struct SharedSlab<T: Slotted> {
    /// Free slots and retired objects, by thread.
    pub(super) thread_caches: ThreadCaches,
    /// The chunks, the free slots that are in no thread cache, and the transfer cache.
    pool: Mutex<CentralFreeList>,
    /// Slots of all chunks.
    slots: AtomicUsize,
    /// Bytes that are retired and not yet dropped.
    pub(super) waiting: RetiredBytes,
    /// As `waiting`, the sum over several slabs; `None` if the owner wants no sum.
    total: Option<Arc<RetiredBytes>>,
    /// True once a thread cache was refilled with slots of another node than its own: chunks may be
    /// on several nodes.
    mixed: AtomicBool,
    /// True while chunks are being evacuated.
    compacting: AtomicBool,
    /// True once the owner has counted the objects that have a handle as retired, before its drop.
    has_counted_all: AtomicBool,
    /// Panics of objects' drops.
    pub(super) drop_panics: AtomicU64,
    objects: PhantomData<T>,
    /// Never changes: a model check uses it to detect a read before the shared part is published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

impl<T: Slotted> SharedSlab<T> {
    const GEOMETRY: ChunkLayout = ChunkLayout::of::<T>();
    /// Compresses pointers to objects in their slots.
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
            has_counted_all: AtomicBool::new(false),
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

    /// Returns the beginning of the chunk that an object is in.
    ///
    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    #[inline]
    pub(super) unsafe fn chunk(object: NonNull<T>) -> NonNull<u8> {
        let chunk = object.as_ptr().map_addr(|address| address & !(Self::GEOMETRY.full - 1)).cast();
        // SAFETY: chunks are aligned to the size of a full one and no larger, and no chunk is at
        // address 0; a chunk exists while one of its slots is not free.
        unsafe { NonNull::new_unchecked(chunk) }
    }

    /// Returns the node of an object's memory.
    ///
    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    #[inline]
    pub(crate) unsafe fn node(object: NonNull<T>) -> NodeId {
        // SAFETY: the caller's clause: the object is in a slab, and its slot is not free.
        let chunk = unsafe { Self::chunk(object) };
        // SAFETY: a chunk begins with a header.
        unsafe { (*chunk.as_ptr().cast::<ChunkHeader>()).node }
    }

    /// Returns the slab of an object, and the chunk's number in it.
    ///
    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    #[inline]
    pub(crate) unsafe fn owner<'a>(object: NonNull<T>) -> &'a ChunkOwner {
        // SAFETY: the caller's clause: the object is in a slab, and its slot is not free.
        let chunk = unsafe { Self::chunk(object) };
        let offset = object.addr().get() - chunk.addr().get();
        // SAFETY: a chunk begins with a header, and the object is in the chunk.
        let owner = unsafe { ChunkHeader::owner_at(chunk, offset) };
        // SAFETY: owners are initialized before a slot is allocated, and do not change, apart from
        // atomics, while one is not free.
        unsafe { owner.as_ref() }
    }

    /// Returns the number of an object: its compressed pointer, unique in the process.
    ///
    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    #[inline]
    pub(crate) unsafe fn number(object: NonNull<T>) -> u32 {
        // SAFETY: the caller's clause: the object is in a slab, so in a registered chunk.
        unsafe { Self::COMPRESSOR.compress(object.as_ptr().cast()) }
    }

    /// Returns the object with a number.
    ///
    /// # Safety
    ///
    /// The number is that of a `T` in a slot that is not free; the caller is in the read side, or
    /// has other means to keep the slot from being freed.
    #[inline]
    pub(crate) unsafe fn at(number: u32) -> NonNull<T> {
        // SAFETY: the caller's clause: the number is that of an object in a slot that is not free.
        let object = unsafe { Self::COMPRESSOR.decompress(number) };
        // SAFETY: an allocated slot's address is not null.
        unsafe { NonNull::new_unchecked(object.cast()) }
    }

    // === compaction ===

    /// Returns true if most slots of some node are free, not counting those in thread caches.
    pub(super) fn is_sparse(&self) -> bool {
        self.pool.lock().is_sparse()
    }

    /// Begins a compaction, as [`CentralFreeList::begin_compaction`]. Returns 0 if one is running
    /// already.
    pub(super) fn begin_compaction(&self) -> usize {
        // Relaxed: a hint for `take_back`; the caller that begins a compaction also ends it.
        if self.compacting.swap(true, Ordering::Relaxed) {
            return 0;
        }
        for thread_cache in self.thread_caches.all() {
            let mut thread_cache = thread_cache.lock();
            self.flush(&mut thread_cache, &mut self.pool.lock());
        }
        self.flush_transfer(usize::MAX);
        let slots = self.pool.lock().begin_compaction();
        if slots == 0 {
            self.end_compaction();
        }
        slots
    }

    /// Ends a compaction, as [`CentralFreeList::end_compaction`].
    pub(super) fn end_compaction(&self) {
        self.pool.lock().end_compaction();
        // Relaxed: a hint for `take_back`.
        self.compacting.store(false, Ordering::Relaxed);
    }

    /// Returns the node of an object, if its chunk is being evacuated.
    ///
    /// # Safety
    ///
    /// The object is in a slab, and its slot is not free.
    pub(crate) unsafe fn evacuated_node(object: NonNull<T>) -> Option<NodeId> {
        // SAFETY: the caller's clause: the object is in a slab, and its slot is not free.
        let owner = unsafe { Self::owner(object) };
        // Relaxed: a hint, as in `CentralFreeList::begin_compaction`.
        let is_evacuating = owner.evacuating.load(Ordering::Relaxed);
        // SAFETY: as above.
        is_evacuating.then(|| unsafe { Self::node(object) })
    }

    /// Closes the slab, whose owner is being dropped: drops its retired objects, and frees this
    /// part if no slot is in use. The owner is borrowed by each reader, so every reader has left.
    ///
    /// # Safety
    ///
    /// `this` came from a box; the caller does not use it afterwards. No reader has a reference to
    /// an object of this slab.
    pub(super) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: the shared part lives at least until its pool is closed below.
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
            shared.flush(&mut locked, &mut shared.pool.lock());
            drop(locked);
            // SAFETY: there is no handle to these retired objects, the caller's clause excludes
            // readers, and the lock was released. The pool is not closed yet, so no call below
            // frees this part.
            unsafe { Self::end_all(all) };
        }
        // No thread adds a batch any more, as all thread caches are closed.
        shared.flush_transfer(usize::MAX);
        let mut pool = shared.pool.lock();
        pool.closed = true;
        let is_last = pool.free == pool.slots;
        drop(pool);
        if is_last {
            // SAFETY: the caller's clause: `this` came from a box. No object is left, and so no
            // handle that could use it.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Counts `bytes` of objects that have a handle as retired: from the slab's close on, each of
    /// them subtracts its weight when it is dropped.
    pub(super) fn count_all(&self, bytes: u64) {
        // Relaxed: read after the close, under the lock of a thread cache, which the close takes
        // after this store.
        self.has_counted_all.store(true, Ordering::Relaxed);
        self.add_retired(bytes as i64);
    }

    /// Returns the bytes of the slab's memory.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + self.thread_caches.footprint() + self.pool.lock().footprint()
    }

    /// Returns the number of free slots that are in no thread cache, and not in transfer.
    #[cfg(all(test, lowwater_loom))]
    pub(crate) fn free(&self) -> usize {
        self.pool.lock().free
    }

    /// Returns the number of free slots of node 0 in the transfer cache.
    #[cfg(test)]
    pub(crate) fn in_transfer(&self) -> usize {
        self.pool.lock().transfer.slots(0)
    }

    /// Returns the number of slots that are in use, in a thread cache, or in the transfer cache.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used_and_slots().0
    }

    /// Returns [`used`](Self::used), and the number of all slots.
    #[cfg(test)]
    pub(crate) fn used_and_slots(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.slots - pool.free, pool.slots)
    }

    pub(super) fn assert_valid(&self) {
        self.pool.lock().assert_valid();
    }
}

impl<T: Slotted> Drop for SharedSlab<T> {
    /// Subtracts the rest, if the owner has counted other bytes than those of its objects.
    fn drop(&mut self) {
        if let Some(total) = &self.total {
            total.add(self.waiting.sum().wrapping_neg());
        }
    }
}
