//! A byte inside each object of a slab: two bits of ours, six of the owner's.

use crate::sync::atomic::{AtomicU8, Ordering};
use core::fmt;

/// Is the object in an index? Then it is not freed, whoever drops its [`Slot`](super::Slot).
const INDEXED: u8 = 1 << 7;
/// Was it ever? Then readers may look at it. An object that is in an index without this has no handle any more: its end is for whoever
/// takes it out.
const SEEN: u8 = 1 << 6;

/// One byte of state inside an object that lives in a [`Slab`](super::Slab): six bits are the owner's, to do with what it wants.
pub struct SlotState(AtomicU8);

impl SlotState {
    /// The bits that are the owner's.
    pub const OWN: u8 = SEEN - 1;

    /// The state of an object that is nowhere yet; of `bits` only [`OWN`](Self::OWN) are kept.
    pub fn new(bits: u8) -> Self {
        Self(AtomicU8::new(bits & Self::OWN))
    }

    /// The owner's bits.
    #[inline]
    pub fn bits(&self) -> u8 {
        // Relaxed: hints; what must be seen with them has its own order.
        self.0.load(Ordering::Relaxed) & Self::OWN
    }

    /// Changes the owner's bits as `change` says, which may be asked again if another thread changes them meanwhile; none: they
    /// stay. Of what it says only [`OWN`](Self::OWN) are kept.
    #[inline]
    pub fn update(&self, mut change: impl FnMut(u8) -> Option<u8>) {
        // Relaxed: as in `bits`; the exchange is of one word.
        let _unchanged = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            change(all & Self::OWN).map(|bits| all & !Self::OWN | bits & Self::OWN)
        });
    }

    pub(crate) fn is_indexed(&self) -> bool {
        // Acquire: meets the Release in `leave`, so that who finds it in no index, and retires it, does so after it was taken out.
        let ordering = if crate::mutated!("indexed_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        self.0.load(ordering) & INDEXED != 0
    }

    /// Is the object in an index still, for whoever has put its handle where others look for it:
    /// either whoever takes the object out finds the handle there, or this is false. See
    /// [`Slot::is_indexed`](super::Slot::is_indexed).
    pub fn is_still_indexed(&self) -> bool {
        // AcqRel, and an exchange: of this one and that in `leave` the later meets the earlier, so
        // one of the two sees what the other did before.
        if crate::mutated!("still_indexed_by_a_load") {
            // Acquire: it is wrong anyway.
            return self.0.load(Ordering::Acquire) & INDEXED != 0;
        }
        self.0.fetch_or(0, Ordering::AcqRel) & INDEXED != 0
    }

    pub(crate) fn was_seen(&self) -> bool {
        // Relaxed: set by who had the handle, which came from there; it stays, unless nobody saw the object.
        self.0.load(Ordering::Relaxed) & SEEN != 0
    }

    /// Before it is put in. The caller has its handle; readers may have the object, if it was in an index before.
    pub(crate) fn enter(&self) {
        // Relaxed, all: who has the handle next gets it from the caller.
        let all = self.0.load(Ordering::Relaxed);
        if all & SEEN == 0 || crate::mutated!("entered_by_a_store") {
            // No exchange: nobody else knows it.
            self.0.store(all | INDEXED | SEEN, Ordering::Relaxed);
        } else {
            self.0.fetch_or(INDEXED, Ordering::Relaxed);
        }
    }

    /// It was not put in after all; nobody saw it.
    pub(crate) fn withdraw(&self) {
        // Relaxed, both: as in `enter`. No exchange: nobody saw it.
        self.0.store(self.0.load(Ordering::Relaxed) & !(INDEXED | SEEN), Ordering::Relaxed);
    }

    /// After it was taken out. Is its handle gone, so that its end is the caller's?
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // Release: meets the Acquire in `is_indexed`. Acquire: meets the Release in `abandon` and in
        // `is_still_indexed`.
        let before = self.0.fetch_and(!INDEXED, Ordering::AcqRel);
        before & (INDEXED | SEEN) == INDEXED && !crate::mutated!("left_without_an_end")
    }

    /// Its handle is dropped. Is its end the caller's? Else it is in an index, and is for whoever takes it out.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        !self.is_indexed() || self.abandon()
    }

    #[cold]
    fn abandon(&self) -> bool {
        // Release: meets the Acquire in `leave`, so that all that was done by the handle comes before the object's end.
        let release = if crate::mutated!("abandon_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        // Acquire, if it was taken out meanwhile: as in `is_indexed`.
        self.0.fetch_update(release, Ordering::Acquire, |all| (all & INDEXED != 0).then_some(all & !SEEN)).is_err()
    }
}

impl fmt::Debug for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotState").field(&self.bits()).finish()
    }
}
