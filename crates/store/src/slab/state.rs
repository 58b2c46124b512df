//! A byte of state inside each object of a slab: two bits for the slab and the index, six for the
//! owner.
//!
//! Slab, index and owner share one byte because an object has few bytes to spare. The owner is the
//! code that keeps objects in the slab, such as a cache. The two upper bits decide whether the
//! thread that drops the object's handle or the one that removes it from the index retires it.
//!
//! A change must ensure that each transition is a single read-modify-write, or happens while no
//! other thread changes the two upper bits, for the reason stated at the method.

use crate::sync::atomic::{AtomicU8, Ordering};
use core::fmt;

/// Set while the object is in an index: it is then not freed when its [`Slot`](super::Slot) is
/// dropped.
const INDEXED: u8 = 1 << 7;
/// Set when the object enters an index: readers may use it from then on. Cleared when the handle
/// of an indexed object is dropped: `INDEXED` without this bit tells the thread that removes the
/// object to retire it.
const SEEN: u8 = 1 << 6;

/// One byte of state inside an object that lives in a [`Slab`](super::Slab): six bits are the
/// owner's, for any use.
pub struct SlotState(AtomicU8);

impl SlotState {
    /// The mask of the six bits that belong to the owner: the six lower ones.
    pub const OWN: u8 = SEEN - 1;

    /// Creates the state of an object that is in no index; of `bits` only [`OWN`](Self::OWN) are
    /// kept.
    #[inline]
    pub fn new(bits: u8) -> Self {
        Self(AtomicU8::new(bits & Self::OWN))
    }

    /// Returns the owner's six bits; the two bits of the slab read as 0. The load is relaxed: it
    /// does not order accesses to other memory.
    #[inline]
    pub fn bits(&self) -> u8 {
        // Relaxed: hints; data that must be seen with them has its own ordering.
        self.0.load(Ordering::Relaxed) & Self::OWN
    }

    /// Changes the owner's bits to the result of `change`, which is called again if another thread
    /// changes them meanwhile; `None` leaves them unchanged. Of the result only [`OWN`](Self::OWN)
    /// are kept.
    #[inline]
    pub fn update(&self, mut change: impl FnMut(u8) -> Option<u8>) {
        // Relaxed: hints, as in `bits`; the exchange is of one byte.
        let _unchanged = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            change(all & Self::OWN).map(|bits| all & !Self::OWN | bits & Self::OWN)
        });
    }

    #[inline]
    pub(crate) fn is_indexed(&self) -> bool {
        // Acquire: pairs with the Release in `leave` and `leave_held`, so that a thread that finds
        // the object in no index, and retires it, does so after the removal.
        let ordering = if crate::mutated!("indexed_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        self.0.load(ordering) & INDEXED != 0
    }

    /// Returns true if the object is still in an index. For a caller that has stored the handle
    /// where other threads look for it: either the thread that removes the object finds the stored
    /// handle, or this function returns false. See [`Slot::is_indexed`](super::Slot::is_indexed).
    #[inline]
    pub fn is_still_indexed(&self) -> bool {
        // AcqRel and a read-modify-write: of this one and that in `leave`, the later synchronizes
        // with the earlier, so one of the two threads sees everything that the other did before.
        // (`leave_held` only stores: its caller has the handle, and looks for none.)
        if crate::mutated!("still_indexed_by_a_load") {
            // Acquire: this mutant is wrong with any ordering.
            return self.0.load(Ordering::Acquire) & INDEXED != 0;
        }
        self.0.fetch_or(0, Ordering::AcqRel) & INDEXED != 0
    }

    #[inline]
    pub(crate) fn was_seen(&self) -> bool {
        // Relaxed: the caller has the handle, which it got from the thread that set the bit. While
        // the handle exists, only `withdraw` clears the bit, and no reader saw that object.
        self.0.load(Ordering::Relaxed) & SEEN != 0
    }

    /// Marks the object as indexed, before it is inserted. The caller has its handle; readers may
    /// hold references if it was in an index before.
    #[inline]
    pub(crate) fn enter(&self) {
        // Relaxed, all: the next owner of the handle gets it from the caller.
        let all = self.0.load(Ordering::Relaxed);
        if all & SEEN == 0 || crate::mutated!("entered_by_a_store") {
            // A plain store: no other thread has access to the object yet.
            self.0.store(all | INDEXED | SEEN, Ordering::Relaxed);
        } else {
            self.0.fetch_or(INDEXED, Ordering::Relaxed);
        }
    }

    /// Undoes [`enter`](Self::enter) after a failed insertion; no reader saw the object.
    #[inline]
    pub(crate) fn withdraw(&self) {
        // Relaxed, both: as in `enter`, the next owner of the handle gets it from the caller. A
        // plain store: no other thread has access.
        self.0.store(self.0.load(Ordering::Relaxed) & !(INDEXED | SEEN), Ordering::Relaxed);
    }

    /// Marks the object as not indexed, after it was removed. Returns true if its handle has been
    /// dropped, so that the caller has to retire it.
    #[inline]
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // Release: pairs with the Acquire in `is_indexed`. Acquire: pairs with the Release in
        // `abandon` and in `is_still_indexed`.
        let before = self.0.fetch_and(!INDEXED, Ordering::AcqRel);
        before & (INDEXED | SEEN) == INDEXED && !crate::mutated!("left_without_an_end")
    }

    /// As [`leave`](Self::leave), for a caller that has the object's handle and the lock of its
    /// segment. Sets the owner's bits in the same store; a concurrent [`update`](Self::update) may
    /// be lost.
    #[inline]
    pub(crate) fn leave_held(&self, bits: u8) {
        // Relaxed: the handle exists, so no other thread clears `SEEN`, and `is_still_indexed`
        // changes nothing. So no change of the two upper bits is lost between this load and the
        // store.
        let all = self.0.load(Ordering::Relaxed);
        let bits = bits & Self::OWN;
        // Release: pairs with the Acquire in `is_indexed` and in `is_still_indexed`.
        let ordering = if crate::mutated!("left_held_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.0.store(all & SEEN | bits, ordering);
    }

    /// Records that the handle is dropped. Returns true if the caller has to retire the object.
    /// Returns false if the object is in an index: the thread that removes it will retire it.
    #[inline]
    pub(crate) fn drop_handle(&self) -> bool {
        !self.is_indexed() || self.abandon()
    }

    #[cold]
    fn abandon(&self) -> bool {
        // Release: pairs with the Acquire in `leave`, so that everything done through the handle
        // happens before the object's drop.
        let release = if crate::mutated!("abandon_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        // Acquire, if the object was removed meanwhile: pairs with the Release in `leave`, as in
        // `is_indexed`.
        self.0.fetch_update(release, Ordering::Acquire, |all| (all & INDEXED != 0).then_some(all & !SEEN)).is_err()
    }
}

impl fmt::Debug for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotState").field(&self.bits()).finish()
    }
}
