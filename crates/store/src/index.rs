//! An extendible hash index: readers take no lock and write nothing, and no single operation
//! redistributes more than one segment.
//!
//! ```text
//!     hash:  first bits -> directory -> segment     middle bits -> bucket     last bits: tag
//!
//!     directory  an array of segments, twice as long whenever a segment has used up its bits
//!     segment    up to 101 buckets and a lock for writers; full: replaced by a larger one, or by two
//!     bucket     a cache line: 12 tags, 12 object numbers, and overflow counts
//! ```
//!
//! The index does not interpret keys: callers pass the hash and a closure that recognizes the
//! object. Objects live in the index's own [`Slab`]; their handles are owned elsewhere, for example
//! by a list. So an object is referenced from two places. Exactly one thread removes it from the
//! index, and that thread also has to end the object's life by dropping its handle.
//!
//! The hash of an object must not change while the object is in the index. A removal decrements
//! overflow counts by the hash that it is called with: if that has the object's tag but is not the
//! hash of the insert, these may be the counts of another object, which lookups then do not find.
//! After another insert of that object's key, lookups may find the older of the two objects later.
//!
//! # Work per operation
//!
//! An insert or a removal works in one segment, under the segment's lock, and touches one cache
//! line or a few. When a segment is full, or much too large, its at most 1,010 objects are
//! redistributed into one or two new segments; each object is read once for its hash. The directory
//! is doubled by copying: 16 bytes for 500 objects. In a large index such an operation also copies
//! one other segment unchanged, if that helps to release memory (`pool.rs`). Objects with equal
//! hashes (a bad hasher) make one segment larger and larger; the index stays correct.
//!
//! # What a reader sees
//!
//! An object stays in its way until it is removed. A full segment is replaced as a whole, and the
//! old segment stays unchanged for the readers that hold a reference to it. So the result of a
//! lookup was true at some moment during the call:
//!
//! * *Found*: the reader saw the object's tag beside its number (`bucket.rs` has the order), in a
//!   segment that is in use, or was in use when the reader loaded its address.
//! * *Not found*: a key that is present during the whole call is in one way of one bucket of every
//!   segment that serves its hash during the call. The way stays the same until the segment is
//!   replaced, and the buckets before it have a non-zero overflow count. An insert under an
//!   existing key replaces the number in the way by a single store. A key that was removed and
//!   inserted elsewhere during the lookup was absent in between.
//! * A directory or a segment that has been replaced was in use when the reader loaded its address,
//!   which was during the call.
//!
//! # Orderings
//!
//! Each publishing step is a Release store, read by an Acquire load: directory, segment, number.
//! Tags: see `bucket.rs`. Checked by `tests/loom.rs`.
//!
//! # Alternatives
//!
//! A table behind sharded locks makes every reader write to a shared cache line, and grows by
//! moving all entries under one lock. Existing lock-free tables (papaya, scc, flurry) own their
//! entries, so they cannot hold objects that a list owns, and they do not evict.

mod bucket;
mod class;
mod cursor;
mod directory;
mod first_probe;
mod growth;
mod hidden;
mod insert;
mod insert_error;
mod maintenance;
mod pool;
mod present;
mod removal;
mod resize;
mod segment;
mod segment_header;
mod tag;
#[cfg(test)]
mod tests;
mod visit;

pub use cursor::Cursor;
pub(crate) use directory::Directory;
pub use first_probe::{FirstProbe, Held, HeldProbe};
pub use insert_error::InsertError;

use crate::slab::{RetiredBytes, SharedSlab, Slab, Slot, Slotted};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Arc, Mutex};
use core::fmt;
use core::ptr::{self, NonNull};
use growth::Growth;
use lowwater_base::hash::mix;
use lowwater_base::unwind::caught;
use lowwater_lru_core::AllocError;
use lowwater_rcu::Guard;
use present::Present;
use removal::Removed;
use segment::{LockedSegment, View};

/// An extendible hash index of the objects of its own slab; see the [module](self).
///
/// ```
/// use lowwater_base::NodeId;
/// use lowwater_rcu::pin;
/// use lowwater_store::{index::ExtendibleIndex, slab::SlotState, slotted, CompressedLinks};
///
/// struct Entry {
///     links: CompressedLinks,
///     state: SlotState,
///     key: u64,
///     value: String,
/// }
/// slotted!(impl[] for Entry { links, state, weight: |entry| (size_of_val(entry) + entry.value.capacity()) as u64 });
///
/// let hash = |entry: &Entry| entry.key; // Better: a hash of the key.
/// let index = ExtendibleIndex::<Entry>::new();
/// let entry = Entry { links: CompressedLinks::new(), state: SlotState::new(0), key: 7, value: "seven".into() };
/// let slot = index.slab().alloc(entry, NodeId::ZERO).map_err(|_| "no memory")?;
///
/// let guard = pin();
/// // In a program a list would own the handle; here a variable does.
/// let (replaced, slot) = index.insert(slot, 7, &guard, |there, new| there.key == new.key, &hash, |slot, _| Ok(slot)).unwrap();
/// assert!(replaced.is_none());
/// assert_eq!(index.get(7, &guard, |entry| entry.key == 7).unwrap().value, "seven");
/// assert!(index.remove(7, &guard, |entry| entry.key == 7, &hash, |_| ()).is_some());
/// drop(slot); // Freed when its readers have left.
/// # Ok::<(), &str>(())
/// ```
pub struct ExtendibleIndex<T: Slotted> {
    directory: AtomicPtr<Directory>,
    growth: Mutex<Growth>,
    slab: Slab<T>,
}

impl<T: Slotted> ExtendibleIndex<T> {
    /// Creates an empty index with an empty slab. Allocates nothing.
    pub fn new() -> Self {
        Self::of(Slab::new())
    }

    /// Creates an empty index that adds the bytes of its retired objects and segments to `retired`:
    /// see [`RetiredBytes`].
    pub fn with_retired(retired: Arc<RetiredBytes>) -> Self {
        Self::of(Slab::with_retired(retired))
    }

    fn of(slab: Slab<T>) -> Self {
        let (directory, growth) = (AtomicPtr::new(ptr::null_mut()), Mutex::new(Growth::new()));
        Self { directory, growth, slab }
    }

    /// Returns the slab in which all objects of this index live.
    pub fn slab(&self) -> &Slab<T> {
        &self.slab
    }

    /// Finds the object with `hash` for which `is` returns true. Takes no lock and writes nothing.
    #[inline(always)] // A call would cost a sixth of the lookup.
    pub fn get<'g>(&'g self, hash: u64, guard: &'g Guard, is: impl Fn(&T) -> bool) -> Option<&'g T> {
        let hash = mix(hash);
        let view = self.view(hash, guard)?;
        match view.probe_first(hash, |number| self.wanted(number, &is)) {
            FirstProbe::Found(object) => Some(object),
            FirstProbe::Absent => None,
            FirstProbe::Undecided => view.probe_all(hash, |number| self.wanted(number, &is)),
        }
    }

    /// Runs the first half of [`get`](Self::get): probes only the first object with the tag of
    /// `hash` in the home bucket, one cache line, which nearly always decides. For callers that
    /// inline the common case and leave everything else, including the [`get`](Self::get), to a
    /// function that is not inlined.
    #[inline(always)] // As for `get`: a call would cost a sixth of the lookup.
    pub fn probe_first<'g>(&'g self, hash: u64, guard: &'g Guard, is: impl Fn(&T) -> bool) -> FirstProbe<&'g T> {
        let hash = mix(hash);
        let Some(view) = self.view(hash, guard) else { return FirstProbe::Absent };
        view.probe_first(hash, |number| self.wanted(number, &is))
    }

    /// As [`probe_first`](Self::probe_first), with a guard that the result takes over.
    #[doc(hidden)]
    #[inline(always)] // As for `get`: a call would cost a sixth of the lookup.
    pub fn probe_held(&self, hash: u64, guard: Guard, is: impl Fn(&T) -> bool) -> HeldProbe<'_, T> {
        match self.probe_first(hash, &guard, is) {
            FirstProbe::Found(object) => {
                let object = NonNull::from(object);
                // SAFETY: the object was found in this index, which the result borrows, under
                // `guard`.
                HeldProbe::Found(unsafe { Held::new(object, guard) })
            }
            FirstProbe::Absent => HeldProbe::Absent(guard),
            FirstProbe::Undecided => HeldProbe::Undecided(guard),
        }
    }

    /// Runs the second half of [`get`](Self::get), after [`FirstProbe::Undecided`]. It needs no
    /// first half, and is only slower without one.
    #[doc(hidden)]
    #[inline]
    pub fn get_undecided<'g>(&'g self, hash: u64, guard: &'g Guard, is: impl Fn(&T) -> bool) -> Option<&'g T> {
        let hash = mix(hash);
        self.view(hash, guard)?.probe_all(hash, |number| self.wanted(number, &is))
    }

    #[inline(always)] // As for `get`, its caller.
    fn wanted(&self, number: u32, is: impl Fn(&T) -> bool) -> Option<&T> {
        let object = self.object(number);
        is(object).then_some(object)
    }

    /// Prefetches the segment header and the home bucket of `hash`, for an insert or a removal that
    /// follows soon.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        let hash = mix(hash);
        if let Some(view) = self.view(hash, guard) {
            view.prefetch(hash);
        }
    }

    /// Removes the object with `hash` for which `is` returns true, and calls `gone` with it under
    /// the same lock. Returns the object, which stays readable while the guard exists, and the
    /// result of `gone`.
    ///
    /// The caller has to end the object's life by dropping its handle, wherever that is. If the
    /// handle has been dropped already, this call retires the object.
    ///
    /// If `is` panics, nothing is changed. If `gone` panics, the object has been removed. A removal
    /// may shrink the segment, for which `hasher` hashes other objects; if it panics, the segment
    /// keeps its size, and with `std` the panic is discarded, as another object caused it. As with
    /// [`insert`](Self::insert), none of the closures may change this index or call
    /// [`with`](Self::with).
    pub fn remove<'g, R>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        hasher: &impl Fn(&T) -> u64,
        gone: impl FnOnce(&'g T) -> R,
    ) -> Option<(&'g T, R)> {
        let hash = mix(hash);
        // Declared before the lock so that the object is dropped after it, if its handle has been
        // dropped.
        let mut removed_object = Removed::<T>(None);
        let mut segment = self.lock_if_any(hash, guard)?;
        let there = Present::find(&segment, hash, is)?;
        segment.take(hash, there.place);
        // SAFETY: this thread removed the object from the index just now.
        unsafe { there.leave(&mut removed_object) };
        let result = gone(there.object());
        if segment.is_sparse() {
            self.shrink_sparse(segment, guard, hasher);
        }
        Some((there.object(), result))
    }

    /// Removes the object of a handle: as [`remove`](Self::remove), with less work, because no key
    /// is compared. Under the segment's lock, `change` gets the owner's bits of the object's
    /// [state](crate::slab::SlotState) and returns the new ones; a concurrent
    /// [`update`](crate::slab::SlotState::update) may be lost. Returns false if the object is not
    /// in the index under this hash. If `change` panics, the object stays in the index.
    #[inline(always)] // Called in a loop, with closures.
    pub fn remove_slot(
        &self,
        slot: &Slot<T>,
        hash: u64,
        guard: &Guard,
        hasher: &impl Fn(&T) -> u64,
        change: impl FnOnce(u8) -> u8,
    ) -> bool {
        let hash = mix(hash);
        // SAFETY: an object with a `Slot` is in a slab, and its slot is not free.
        let number = unsafe { SharedSlab::number(slot.0) };
        let Some(mut segment) = self.lock_if_any(hash, guard) else { return false };
        let Some(place) = segment.find(hash, |there| there == number) else { return false };
        // Before the removal, so that a panic changes nothing.
        let bits = change(slot.state().bits());
        segment.take(hash, place);
        slot.state().leave_held(bits);
        if segment.is_sparse() {
            self.shrink_sparse(segment, guard, hasher);
        }
        true
    }

    /// Shrinks a segment after a removal. Without memory, or if `hasher` panics, the segment stays
    /// as large as it is. Without `std` that panic reaches the caller, after the removal.
    #[cold]
    #[inline(never)]
    fn shrink_sparse(&self, mut segment: LockedSegment<'_>, guard: &Guard, hasher: &impl Fn(&T) -> u64) {
        // After a panic the lock is released before the payload is dropped, which is user code.
        let shrunk = caught(move || self.shrink(&mut segment, guard, hasher));
        if shrunk == Some(Ok(())) {
            let _moved = self.tidy(guard);
        }
    }

    /// Removes the first object for which `is` returns true from the segment that
    /// [`visit`](Self::visit) would show at `at`, whatever the object's hash: for an object that no
    /// lookup finds because its hash has changed. Returns `None` if no object of the segment is
    /// wanted; after a split the object may be in another segment. O(objects of one segment). Does
    /// not correct the overflow counts of other slots, so `assert_valid` may panic until the
    /// segment is replaced; lookups find all objects.
    pub fn remove_shown<'g, R>(
        &'g self,
        at: &Cursor,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        gone: impl FnOnce(&'g T) -> R,
    ) -> Option<(&'g T, R)> {
        // Declared before the lock so that the object is dropped after it, if its handle has been
        // dropped.
        let mut removed_object = Removed::<T>(None);
        let mut segment = self.lock_if_any(at.0?, guard)?;
        let place = segment.find_anywhere(|number| is(self.object(number)))?;
        let there = Present::at(&segment, place);
        segment.take_anywhere(place);
        // SAFETY: this thread removed the object from the index just now.
        unsafe { there.leave(&mut removed_object) };
        Some((there.object(), gone(there.object())))
    }

    /// Borrows the object of a handle for as long as the guard exists, even if the handle is
    /// dropped meanwhile. Returns `None` if the handle's object is in another slab, was never in an
    /// index, or is being inserted at the moment: the caller of the insert may get it back and take
    /// it out of its slot. May also return `None` if a concurrent insert moves the object to
    /// another segment. O(1) for an object that has left the index, O(objects) for one in it.
    pub fn borrow<'g>(&'g self, slot: &Slot<T>, guard: &'g Guard) -> Option<&'g T> {
        if !self.slab.has(slot) || !slot.state().was_seen() {
            return None;
        }
        // An object that is marked as indexed may have the mark for its first insert, which can
        // still be refused. Once its number is in the index, that is over.
        if slot.state().is_indexed() && !self.shows(slot, guard) {
            return None;
        }
        // SAFETY: the handle exists at this moment. The object was in an index: it is there now, or
        // has left it with the mark that readers may have seen it, which an insert that is refused
        // does not leave behind. Such an object is not moved out of its slot (`Slot::into_inner`).
        // It is dropped only after every reader has left that was inside when its handle was
        // dropped, and `guard` is such a reader; or together with its slab, which is borrowed for
        // `'g`.
        Some(unsafe { slot.0.as_ref() })
    }

    /// Returns whether a walk over the index finds the object of this handle.
    fn shows(&self, slot: &Slot<T>, guard: &Guard) -> bool {
        let (mut at, mut is_there) = (Cursor::new(), false);
        while !at.is_done() && !is_there {
            self.visit(&mut at, guard, |object| is_there |= ptr::eq(object, &**slot));
        }
        is_there
    }

    /// Calls `f` with the object with `hash` for which `is` returns true, under the lock that a
    /// removal would take. Both closures may panic; as with [`insert`](Self::insert), neither may
    /// change this index or call `with`.
    pub fn with<'g, R>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        f: impl FnOnce(&'g T) -> R,
    ) -> Option<R> {
        let hash = mix(hash);
        let segment = self.lock_if_any(hash, guard)?;
        let there = Present::find(&segment, hash, is)?;
        Some(f(there.object()))
    }

    fn each_segment(&self, directory: &Directory, mut f: impl FnMut(View<'_>)) {
        let mut at = 0;
        while at < directory.len() {
            // SAFETY: callers hold a guard or have exclusive access, so no segment is freed
            // meanwhile.
            let view = unsafe { directory.view(at) };
            f(view);
            at += 1 << (directory.depth() - view.header().depth.min(directory.depth()));
        }
    }

    #[inline]
    fn directory<'g>(&self, _guard: &'g Guard) -> Option<&'g Directory> {
        // Acquire: pairs with the Release in `begin` and in `replace_segment`, so that the array is
        // seen filled.
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: a published directory is retired only after its replacement is published, and not
        // freed while `_guard` exists.
        (!directory.is_null()).then(|| unsafe { &*directory })
    }

    #[inline]
    fn view<'g>(&self, hash: u64, guard: &'g Guard) -> Option<View<'g>> {
        let directory = self.directory(guard)?;
        // SAFETY: the directory's segments are not freed while `guard` exists.
        Some(unsafe { directory.view_of(hash) })
    }

    /// Returns the segment of a hash, locked; `None` if the index has no segment yet.
    #[inline]
    fn lock_if_any<'g>(&self, hash: u64, guard: &'g Guard) -> Option<LockedSegment<'g>> {
        loop {
            let segment = self.view(hash, guard)?.lock();
            if !segment.is_dead() {
                return Some(segment);
            }
            // The segment was replaced while this thread waited for its lock; the directory now has
            // its successor.
        }
    }

    /// Returns the segment of a hash, locked; creates the first segment if there is none.
    #[inline]
    fn lock<'g>(&self, hash: u64, guard: &'g Guard) -> Result<LockedSegment<'g>, AllocError> {
        loop {
            match self.lock_if_any(hash, guard) {
                Some(segment) => return Ok(segment),
                None => self.begin()?,
            }
        }
    }

    /// Returns the object of a number that was read inside a read-side section, or under a
    /// segment's lock.
    #[inline]
    fn object(&self, number: u32) -> &T {
        // SAFETY: the number was in the index when the caller entered its read-side section or took
        // the segment's lock, so its slot is not freed before the caller leaves.
        let object = unsafe { SharedSlab::<T>::at(number) };
        // SAFETY: the object is live, because its slot is not freed before the caller leaves its
        // read-side section or releases the segment's lock; and objects in an index are only
        // borrowed shared.
        unsafe { object.as_ref() }
    }
}

impl<T: Slotted> Default for ExtendibleIndex<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Slotted> Drop for ExtendibleIndex<T> {
    /// Removes all objects from the index. Objects with a handle live on; objects without a handle
    /// are retired. O(objects).
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // Without a read-side section, which would delay the reclamation of other indices for as
        // long as this takes. Acquire: pairs with the Release in `begin` and in `replace_segment`.
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: `&mut self`: no other thread can replace the directory, and it is freed below.
        if let Some(directory) = unsafe { directory.as_ref() } {
            let end = |number| {
                // SAFETY: the number is in the index, so its slot is not free.
                let object = unsafe { SharedSlab::<T>::at(number) };
                // SAFETY: the slot is not free, no other thread removes the object (`&mut self`),
                // and no reader is left to find it.
                unsafe { Removed(None).take(object) };
            };
            self.each_segment(directory, |view| view.each(|number, _| end(number)));
        }
        self.free();
    }
}

impl<T: Slotted> fmt::Debug for ExtendibleIndex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendibleIndex").field("slab", &self.slab).finish_non_exhaustive()
    }
}
