//! How the links of one kind of object name each other: by address, or by the number of the object's slot.
//!
//! Lists do not know the type of what is on them, so they are told the shape of its links.

use super::{Hook, Links, SlotLinks};
use crate::slab::{Place, Slotted};
use crate::sync::UnsafeCell;
use core::ptr::{self, NonNull};

/// What links name other links by: their address, or a number as an address that is none. Null: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref(*mut Hook);

/// The shape of the links of one kind of object; a part of [`Linked`](super::Linked).
#[derive(Debug)]
pub struct Shape {
    /// None: by address.
    slots: Option<Place>,
}

/// Links that are on a list, and what other links name them by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) at: NonNull<Hook>,
    pub(crate) by: Ref,
}

impl Ref {
    pub(crate) const NONE: Self = Self(ptr::null_mut());

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0.is_null()
    }

    #[inline]
    pub(super) const fn of_number(number: u32) -> Self {
        Self::of_bits(number as u64)
    }

    #[inline]
    pub(super) fn number(self) -> u32 {
        self.bits() as u32
    }

    /// As many of these bits as a pointer has.
    #[inline]
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(ptr::without_provenance_mut(bits as usize))
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0.addr() as u64
    }
}

impl Shape {
    /// [`Links`], of objects that may be anywhere.
    pub const ANYWHERE: &'static Self = &Self { slots: None };

    /// [`SlotLinks`], so many bytes into each `T`. Only a slot is a handle of one, so what is on a list is in a slot.
    pub const fn in_slots<T: Slotted>(offset: usize) -> Self {
        Self { slots: Some(Place::of::<T>(offset)) }
    }

    pub(super) fn is_in_slots(&self) -> bool {
        self.slots.is_some()
    }

    /// The links that are named.
    ///
    /// # Safety
    ///
    /// None are, or those of an object that is live, or of a mark that was lent this name.
    #[inline]
    pub(crate) unsafe fn find(&self, by: Ref) -> Option<NonNull<Hook>> {
        match &self.slots {
            None => NonNull::new(by.0),
            Some(_) if by.is_none() => None,
            // SAFETY: by the shape a live object is in a slot; the rest says the caller.
            Some(place) => NonNull::new(unsafe { place.at(by.number()) }.cast()),
        }
    }

    /// As [`find`](Self::find), where some are.
    ///
    /// # Safety
    ///
    /// As there, and some are.
    #[inline]
    pub(crate) unsafe fn get(&self, by: Ref) -> NonNull<Hook> {
        // SAFETY: the caller's promise is the same.
        let found = unsafe { self.find(by) };
        // SAFETY: as above.
        unsafe { found.unwrap_unchecked() }
    }

    /// Brings the object closer whose links are named, if it is in a slot.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find).
    #[inline]
    pub(super) unsafe fn prefetch(&self, by: Ref) {
        if let (Some(place), false) = (&self.slots, by.is_none()) {
            // SAFETY: by the shape a live object is in a slot; the rest says the caller.
            unsafe { place.prefetch(by.number()) };
        }
    }

    /// What links are named by.
    ///
    /// # Safety
    ///
    /// They are of this shape, in an object that its owner turned into the pointer from which this one came.
    #[inline]
    pub(crate) unsafe fn node(&self, at: NonNull<Hook>) -> Node {
        let by = match &self.slots {
            None => Ref(at.as_ptr()),
            // SAFETY: by the shape the object is in a slot, and the pointer is for all of its chunk.
            Some(place) => Ref::of_number(unsafe { place.number(at.as_ptr().cast()) }),
        };
        Node { at, by }
    }

    /// As [`node`](Self::node), for a mark, which is in no slot. `None`: there is no number, nor memory for more.
    pub(super) fn lend(&self, at: NonNull<Hook>) -> Option<Node> {
        let by = match &self.slots {
            None => Ref(at.as_ptr()),
            Some(place) => Ref::of_number(place.lend(at.cast())?),
        };
        Some(Node { at, by })
    }

    /// Takes back what was lent.
    ///
    /// # Safety
    ///
    /// It was, and the mark is on no list.
    pub(crate) unsafe fn give_back(&self, by: Ref) {
        if let Some(place) = &self.slots {
            // SAFETY: the caller says so.
            unsafe { place.give_back(by.number()) };
        }
    }

    /// # Safety
    ///
    /// `of` is live, and the caller is the one who may touch its `next` (the hook's invariants 1 to 3).
    #[inline]
    pub(crate) unsafe fn next(&self, of: NonNull<Hook>) -> Ref {
        // SAFETY: the caller's promise is the same.
        unsafe { self.read(of, |links| &links.next, |links| &links.next) }
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub(super) unsafe fn prev(&self, of: NonNull<Hook>) -> Ref {
        // SAFETY: the caller's promise is the same.
        unsafe { self.read(of, |links| &links.prev, |links| &links.prev) }
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next).
    #[inline]
    pub(super) unsafe fn set_next(&self, of: NonNull<Hook>, to: Ref) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.write(of, to, |links| &links.next, |links| &links.next) };
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub(super) unsafe fn set_prev(&self, of: NonNull<Hook>, to: Ref) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.write(of, to, |links| &links.prev, |links| &links.prev) };
    }

    /// Keeps 32 bits in links that are on no list, or on a [`RawQueue`](super::RawQueue), which has no use for `prev`.
    ///
    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub(crate) unsafe fn set_spare(&self, of: NonNull<Hook>, bits: u32) {
        // SAFETY: the clause of the caller is that of `set_prev`.
        unsafe { self.set_prev(of, Ref::of_number(bits)) };
    }

    /// What [`set_spare`](Self::set_spare) kept last.
    ///
    /// # Safety
    ///
    /// As there; and the links were on no list but a queue since.
    #[inline]
    pub(crate) unsafe fn spare(&self, of: NonNull<Hook>) -> u32 {
        // SAFETY: the clause of the caller is that of `prev`.
        unsafe { self.prev(of) }.number()
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of the cell that both choose.
    #[inline]
    unsafe fn read(
        &self,
        of: NonNull<Hook>,
        links: impl Fn(&Links) -> &UnsafeCell<Ref>,
        slot_links: impl Fn(&SlotLinks) -> &UnsafeCell<u32>,
    ) -> Ref {
        if self.is_in_slots() {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = slot_links(unsafe { of.cast().as_ref() });
            // SAFETY: nobody else touches it, says the caller.
            Ref::of_number(cell.with(|number| unsafe { *number }))
        } else {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = links(unsafe { of.cast().as_ref() });
            // SAFETY: nobody else touches it, says the caller.
            cell.with(|by| unsafe { *by })
        }
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of the cell that both choose.
    #[inline]
    unsafe fn write(
        &self,
        of: NonNull<Hook>,
        to: Ref,
        links: impl Fn(&Links) -> &UnsafeCell<Ref>,
        slot_links: impl Fn(&SlotLinks) -> &UnsafeCell<u32>,
    ) {
        if self.is_in_slots() {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = slot_links(unsafe { of.cast().as_ref() });
            // SAFETY: nobody else touches it, says the caller.
            cell.with_mut(|number| unsafe { *number = to.number() });
        } else {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = links(unsafe { of.cast().as_ref() });
            // SAFETY: nobody else touches it, says the caller.
            cell.with_mut(|by| unsafe { *by = to });
        }
    }
}
