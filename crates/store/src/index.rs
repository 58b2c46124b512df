//! From key to object: a hash table that readers read without a lock and without writing, and that never does much at once.
//!
//! ```text
//!     hash:  first bits -> directory -> segment     middle bits -> bucket     last bits: tag
//!
//!     directory  an array of segments, twice as long whenever a segment has used up its bits
//!     segment    up to 101 buckets and a lock for those who change it; full: replaced by a larger one, or by two
//!     bucket     a cache line: 12 tags, 12 numbers of objects, and how many more are further on
//! ```
//!
//! The index does not know what a key is: callers bring the hash, and say which object they mean. Objects live in the index's own
//! [`Slab`]; somebody else, such as a list, owns their handles. So an object is in two places, and whoever takes it out of the index, which
//! one thread does, is the one to end it.
//!
//! # How much at once
//!
//! A put or a removal works in one segment, under its lock: one line, or a few. Now and then the segment is full, or much too large: then
//! the at most 1,010 objects in it are put into one or two others, which costs a look at each. A directory is doubled by copying: 16 bytes
//! for 500 objects. In a large index another segment may be copied, as it is, so that memory can go back (`pool.rs`). Objects whose
//! hashes do not differ (a bad hasher) make one segment larger and larger, which stays correct.
//!
//! # What a reader sees
//!
//! An object stays where it was put until it is taken out; a full segment is replaced as a whole, and left as it is for those readers that
//! have it. So what a reader answers was true at some moment of its call:
//!
//! * *Found*: the object's tag was seen beside its number (`bucket.rs` has the order), in a segment that either is in use, or was when the
//!   reader came to it.
//! * *Not found*: a key that is there all the time is in one way of one bucket of every segment that was its own during the call, the
//!   same until the segment was replaced, and the buckets before it say that there is more. A put under a key that is there replaces the
//!   number in its way, by one store. If it was taken out and put in elsewhere while the reader looked, it was not there in between.
//! * A directory that was replaced, or a segment, was in use when the reader found it, which was during the call.
//!
//! # Orderings
//!
//! Each step publishes what is behind it by a Release, and is followed by an Acquire: directory, segment, number. Tags: see `bucket.rs`.
//! Held by `tests/loom.rs`.
//!
//! # Why not another
//!
//! A table behind sharded locks makes every reader write to a shared line, and grows by moving everything under one lock. Tables of others
//! without locks (papaya, scc, flurry) own what is in them, so they cannot hold objects that a list owns; and they forget nothing.

mod bucket;
mod class;
mod cursor;
mod directory;
mod first_probe;
mod growth;
mod insert_error;
mod maintenance;
mod mix;
mod pool;
mod removal;
mod resize;
mod segment;
mod segment_header;
#[cfg(test)]
mod tests;
mod visit;

pub use cursor::Cursor;
pub(crate) use directory::Directory;
pub use first_probe::FirstProbe;
pub use insert_error::InsertError;

use crate::slab::{RetiredBytes, SharedSlab, Slab, Slot, Slotted};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Arc, Mutex};
use core::fmt;
use core::ptr;
use growth::Growth;
use lowwater_lru_core::AllocError;
use lowwater_rcu::Guard;
use mix::mix;
use removal::{Entered, Out};
use segment::{LockedSegment, View};

/// See the [module](self).
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
/// let hash = |entry: &Entry| entry.key; // Better: a hash of it.
/// let index = ExtendibleIndex::<Entry>::new();
/// let entry = Entry { links: CompressedLinks::new(), state: SlotState::new(0), key: 7, value: "seven".into() };
/// let slot = index.slab().alloc(entry, NodeId::ZERO).map_err(|_| "no memory")?;
///
/// let guard = pin();
/// // A list would own the handle; here a variable does.
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
    /// An empty index, and its slab: as large as this itself, and no more.
    pub fn new() -> Self {
        Self::of(Slab::new())
    }

    /// An empty index whose objects, and segments, are counted in `retired` when they are retired:
    /// see [`RetiredBytes`].
    pub fn with_retired(retired: Arc<RetiredBytes>) -> Self {
        Self::of(Slab::with_retired(retired))
    }

    fn of(slab: Slab<T>) -> Self {
        let (directory, growth) = (AtomicPtr::new(ptr::null_mut()), Mutex::new(Growth::new()));
        Self { directory, growth, slab }
    }

    /// Where the objects live that can be put in.
    pub fn slab(&self) -> &Slab<T> {
        &self.slab
    }

    /// The object of `hash` that `is` wanted. No lock, nothing written.
    #[inline(always)] // A call would cost a sixth of what it does.
    pub fn get<'g>(&'g self, hash: u64, guard: &'g Guard, is: impl Fn(&T) -> bool) -> Option<&'g T> {
        let hash = mix(hash);
        let view = self.view(hash, guard)?;
        match view.probe_first(hash, |number| self.wanted(number, &is)) {
            FirstProbe::Found(object) => Some(object),
            FirstProbe::Absent => None,
            FirstProbe::Overflowed => view.beyond(hash, |number| self.wanted(number, &is)),
        }
    }

    /// The first half of [`get`](Self::get): looks into the one line where nearly every object is. For who wants to do on the spot what is
    /// nearly always to be done, and leave all else, the [`get`](Self::get) among it, to a function that is not inlined.
    #[inline(always)] // As there.
    pub fn probe_first<'g>(&'g self, hash: u64, guard: &'g Guard, is: impl Fn(&T) -> bool) -> FirstProbe<&'g T> {
        let hash = mix(hash);
        let Some(view) = self.view(hash, guard) else { return FirstProbe::Absent };
        view.probe_first(hash, |number| self.wanted(number, &is))
    }

    #[inline(always)] // As above.
    fn wanted(&self, number: u32, is: impl Fn(&T) -> bool) -> Option<&T> {
        let object = self.object(number);
        is(object).then_some(object)
    }

    /// Brings the lines of a hash closer, for who will put an object in or take one out soon.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        let hash = mix(hash);
        if let Some(view) = self.view(hash, guard) {
            view.prefetch(hash);
        }
    }

    /// Puts an object in, in the place of the one of `hash` that `is` the same by key (asked with that one, and with the new one), if
    /// there is one. Returns that one, and what `add` returned.
    ///
    /// `add` is called under a lock, with the handle and the one that is there: it is to put the handle where it belongs (and, if
    /// another is replaced, take that one's handle off), or give it back, and then nothing is changed. `hasher` says the hash of any object.
    ///
    /// The handle of the one that is replaced may be dropped at any time: inside `add` that one is in the index still, and ends when this
    /// takes it out.
    ///
    /// All three may panic, and the index is not changed; what was done by `add` until then stays. All three must not change this index, nor
    /// call [`with`](Self::with): they are called under the lock of a part of it, for which a thread would wait for itself.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, with the handle.
    ///
    /// # Panics
    ///
    /// If the object is in another slab than this index's.
    pub fn insert<'g, R>(
        &'g self,
        slot: Slot<T>,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T, &T) -> bool,
        hasher: &impl Fn(&T) -> u64,
        add: impl FnOnce(Slot<T>, Option<&'g T>) -> Result<R, Slot<T>>,
    ) -> Result<(Option<&'g T>, R), InsertError<T>> {
        assert!(self.slab.has(&slot), "an object can be put in the index only whose slab it is in");
        if slot.state().is_indexed() {
            return Err(InsertError::Indexed(slot));
        }
        let hash = mix(hash);
        // Before the lock, so that they are dropped after it: they may drop objects.
        let (mut entered, mut replaced) = (Entered(None), Out::<T>(None));
        let (mut segment, there, place) = loop {
            let Ok(mut segment) = self.lock(hash, guard) else { return Err(InsertError::NoMemory(slot)) };
            if let Some(place) = segment.find(hash, |number| is(self.object(number), &slot)) {
                let there = self.object(segment.number(place));
                break (segment, Some(there), place);
            }
            let room = segment.room(hash);
            match room {
                Some(place) if !segment.is_full() => break (segment, None, place),
                _ => {}
            }
            match (self.grow(&mut segment, guard, hasher), room) {
                (Ok(()), _) => {
                    drop(segment);
                    let _moved = self.tidy(guard);
                }
                // It is fuller than it should be, until there is memory.
                (Err(AllocError), Some(place)) => break (segment, None, place),
                (Err(AllocError), None) => return Err(InsertError::NoMemory(slot)),
            }
        };
        let object = slot.0;
        // SAFETY: it has a handle.
        let number = unsafe { SharedSlab::number(object) };
        let was_seen = slot.state().was_seen();
        slot.state().enter();
        // Should `add` refuse or panic: whatever it did with the handle.
        entered.0 = Some(object);
        let added = match add(slot, there) {
            Ok(added) => added,
            Err(slot) => {
                if slot.0 == object && !was_seen {
                    slot.state().withdraw();
                    entered.0 = None;
                }
                return Err(InsertError::Refused(slot));
            }
        };
        entered.0 = None;
        if there.is_some() {
            // SAFETY: it is in the index, whose lock is held.
            let before = unsafe { SharedSlab::at(segment.number(place)) };
            segment.replace(place, number);
            // SAFETY: it was in the index until now, and is there while the guard is. This thread took it out.
            unsafe { replaced.take(before) };
        } else {
            segment.put(hash, place, number);
        }
        Ok((there, added))
    }

    /// Takes the object of `hash` out that `is` wanted, and calls `gone` with it, under the same lock. What `gone` returned comes with
    /// the object, which stays where it is while the guard is there.
    ///
    /// The object's end is the caller's: its handle, wherever it is, is to be dropped. If it was, the object ends with this.
    ///
    /// If `is` panics, nothing is changed. If `gone` does, or `hasher`, the object has been taken out; and what `gone` returned is dropped,
    /// without the lock. As with [`insert`](Self::insert), none of them must change this index, nor call [`with`](Self::with).
    pub fn remove<'g, R>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        hasher: &impl Fn(&T) -> u64,
        gone: impl FnOnce(&'g T) -> R,
    ) -> Option<(&'g T, R)> {
        let hash = mix(hash);
        // Before the lock, so that they are dropped after it: the result if the hasher panics, the object if it has no handle any more.
        let result;
        let mut out = Out::<T>(None);
        let mut segment = self.lock_there(hash, guard)?;
        let place = segment.find(hash, |number| is(self.object(number)))?;
        let number = segment.number(place);
        let object = self.object(number);
        segment.take(hash, place);
        // SAFETY: it was in the index until now, and is there while the guard is.
        let taken = unsafe { SharedSlab::at(number) };
        // SAFETY: as for `taken`, and this thread took it out.
        unsafe { out.take(taken) };
        result = gone(object);
        if segment.is_sparse() {
            // Without memory it stays as large as it is.
            let shrunk = self.shrink(&mut segment, guard, hasher);
            drop(segment);
            if shrunk.is_ok() {
                let _moved = self.tidy(guard);
            }
        }
        Some((object, result))
    }

    /// As [`remove`](Self::remove), of an object that [`visit`](Self::visit) shows next at `at`,
    /// whatever its hash: for one whose hash is not what it was, and that nobody finds. None if it
    /// is not there; another part of the index may have it, if segments were split meanwhile.
    /// O(objects of one segment).
    pub fn remove_shown<'g, R>(
        &'g self,
        at: &Cursor,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        gone: impl FnOnce(&'g T) -> R,
    ) -> Option<(&'g T, R)> {
        // Before the lock, so that the object is dropped after it, if it has no handle any more.
        let mut out = Out::<T>(None);
        let mut segment = self.lock_there(at.0?, guard)?;
        let place = segment.find_anywhere(|number| is(self.object(number)))?;
        let number = segment.number(place);
        let object = self.object(number);
        segment.take_anywhere(place);
        // SAFETY: it was in the index until now, and is there while the guard is.
        let taken = unsafe { SharedSlab::at(number) };
        // SAFETY: as for `taken`, and this thread took it out.
        unsafe { out.take(taken) };
        Some((object, gone(object)))
    }

    /// The object of a handle, which stays where it is while the guard is there, whatever becomes
    /// of the handle. None of a handle that is no object's of this index, or of one that was never
    /// in an index.
    pub fn borrow<'g>(&'g self, slot: &Slot<T>, _guard: &'g Guard) -> Option<&'g T> {
        if !self.slab.has(slot) || !slot.state().was_seen() {
            return None;
        }
        // SAFETY: it has a handle now. An object that was seen is not moved out of its slot
        // (`Slot::into_inner`), and is dropped no earlier than every reader leaves that was inside
        // when its handle was dropped, as the guard's is, or with its slab, which is borrowed.
        Some(unsafe { slot.0.as_ref() })
    }

    /// Calls `f` with the object of `hash` that `is` wanted, under the lock under which it would be taken out. Both may panic; as with
    /// [`insert`](Self::insert), neither must change this index, nor call this.
    pub fn with<'g, R>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T) -> bool,
        f: impl FnOnce(&'g T) -> R,
    ) -> Option<R> {
        let hash = mix(hash);
        let segment = self.lock_there(hash, guard)?;
        let place = segment.find(hash, |number| is(self.object(number)))?;
        Some(f(self.object(segment.number(place))))
    }

    fn each_segment(&self, directory: &Directory, mut f: impl FnMut(View<'_>)) {
        let mut at = 0;
        while at < directory.len() {
            // SAFETY: callers have a guard, or the only access.
            let view = unsafe { directory.view(at) };
            f(view);
            at += 1 << (directory.depth() - view.header().depth.min(directory.depth()));
        }
    }

    #[inline]
    fn directory<'g>(&self, _guard: &'g Guard) -> Option<&'g Directory> {
        // Acquire: meets the Release in `begin` and in `replace`, so that the array is seen filled.
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: a published directory is live in the read side.
        (!directory.is_null()).then(|| unsafe { &*directory })
    }

    #[inline]
    fn view<'g>(&self, hash: u64, guard: &'g Guard) -> Option<View<'g>> {
        let directory = self.directory(guard)?;
        // SAFETY: what it holds is live in the read side.
        Some(unsafe { directory.view_of(hash) })
    }

    /// The segment of a hash, locked; none if there is none at all.
    #[inline]
    fn lock_there<'g>(&self, hash: u64, guard: &'g Guard) -> Option<LockedSegment<'g>> {
        loop {
            let segment = self.view(hash, guard)?.lock();
            if !segment.is_dead() {
                return Some(segment);
            }
            // Replaced while we waited; the directory has another by now.
        }
    }

    /// The segment of a hash, locked; made if it is the first.
    #[inline]
    fn lock<'g>(&self, hash: u64, guard: &'g Guard) -> Result<LockedSegment<'g>, AllocError> {
        loop {
            match self.lock_there(hash, guard) {
                Some(segment) => return Ok(segment),
                None => self.begin()?,
            }
        }
    }

    /// The object of a number that was read in the read side, or under a segment's lock.
    #[inline]
    fn object(&self, number: u32) -> &T {
        // SAFETY: it is in the index, or was when the caller came into the read side: it is not freed before that is left.
        let object = unsafe { SharedSlab::<T>::at(number) };
        // SAFETY: as above; objects in an index are only shared.
        unsafe { object.as_ref() }
    }
}

impl<T: Slotted> Default for ExtendibleIndex<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Slotted> Drop for ExtendibleIndex<T> {
    /// What is in it is not any more; the objects live on with their handles, and those end that have none any more. O(objects).
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // Not in the read side, which would hold back what leaves other indices for as long as this takes.
        // Acquire: as in `directory`.
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: nobody else is here to replace it, and it is freed below.
        if let Some(directory) = unsafe { directory.as_ref() } {
            let end = |number| {
                // SAFETY: it is in the index, so its slot is not free.
                let object = unsafe { SharedSlab::<T>::at(number) };
                // SAFETY: its slot is not free; nobody else takes it out, and no reader is left to find it.
                unsafe { Out(None).take(object) };
            };
            self.each_segment(directory, |view| view.each(end));
        }
        self.free();
    }
}

impl<T: Slotted> fmt::Debug for ExtendibleIndex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendibleIndex").field("slab", &self.slab).finish_non_exhaustive()
    }
}
