//! Inserts and replacements: an object enters the index under the lock of its segment.
//!
//! The caller's `add` runs between the choice of a way (a bucket's place for one object) and the
//! store of the object's number there, under the segment's lock, so that the list to which `add`
//! adds the object and the index agree about each object. A change must ensure
//! that the index is unchanged if `add` refuses or panics, and that nothing is dropped while the
//! lock is held.

use super::present::Present;
use super::removal::{Entered, Removed};
use super::segment::LockedSegment;
use super::{ExtendibleIndex, InsertError};
use crate::slab::{Slot, Slotted};
use core::ptr;
use lowwater_base::hash::mix;
use lowwater_base::NodeId;
use lowwater_rcu::Guard;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Inserts an object. If an object with `hash` is present for which `is(present, new)` returns
    /// true, meaning that both have the same key, the new object replaces it. Returns the replaced
    /// object and the result of `add`.
    ///
    /// `add` is called under the segment's lock, with the handle, and with the object that is to be
    /// replaced and the node of its memory. It either stores the handle with its owner (and, for a
    /// replacement, removes the replaced object's handle from there) or returns the handle as an
    /// error; then the index is unchanged. `hasher` returns the hash of any object. If it panics
    /// for one while a segment grows, that object is hidden: no lookup finds it any more, only
    /// [`visit`](Self::visit) and [`remove_shown`](Self::remove_shown) do. The insert completes.
    /// Without `std` the panic reaches the caller, and hides nothing.
    ///
    /// The handle of the replaced object may be dropped at any time: during `add` the object is
    /// still in the index, and its life ends when this function removes it.
    ///
    /// `is` and `add` may panic: the index is then unchanged, but effects of `add` up to the panic
    /// remain. None of them may change this index or call [`with`](Self::with): they run
    /// under the lock of one segment, so the thread would deadlock with itself.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives the reason and returns the handle.
    ///
    /// # Panics
    ///
    /// If the object is in another slab than this index's.
    #[inline(always)] // The closures have many captures, which a call would store and load.
    pub fn insert<'g, R>(
        &'g self,
        slot: Slot<T>,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&T, &T) -> bool,
        hasher: &impl Fn(&T) -> u64,
        add: impl FnOnce(Slot<T>, Option<(&'g T, NodeId)>) -> Result<R, Slot<T>>,
    ) -> Result<(Option<&'g T>, R), InsertError<T>> {
        let slot = self.unindexed(slot)?;
        let hash = mix(hash);
        // Declared before the lock so that they are dropped after it: dropping them may drop
        // objects.
        let (mut entered, mut replaced) = (Entered(None), Removed::<T>(None));
        let mut grows = true;
        let (mut segment, there, place) = loop {
            let Ok(segment) = self.lock(hash, guard) else { return Err(InsertError::NoMemory(slot)) };
            if let Some(there) = Present::find(&segment, hash, |there| is(there, &slot)) {
                break (segment, Some(there), there.place);
            }
            match segment.room(hash) {
                // No memory to grow: the segment becomes fuller than it should be.
                Some(place) if !(grows && segment.is_full()) => break (segment, None, place),
                None if !grows => return Err(InsertError::NoMemory(slot)),
                _ => grows = self.grow_full(segment, hash, guard, hasher),
            }
        };
        let present = there.map(|there| (there.object(), there.node()));
        let (number, added) = entered.enter(slot, |slot| add(slot, present)).map_err(InsertError::Refused)?;
        match there {
            Some(there) => Self::replace_number(&mut segment, there, number, &mut replaced),
            None => segment.put(hash, place, number),
        }
        Ok((there.map(|there| there.object()), added))
    }

    /// Puts an object in the place of `present`, an object of this index with the same key and the
    /// same `hash`. Returns the new object, which stays readable while the guard exists, and the
    /// result of `swap`.
    ///
    /// As [`insert`](Self::insert), but with less work: no key is compared, no segment grows, and
    /// no other object is hashed. `swap` has the duties of `insert`'s `add`; it is called with the
    /// node of the memory of `present`.
    ///
    /// # Errors
    ///
    /// [`InsertError::Refused`] if `present` is not in the index under this hash (it was removed or
    /// replaced meanwhile), or if `swap` returns the handle; [`InsertError::Indexed`] as for
    /// `insert`. The index is unchanged.
    ///
    /// # Panics
    ///
    /// If the object is in another slab than this index's.
    #[inline(always)] // As for `insert`.
    pub fn replace<'g, R>(
        &'g self,
        slot: Slot<T>,
        hash: u64,
        guard: &'g Guard,
        present: &'g T,
        swap: impl FnOnce(Slot<T>, NodeId) -> Result<R, Slot<T>>,
    ) -> Result<(&'g T, R), InsertError<T>> {
        let slot = self.unindexed(slot)?;
        let hash = mix(hash);
        // Declared before the lock so that they are dropped after it, as in `insert`.
        let (mut entered, mut replaced) = (Entered(None), Removed::<T>(None));
        let Some(mut segment) = self.lock_if_any(hash, guard) else { return Err(InsertError::Refused(slot)) };
        let found = Present::find(&segment, hash, |there| ptr::eq(there, present));
        let Some(there) = found else { return Err(InsertError::Refused(slot)) };
        let (number, swapped) = entered.enter(slot, |slot| swap(slot, there.node())).map_err(InsertError::Refused)?;
        Self::replace_number(&mut segment, there, number, &mut replaced);
        // The segment's lock is held, so the object is in the index at this moment, and is not
        // freed while `guard` exists.
        Ok((self.object(number), swapped))
    }

    /// Grows a full segment of this hash. Returns false if there is no memory. Objects for which
    /// `hasher` panics are hidden. Out of line, and by value: a reference would keep the segment of
    /// the common case in memory.
    #[cold]
    #[inline(never)]
    fn grow_full(&self, segment: LockedSegment<'_>, hash: u64, guard: &Guard, hasher: &impl Fn(&T) -> u64) -> bool {
        let mut segment = segment;
        loop {
            if let Some(grown) = self.grow_or_hide(segment, guard, hasher) {
                let _moved = grown.is_ok() && self.tidy(guard);
                return grown.is_ok();
            }
            match self.lock_if_any(hash, guard) {
                Some(again) if again.is_full() => segment = again,
                // Another thread has grown it, or has removed objects.
                _ => return true,
            }
        }
    }

    /// Returns the handle if its object can be inserted.
    #[inline]
    fn unindexed(&self, slot: Slot<T>) -> Result<Slot<T>, InsertError<T>> {
        assert!(self.slab.has(&slot), "an object can be inserted only into the index of its own slab");
        match slot.state().is_indexed() {
            true => Err(InsertError::Indexed(slot)),
            false => Ok(slot),
        }
    }

    /// Stores `number`, of an object that is marked as indexed, in the way of `there`. That object
    /// is removed from the index, and goes to `replaced` if it has no handle any more.
    #[inline]
    fn replace_number(segment: &mut LockedSegment<'_>, there: Present<'_, T>, number: u32, replaced: &mut Removed<T>) {
        segment.replace(there.place, number);
        // SAFETY: the object was found under this lock, and `replace` has just removed it.
        unsafe { there.leave(replaced) };
    }
}
