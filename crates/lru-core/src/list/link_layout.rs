//! How the links of one kind of object name each other: by address, or by the number of the object's slot.
//!
//! Lists do not know the type of what is on them, so they are told the shape of its links.

use super::compressed_links::CompressedLinks;
use super::hook::Hook;
use super::link_ref::{LinkNode, LinkRef};
use super::links::Links;
use crate::sync::UnsafeCell;
use core::ptr::NonNull;
use lowwater_base::slots::PtrCompressor;

/// The shape of the links of one kind of object; a part of [`Linked`](super::Linked).
#[derive(Debug)]
pub struct LinkLayout {
    /// None: by address.
    slots: Option<PtrCompressor>,
}

impl LinkLayout {
    /// [`Links`], of objects that may be anywhere.
    pub const ANYWHERE: &'static Self = &Self { slots: None };

    /// [`CompressedLinks`], `offset` bytes into each `T`. Safe code calls
    /// [`in_slots`](super::in_slots()) instead.
    ///
    /// # Safety
    ///
    /// Each `T` on a list of this layout is in a slot of a chunk that is laid out as
    /// [`ChunkLayout::of::<T>()`](lowwater_base::slots::ChunkLayout::of) and registered.
    pub(super) const unsafe fn in_slots<T>(offset: usize) -> Self {
        Self { slots: Some(PtrCompressor::of::<T>(offset)) }
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
    pub unsafe fn find(&self, by: LinkRef) -> Option<NonNull<Hook>> {
        match &self.slots {
            None => NonNull::new(by.0),
            Some(_) if by.is_none() => None,
            // SAFETY: by the shape a live object is in a slot; the rest says the caller.
            Some(place) => NonNull::new(unsafe { place.decompress(by.number()) }.cast()),
        }
    }

    /// As [`find`](Self::find), where some are.
    ///
    /// # Safety
    ///
    /// As there, and some are.
    #[inline]
    pub unsafe fn get(&self, by: LinkRef) -> NonNull<Hook> {
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
    pub(super) unsafe fn prefetch(&self, by: LinkRef) {
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
    pub unsafe fn node(&self, at: NonNull<Hook>) -> LinkNode {
        let by = match &self.slots {
            None => LinkRef(at.as_ptr()),
            // SAFETY: by the shape the object is in a slot, and the pointer is for all of its chunk.
            Some(place) => LinkRef::of_number(unsafe { place.compress(at.as_ptr().cast()) }),
        };
        LinkNode { at, by }
    }

    /// As [`node`](Self::node), for a mark, which is in no slot. `None`: there is no number, nor memory for more.
    pub(super) fn register_external(&self, at: NonNull<Hook>) -> Option<LinkNode> {
        let by = match &self.slots {
            None => LinkRef(at.as_ptr()),
            Some(place) => LinkRef::of_number(place.register_external(at.cast())?),
        };
        Some(LinkNode { at, by })
    }

    /// Takes back what was lent.
    ///
    /// # Safety
    ///
    /// It was, and the mark is on no list.
    pub unsafe fn unregister_external(&self, by: LinkRef) {
        if let Some(place) = &self.slots {
            // SAFETY: the caller says so.
            unsafe { place.unregister_external(by.number()) };
        }
    }

    /// # Safety
    ///
    /// `of` is live, and the caller is the one who may touch its `next` (the hook's invariants 1 to 3).
    #[inline]
    pub unsafe fn next(&self, of: NonNull<Hook>) -> LinkRef {
        // SAFETY: the caller's promise is the same.
        unsafe { self.read(of, |links| &links.next, |links| &links.next) }
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub(super) unsafe fn prev(&self, of: NonNull<Hook>) -> LinkRef {
        // SAFETY: the caller's promise is the same.
        unsafe { self.read(of, |links| &links.prev, |links| &links.prev) }
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next).
    #[inline]
    pub(super) unsafe fn set_next(&self, of: NonNull<Hook>, to: LinkRef) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.write(of, to, |links| &links.next, |links| &links.next) };
    }

    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub(super) unsafe fn set_prev(&self, of: NonNull<Hook>, to: LinkRef) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.write(of, to, |links| &links.prev, |links| &links.prev) };
    }

    /// Keeps 32 bits in links that are on no list, or on a [`RawQueue`](super::RawQueue), which has no use for `prev`.
    ///
    /// # Safety
    ///
    /// As for [`next`](Self::next), of `prev`.
    #[inline]
    pub unsafe fn set_spare(&self, of: NonNull<Hook>, bits: u32) {
        // SAFETY: the clause of the caller is that of `set_prev`.
        unsafe { self.set_prev(of, LinkRef::of_number(bits)) };
    }

    /// What [`set_spare`](Self::set_spare) kept last.
    ///
    /// # Safety
    ///
    /// As there; and the links were on no list but a queue since.
    #[inline]
    pub unsafe fn spare(&self, of: NonNull<Hook>) -> u32 {
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
        links: impl Fn(&Links) -> &UnsafeCell<LinkRef>,
        compressed_links: impl Fn(&CompressedLinks) -> &UnsafeCell<u32>,
    ) -> LinkRef {
        if self.is_in_slots() {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = compressed_links(unsafe { of.cast().as_ref() });
            // SAFETY: nobody else touches it, says the caller.
            LinkRef::of_number(cell.with(|number| unsafe { *number }))
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
        to: LinkRef,
        links: impl Fn(&Links) -> &UnsafeCell<LinkRef>,
        compressed_links: impl Fn(&CompressedLinks) -> &UnsafeCell<u32>,
    ) {
        if self.is_in_slots() {
            // SAFETY: live, says the caller, and by the shape these links.
            let cell = compressed_links(unsafe { of.cast().as_ref() });
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
