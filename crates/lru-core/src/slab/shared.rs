//! What a slab and the handles of its objects share. It goes with the last of them.

use super::bag::Bag;
use super::chunk::{Geometry, Header};
use super::free::Free;
#[cfg(all(feature = "std", not(lowwater_loom)))]
use super::nest;
use super::place::Place;
use super::pool::Pool;
use super::retired::RetiredBytes;
use super::stripe::Stripe;
use super::stripes::Stripes;
use super::Slotted;
use crate::list::Hook;
use crate::poison::{poison, unpoison};
use crate::prefetch::prefetch;
use crate::rcu;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::{unwind, NodeId};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Of all slots, those whose objects may wait before they are sealed.
const OPEN_PARTS: usize = 64;
/// The least and the most of them.
pub(super) const OPEN_MIN: usize = if cfg!(lowwater_loom) { 1 } else { 16 };
const OPEN_MAX: usize = 4096;
/// And the most bytes of them.
const OPEN_BYTES_MAX: u64 = 128 << 10;
/// How often a stripe looks whether the readers have left what is fenced: every so many objects that are retired.
const LOOK_EVERY: u32 = 64;
/// Objects that are dropped for each one that is retired, at most.
const DROPS_MAX: usize = 2;
/// Free slots that a stripe keeps at hand, and how many it gets and gives at once.
const FREE_MAX: u32 = 512;
const REFILL_MAX: usize = 128;
/// A slab of so many slots has stripes.
const SPREAD_FROM: usize = if cfg!(lowwater_loom) { 1 } else { 1024 };
/// Objects that are dropped at once when everything is collected.
const COLLECT: usize = 64;
/// A stripe tells of what it has retired and dropped when it is so many bytes more, or less, than
/// when it last did.
const TELL_EVERY: u64 = if cfg!(lowwater_loom) { 1 } else { 4 << 10 };

/// Objects that one call drops.
type Batch = [Option<NonNull<Hook>>; DROPS_MAX];

/// See the module.
pub(crate) struct Shared<T: Slotted> {
    pub(super) stripes: Stripes,
    pool: Mutex<Pool>,
    /// Slots of all chunks.
    slots: AtomicUsize,
    /// Bytes that were retired and are not dropped yet.
    pub(super) waiting: RetiredBytes,
    /// The same, of other slabs as well.
    total: Option<Arc<RetiredBytes>>,
    /// Is there more than one node?
    mixed: AtomicBool,
    /// Are there chunks that are to be emptied?
    migrating: AtomicBool,
    pub(super) drop_panics: AtomicU64,
    objects: PhantomData<T>,
    /// Never changes: so that a model check sees who comes before it is published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

impl<T: Slotted> Shared<T> {
    const GEOMETRY: Geometry = Geometry::of::<T>();
    /// Objects, in their slots.
    const PLACE: Place = Place::of::<T>(0);

    pub(super) fn new(total: Option<Arc<RetiredBytes>>) -> Self {
        Self {
            stripes: Stripes::new(),
            pool: Mutex::new(Pool::new(Self::GEOMETRY)),
            slots: AtomicUsize::new(0),
            waiting: RetiredBytes::new(),
            total,
            mixed: AtomicBool::new(false),
            migrating: AtomicBool::new(false),
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
    pub(super) unsafe fn header<'a>(object: NonNull<T>) -> &'a Header {
        let chunk = object.as_ptr().map_addr(|address| address & !(Self::GEOMETRY.full - 1)).cast::<Header>();
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
        unsafe { Self::PLACE.number(object.as_ptr().cast()) }
    }

    /// The object of this number.
    ///
    /// # Safety
    ///
    /// The number is that of a `T` whose slot is not free; the caller is in the read side, or otherwise knows that it stays so.
    #[inline]
    pub(crate) unsafe fn at(number: u32) -> NonNull<T> {
        // SAFETY: the caller's promise is the same.
        let object = unsafe { Self::PLACE.at(number) };
        // SAFETY: a chunk that has a slot which is not free is not null.
        unsafe { NonNull::new_unchecked(object.cast()) }
    }

    // === giving slots out ===

    /// Puts an object into a slot. `this` goes into the headers of chunks, so that the last handle can free what is behind it: that is why
    /// it is no reference.
    ///
    /// # Safety
    ///
    /// `this` came from a box, whose owner is there.
    #[inline]
    pub(super) unsafe fn alloc(this: NonNull<Self>, node: NodeId, value: T) -> Result<NonNull<T>, T> {
        // SAFETY: it is live, says the caller.
        let Some(slot) = unsafe { this.as_ref() }.slot(node, this) else { return Err(value) };
        let object = slot.cast::<T>();
        unpoison(object.as_ptr().cast(), size_of::<T>());
        // SAFETY: the slot is ours, large enough, and aligned.
        unsafe { object.write(value) };
        Ok(object)
    }

    #[inline]
    fn slot(&self, node: NodeId, this: NonNull<Self>) -> Option<NonNull<Free>> {
        let mut stripe = self.stripes.here().lock();
        if let Some(links) = stripe.passed.look_ahead(T::SHAPE) {
            // SAFETY: only a `T`'s links are in bags.
            let object = unsafe { T::from_links(links) };
            // SAFETY: bags own what is in them, and the stripe's lock is held.
            prefetch(unsafe { object.as_ref() });
        }
        if stripe.node == node {
            if let Some(slot) = stripe.free.pop() {
                return Some(slot);
            }
        }
        self.refill(&mut stripe, node, this)
    }

    #[cold]
    fn refill(&self, stripe: &mut Stripe, node: NodeId, this: NonNull<Self>) -> Option<NonNull<Free>> {
        let mut pool = self.pool.lock();
        if stripe.node != node {
            // Relaxed: once set it stays; a slot that is missed goes to another node's use once.
            self.mixed.store(true, Ordering::Relaxed);
            self.flush(stripe, &mut pool, 0);
            stripe.node = node;
        }
        let nr = (pool.slots / 16).clamp(1, REFILL_MAX) as u32;
        let slab = this.as_ptr().cast_const().cast();
        let before = pool.slots;
        let got = pool.take(nr, node, slab, &mut stripe.free);
        if pool.slots != before {
            self.count(&pool);
            if pool.slots >= SPREAD_FROM {
                self.stripes.spread();
            }
        }
        got.then(|| stripe.free.pop()).flatten()
    }

    fn count(&self, pool: &MutexGuard<'_, Pool>) {
        // Relaxed: a number that bounds a batch.
        self.slots.store(pool.slots, Ordering::Relaxed);
    }

    // === taking them back ===

    /// Drops an object, and has its slot used again, when its readers have left.
    ///
    /// # Safety
    ///
    /// The object was given out by a slab, nobody has it any more, and no reader that enters from now on finds it.
    pub(crate) unsafe fn retire(object: NonNull<T>) {
        // SAFETY: its slot is not free.
        let shared = unsafe { Self::header(object) }.slab.cast::<Self>();
        // SAFETY: a slab's shared part is there while one of its slots is not free.
        let this = unsafe { &*shared };
        // SAFETY: nobody else ends it, so it is live. No lock is held, as this calls the owner's code.
        let weight = this.weigh(unsafe { object.as_ref() });
        let bytes = u64::from(weight);
        // SAFETY: it is not dropped yet (clause of the caller).
        let links = unsafe { T::links(object) };
        let here = this.stripes.here();
        let mut stripe = here.lock();
        if stripe.closed {
            if core::mem::needs_drop::<T>() {
                this.add_retired(bytes as i64);
            }
            let mut one = Bag::new();
            // SAFETY: the object is the caller's, and goes over to the bag.
            unsafe { one.push(T::SHAPE, links, weight) };
            #[cfg(all(feature = "std", not(lowwater_loom)))]
            {
                drop(stripe);
                // SAFETY: the slab was dropped, so no reader is in it, and nobody has the object. No lock is held.
                unsafe { Self::end_all(one) };
            }
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            if stripe.begin_drops(T::SHAPE, |_| core::mem::replace(&mut one, Bag::new())) {
                drop(stripe);
                // SAFETY: as there; and by its slot the slab's shared part is there, with this stripe.
                unsafe { Self::drop_some(shared, here, [one.pop(T::SHAPE), None]) };
            }
            return;
        }
        // SAFETY: the object is the caller's, and goes over to the bag.
        unsafe { stripe.open.push(T::SHAPE, links, weight) };
        stripe.open_bytes += bytes;
        if !core::mem::needs_drop::<T>() {
            stripe.beside_bytes += bytes;
        }
        this.count_retired(&mut stripe, bytes as i64);
        if stripe.open_bytes >= OPEN_BYTES_MAX || stripe.open.len as usize >= this.open_max() {
            this.seal(&mut stripe);
        } else if stripe.open.len % LOOK_EVERY == 0 {
            this.advance(&mut stripe, false);
        }
        if stripe.passed.len() == 0 {
            return;
        }
        let due = Self::due(&stripe);
        if !core::mem::needs_drop::<T>() {
            for _ in 0..due {
                let Some(links) = stripe.passed.pop(T::SHAPE) else { break };
                this.take_back(&mut stripe, links);
            }
            return;
        }
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        if nest::leave_to_outer::<T>(T::SHAPE, || stripe.passed.pop_some(T::SHAPE, due)) {
            return;
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        if !stripe.begin_drops(T::SHAPE, |passed| passed.pop_some(T::SHAPE, due)) {
            return;
        }
        let batch = core::array::from_fn(|n| (n < due).then(|| stripe.passed.pop(T::SHAPE)).flatten());
        drop(stripe);
        // SAFETY: they were of the stripe of this slab, so nobody has them; and their readers have left. The slab is there while one of
        // their slots is not free, and so are its stripes.
        unsafe { Self::drop_some(shared, here, batch) };
    }

    /// The object's weight, 4 GiB at most; if it panics, the size of its slot.
    #[inline]
    fn weigh(&self, object: &T) -> u32 {
        let mut bytes = size_of::<T>() as u64;
        if unwind::caught(|| bytes = object.weight()).is_none() {
            self.count_panic();
        }
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    #[cold]
    fn count_panic(&self) {
        // Relaxed: a number to look at.
        self.drop_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// How many objects may be in an open bag.
    fn open_max(&self) -> usize {
        // Relaxed: as in `count`.
        (self.slots.load(Ordering::Relaxed) / OPEN_PARTS).clamp(OPEN_MIN, OPEN_MAX)
    }

    /// Closes the open bag, and moves on what can be. A fence on every processor takes 20 us where other threads run, so there is one for two
    /// bags; or for more, where other stripes' fences come in between.
    fn seal(&self, stripe: &mut Stripe) {
        let is_second = stripe.seal(T::SHAPE, rcu::seal());
        self.advance(stripe, is_second);
    }

    pub(super) fn advance(&self, stripe: &mut Stripe, may_fence: bool) {
        let bytes = stripe.advance(T::SHAPE, may_fence);
        self.count_retired(stripe, (bytes as i64).wrapping_neg());
    }

    /// Counts so many bytes more that are retired, or less, if that is negative.
    #[inline]
    fn count_retired(&self, stripe: &mut Stripe, more: i64) {
        stripe.untold = stripe.untold.wrapping_add(more);
        if stripe.untold.unsigned_abs() >= TELL_EVERY {
            self.tell(stripe);
        }
    }

    /// Tells what the stripe has retired and dropped since it last did.
    fn tell(&self, stripe: &mut Stripe) {
        self.add_retired(core::mem::take(&mut stripe.untold));
    }

    /// Counts so many bytes more for everybody to see, or less, if that is negative.
    fn add_retired(&self, more: i64) {
        if more == 0 {
            return;
        }
        self.waiting.add(more);
        if let Some(total) = &self.total {
            total.add(more);
        }
    }

    /// Counts memory that was retired beside objects, which readers of the index hold back as they
    /// do these: until those readers have left that are inside now.
    pub(crate) fn retire_beside(&self, bytes: usize) {
        let mut stripe = self.stripes.here().lock();
        if !stripe.closed {
            stripe.open_bytes += bytes as u64;
            stripe.beside_bytes += bytes as u64;
            self.count_retired(&mut stripe, bytes as i64);
        }
    }

    /// How many objects to drop for one that is retired: one, so that slots come back as they are needed; more, when more than two bags passed,
    /// or what readers held back once would be as much from then on.
    fn due(stripe: &Stripe) -> usize {
        if stripe.passed.len() > 2 * stripe.bag_len {
            DROPS_MAX
        } else {
            1
        }
    }

    /// Drops objects without a lock, and then takes their slots back, under one; and so what calls of this inside of this one leave to it.
    /// The slab may be dropped meanwhile: then it goes with the last slot, and is not used after that.
    ///
    /// # Safety
    ///
    /// They are this slab's, at least one, of the stripe `here`; nobody has them, and their readers have left.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    #[inline]
    unsafe fn drop_some(this: *const Self, _here: *const Mutex<Stripe>, batch: Batch) {
        nest::Frame::with::<T>(|frame| {
            // SAFETY: the caller's promise on the objects is the same.
            let bytes = unsafe { Self::drop_batch(&batch) };
            // SAFETY: a slab's shared part is there while one of its slots is not free.
            let stripe = unsafe { &*this }.stripes.here().lock();
            // SAFETY: the batch is this slab's, and was dropped above.
            unsafe { Self::slots_back(this, stripe, batch, bytes) };
            while let Some(links) = frame.pop(T::SHAPE) {
                // SAFETY: whoever left it there had it from a bag whose readers have left, of a slab of this type. No lock is held.
                unsafe { Self::end(links) };
            }
        });
    }

    /// The same where no thread has memory of its own: what other calls leave to this one is in the stripe.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, at least one, of the stripe `here`; nobody has them, and their readers have left.
    /// [`Stripe::begin_drops`] of that stripe said that the caller should drop them.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    unsafe fn drop_some(this: *const Self, here: *const Mutex<Stripe>, mut batch: Batch) {
        loop {
            // SAFETY: the slab, and its stripe, is there while a slot of the batch is not free.
            let turn = super::stripe::Turn(unsafe { &*here });
            // SAFETY: the caller's promise on the objects is the same, or they are of the stripe's, which has the same from who left them.
            let bytes = unsafe { Self::drop_batch(&batch) };
            core::mem::forget(turn);
            // SAFETY: the slots of the batch are not free yet.
            let mut stripe = unsafe { &*here }.lock();
            let next: Batch = core::array::from_fn(|_| stripe.pending.pop(T::SHAPE));
            stripe.dropping = next[0].is_some();
            if next[0].is_none() {
                // SAFETY: the batch is this slab's, and was dropped above.
                return unsafe { Self::slots_back(this, stripe, batch, bytes) };
            }
            // SAFETY: the batch is this slab's, and was dropped above; `next` keeps the slab there.
            unsafe { Self::slots_back(this, stripe, batch, bytes) };
            batch = next;
        }
    }

    /// Drops objects. What was counted for them, in bytes.
    ///
    /// # Safety
    ///
    /// Nobody has the objects, their readers have left, and they are not used afterwards.
    #[inline]
    unsafe fn drop_batch(batch: &Batch) -> i64 {
        let mut bytes = 0;
        for &links in batch.iter().flatten() {
            // SAFETY: batches come from bags; the rest is the caller's promise.
            bytes += unsafe { Self::drop_object(links) };
        }
        bytes
    }

    /// Takes the slots of a batch back into a stripe, and counts its bytes down.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, and the stripe is; they were dropped, and nobody else knows their slots. The slab is not used
    /// afterwards, unless the caller knows of another slot that is not free.
    #[inline]
    unsafe fn slots_back(this: *const Self, mut stripe: MutexGuard<'_, Stripe>, batch: Batch, bytes: i64) {
        // SAFETY: the slab is there while a slot of the batch is not free; where the stripe is not closed, as long as its lock is
        // held, as the pool is closed after all stripes.
        let shared = unsafe { &*this };
        if !stripe.closed {
            shared.count_retired(&mut stripe, bytes.wrapping_neg());
            batch.into_iter().flatten().for_each(|links| shared.take_back(&mut stripe, links));
            return;
        }
        shared.add_retired(bytes.wrapping_neg());
        // Given back, not kept: the stripe may go with the last slot.
        let _held = crate::mutated!("slots_back_under_lock").then_some(stripe);
        for links in batch.into_iter().flatten() {
            // SAFETY: only a `T`'s links are in bags.
            let object = unsafe { T::from_links(links) };
            // SAFETY: it was dropped, and nobody else knows the slot, by the caller's promise.
            unsafe { Self::give_back(object) };
        }
    }

    /// Takes the slot of a dropped object back, into a stripe that is not closed.
    fn take_back(&self, stripe: &mut Stripe, links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // Relaxed: as in `refill`, and of `migrating` and `leaving`: hints, as in `Pool::begin_migration`.
        let is_ours = !self.mixed.load(Ordering::Relaxed) && !self.migrating.load(Ordering::Relaxed) || {
            // SAFETY: its slot is not free yet.
            let header = unsafe { Self::header(object) };
            header.node == stripe.node && !header.leaving.load(Ordering::Relaxed)
        };
        if !is_ours {
            // SAFETY: it was dropped, and nobody else knows the slot.
            return unsafe { Self::give_back(object) };
        }
        // SAFETY: the object was dropped by the caller, and nobody else knows the slot.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: it was dropped, and nobody else knows the slot.
        unsafe { stripe.free.push(object.cast()) };
        if stripe.free.len() > FREE_MAX {
            self.flush(stripe, &mut self.pool.lock(), FREE_MAX / 2);
        }
    }

    /// Gives a stripe's free slots back but for so many.
    fn flush(&self, stripe: &mut Stripe, pool: &mut MutexGuard<'_, Pool>, keep: u32) {
        let before = pool.slots;
        while stripe.free.len() > keep {
            let Some(slot) = stripe.free.pop() else { break };
            // SAFETY: its slot is not free for the pool.
            let number = unsafe { Self::header(slot.cast()) }.number;
            // SAFETY: it came from the pool, and nobody uses it.
            unsafe { pool.put(slot, number) };
        }
        if pool.slots != before {
            self.count(pool);
        }
    }

    /// Gives one slot back to the pool, and with the last one of a slab that is closed, the slab: unless the caller knows that there are
    /// other slots which are not free, or that the pool is not closed, it does not use the slab afterwards, nor hold one of its locks.
    ///
    /// # Safety
    ///
    /// The slot is one of a slab's, not free, what was in it is gone, and nobody else knows it.
    pub(super) unsafe fn give_back(object: NonNull<T>) {
        // SAFETY: its slot is not free.
        let header = unsafe { Self::header(object) };
        let shared = header.slab.cast::<Self>();
        // SAFETY: a slab's shared part is there while one of its slots is not free.
        let this = unsafe { &*shared };
        let mut pool = this.pool.lock();
        // SAFETY: the caller's clause: what was in the slot is gone, and nobody else knows it.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: it came from the pool, and nobody uses it.
        unsafe { pool.put(object.cast(), header.number) };
        let is_last = pool.closed && pool.free == pool.slots;
        drop(pool);
        if is_last {
            // SAFETY: it came from a box; its owner is gone, and so is every object: nobody is left who could reach it.
            drop(unsafe { Box::from_raw(shared.cast_mut()) });
        }
    }

    /// Drops an object, and gives its slot back, with what [`give_back`](Self::give_back) says of the slab.
    ///
    /// # Safety
    ///
    /// The links came from a bag, nobody has the object, its readers have left, and it is not used afterwards. No lock of the slab is held.
    unsafe fn end(links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: the caller's promise is the same.
        let bytes = unsafe { Self::drop_object(links) };
        // SAFETY: its slot is not free.
        let shared = unsafe { Self::header(object) }.slab.cast::<Self>();
        // SAFETY: a slab's shared part is there while one of its slots is not free.
        unsafe { &*shared }.add_retired(bytes.wrapping_neg());
        // SAFETY: it was dropped just now, and nobody else knows the slot.
        unsafe { Self::give_back(object) };
    }

    /// Drops an object. What was counted for it, in bytes. Its slot, which is not free yet, keeps the slab there, whatever the object's
    /// `Drop` does.
    ///
    /// # Safety
    ///
    /// The links came from a bag, nobody has the object, its readers have left, and it is not used afterwards.
    unsafe fn drop_object(links: NonNull<Hook>) -> i64 {
        if !core::mem::needs_drop::<T>() {
            return 0;
        }
        // SAFETY: the links came from a bag, and nobody else has the object (clause of the caller).
        let bytes = unsafe { Bag::weight(T::SHAPE, links) };
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: nobody has it, by the caller's promise.
        let drop_it = || unsafe { object.drop_in_place() };
        if unwind::caught(drop_it).is_none() {
            // SAFETY: its slot is not free.
            let shared = unsafe { Self::header(object) }.slab.cast::<Self>();
            // SAFETY: a slab's shared part is there while one of its slots is not free.
            unsafe { &*shared }.count_panic();
        }
        i64::from(bytes)
    }

    /// Drops objects and gives their slots back, as [`end`](Self::end), or leaves them to a call on this thread that does so already.
    ///
    /// # Safety
    ///
    /// They are of slabs of this type, nobody has them, their readers have left, and no lock of a slab is held.
    unsafe fn end_all(mut bag: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        if core::mem::needs_drop::<T>() {
            if nest::leave_to_outer::<T>(T::SHAPE, || core::mem::replace(&mut bag, Bag::new())) {
                return;
            }
            return nest::Frame::with::<T>(|frame| {
                while let Some(links) = bag.pop(T::SHAPE).or_else(|| frame.pop(T::SHAPE)) {
                    // SAFETY: the caller's promise is the same, and that of whoever left it in the frame.
                    unsafe { Self::end(links) };
                }
            });
        }
        while let Some(links) = bag.pop(T::SHAPE) {
            // SAFETY: the caller's promise is the same.
            unsafe { Self::end(links) };
        }
    }

    // === all at once ===

    /// Seals everything, drops what can be dropped, `most` objects at most, and gives free slots back. What had to stay, in bytes.
    pub(super) fn collect(&self, most: usize) -> u64 {
        self.seal_all();
        self.drop_passed(most);
        self.waiting.get().get()
    }

    /// Seals what is open in every stripe, without a fence: so that one is enough for all.
    pub(super) fn seal_all(&self) {
        for stripe in self.stripes.all() {
            let mut stripe = stripe.lock();
            if stripe.open.len != 0 || stripe.open_bytes != 0 {
                stripe.seal(T::SHAPE, rcu::seal());
            }
        }
    }

    /// Drops what is sealed and can be dropped, `most` objects at most; gives free slots back, and
    /// tells exactly what stays. How many it dropped.
    pub(super) fn drop_passed(&self, most: usize) -> usize {
        let mut left = most;
        for stripe in self.stripes.all() {
            self.advance(&mut stripe.lock(), true);
            left -= self.empty(stripe, left);
        }
        most - left
    }

    /// Gives empty chunks that are kept for the next objects back to the system.
    pub(super) fn give_spare_back(&self) {
        self.pool.lock().give_spare_back();
    }

    /// Drops what a stripe's readers have left, `most` at most, and gives its free slots back. How many it dropped.
    fn empty(&self, stripe: &Mutex<Stripe>, most: usize) -> usize {
        // Each turn makes the bag smaller; what others add meanwhile is theirs to drop.
        let all = most.min(stripe.lock().passed.len() as usize);
        let mut left = all;
        loop {
            let mut locked = stripe.lock();
            let batch = locked.passed.pop_some(T::SHAPE, left.min(COLLECT));
            self.flush(&mut locked, &mut self.pool.lock(), 0);
            self.tell(&mut locked);
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            let batch = {
                let mut batch = batch;
                if batch.len != 0 {
                    locked.begin_drops(T::SHAPE, |_| core::mem::replace(&mut batch, Bag::new()));
                }
                batch
            };
            drop(locked);
            left = left.saturating_sub(COLLECT);
            if batch.len != 0 {
                // SAFETY: they were in the slab's bags, so nobody has them; their readers have left, and the lock was given back.
                unsafe { Self::end_passed(stripe, batch) };
            }
            if left == 0 {
                return all;
            }
        }
    }

    /// As [`end_all`](Self::end_all), for what is of this stripe of a slab that stays.
    ///
    /// # Safety
    ///
    /// As there. Without `std`, [`Stripe::begin_drops`] of that stripe said that the caller should.
    unsafe fn end_passed(stripe: &Mutex<Stripe>, batch: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        {
            let _ = stripe;
            // SAFETY: the caller's promise is the same.
            unsafe { Self::end_all(batch) };
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        {
            let mut batch = batch;
            while batch.len != 0 {
                let turn = super::stripe::Turn(stripe);
                // SAFETY: the caller's promise is the same, or they were left by somebody who had them from the stripe's bags.
                unsafe { Self::end_all(batch) };
                core::mem::forget(turn);
                let mut stripe = stripe.lock();
                batch = core::mem::replace(&mut stripe.pending, Bag::new());
                stripe.dropping = batch.len != 0;
            }
        }
    }

    // === moving what is left together ===

    /// Are most slots of some node free, but for those that stripes have at hand?
    pub(super) fn is_sparse(&self) -> bool {
        self.pool.lock().is_sparse()
    }

    /// Has the emptiest chunks emptied, as [`Pool::begin_migration`]. 0 if some are already.
    pub(super) fn begin_migration(&self) -> usize {
        // Relaxed: a hint, as in `take_back`; who begins ends it.
        if self.migrating.swap(true, Ordering::Relaxed) {
            return 0;
        }
        for stripe in self.stripes.all() {
            let mut stripe = stripe.lock();
            self.flush(&mut stripe, &mut self.pool.lock(), 0);
        }
        let slots = self.pool.lock().begin_migration();
        if slots == 0 {
            self.end_migration();
        }
        slots
    }

    /// As [`Pool::end_migration`].
    pub(super) fn end_migration(&self) {
        self.pool.lock().end_migration();
        // Relaxed: a hint, as in `take_back`.
        self.migrating.store(false, Ordering::Relaxed);
    }

    /// Of which node is an object, if it is in a chunk that is to be emptied?
    ///
    /// # Safety
    ///
    /// As for [`header`](Self::header).
    pub(crate) unsafe fn leaves(object: NonNull<T>) -> Option<NodeId> {
        // SAFETY: the caller's promise is the same.
        let header = unsafe { Self::header(object) };
        // Relaxed: a hint, as in `Pool::begin_migration`.
        header.leaving.load(Ordering::Relaxed).then_some(header.node)
    }

    /// The owner is gone, and with it every reader.
    ///
    /// # Safety
    ///
    /// `this` came from a box; the caller does not use it afterwards. No reader has a reference to one of its objects.
    pub(super) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: it lives at least until the pool is closed below.
        let shared = unsafe { this.as_ref() };
        for stripe in shared.stripes.all() {
            let mut locked = stripe.lock();
            locked.closed = true;
            let mut all = core::mem::replace(&mut locked.open, Bag::new());
            let mut beside = core::mem::take(&mut locked.beside_bytes);
            for mut sealed in locked.sealed.iter_mut().filter_map(Option::take) {
                beside += sealed.bytes;
                all.append(T::SHAPE, &mut sealed.bag);
            }
            locked.untold = locked.untold.wrapping_sub(beside as i64);
            shared.tell(&mut locked);
            all.append(T::SHAPE, &mut locked.passed.take());
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            all.append(T::SHAPE, &mut locked.pending);
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
        size_of::<Self>() + self.stripes.footprint() + self.pool.lock().footprint()
    }

    /// Slots that no stripe has.
    #[cfg(all(test, lowwater_loom))]
    pub(crate) fn free(&self) -> usize {
        self.pool.lock().free
    }

    /// Slots that are not free, those at hand in stripes included.
    #[cfg(test)]
    pub(crate) fn out(&self) -> usize {
        let pool = self.pool.lock();
        pool.slots - pool.free
    }

    pub(super) fn assert_valid(&self) {
        self.pool.lock().assert_valid();
    }
}
