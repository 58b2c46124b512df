//! How the links of one type of object refer to each other: by address, or by the object's slot
//! number.
//!
//! The code of the lists does not depend on the item type, so the layout is passed to each
//! operation.
//!
//! A change must ensure that all items of one list have one layout, which the type system does not
//! check: it is a condition of the unsafe functions.

use super::compressed_links::CompressedLinks;
use super::hook::Hook;
use super::link_ref::{LinkNode, LinkRef};
use super::links::Links;
use crate::sync::UnsafeCell;
use core::ptr::NonNull;
use lowwater_base::slots::PtrCompressor;

/// The layout of the links of one type of object; a part of [`Linked`](super::Linked).
#[derive(Debug)]
pub struct LinkLayout {
    /// `None`: the links refer to each other by address.
    slots: Option<PtrCompressor>,
}

impl LinkLayout {
    /// The layout of [`Links`], for objects anywhere in memory.
    pub const ANYWHERE: &'static Self = &Self { slots: None };

    /// Returns the layout of [`CompressedLinks`] at `offset` bytes in each `T`. Safe code calls
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

    /// Returns the links that `by` refers to, or `None`.
    ///
    /// # Safety
    ///
    /// `by` is none, or refers to the links of a live object, or of a cursor that is registered
    /// under this reference.
    #[inline]
    pub unsafe fn find(&self, by: LinkRef) -> Option<NonNull<Hook>> {
        match &self.slots {
            None => NonNull::new(by.0),
            Some(_) if by.is_none() => None,
            // SAFETY: with this layout a live object is in a slot of a registered chunk, and `by`
            // refers to one or to a registered cursor (this function's clause).
            Some(compressor) => NonNull::new(unsafe { compressor.decompress(by.number()) }.cast()),
        }
    }

    /// As [`find`](Self::find), for a reference that is not none.
    ///
    /// # Safety
    ///
    /// The clause of [`find`](Self::find), and `by` is not none.
    #[inline]
    pub unsafe fn get(&self, by: LinkRef) -> NonNull<Hook> {
        // SAFETY: this function's clause includes that of `find`.
        let found = unsafe { self.find(by) };
        // SAFETY: `by` is not none (this function's clause), so `find` returned some.
        unsafe { found.unwrap_unchecked() }
    }

    /// Prefetches the object that `by` refers to, if it is in a slot.
    ///
    /// # Safety
    ///
    /// The clause of [`find`](Self::find).
    #[inline]
    pub(super) unsafe fn prefetch(&self, by: LinkRef) {
        if let (Some(compressor), false) = (&self.slots, by.is_none()) {
            // SAFETY: with this layout a live object is in a slot of a registered chunk, and `by`
            // refers to one or to a registered cursor (this function's clause).
            unsafe { compressor.prefetch(by.number()) };
        }
    }

    /// Returns the links together with the reference by which other links point to them.
    ///
    /// # Safety
    ///
    /// The links have this layout and are in an object; `at` derives from the pointer that the
    /// object's handle was converted to.
    #[inline]
    pub unsafe fn node(&self, at: NonNull<Hook>) -> LinkNode {
        let by = match &self.slots {
            None => LinkRef(at.as_ptr()),
            // SAFETY: with this layout the object is in a slot, and `at` has the provenance of the
            // handle's pointer, which covers the whole chunk.
            Some(compressor) => LinkRef::of_number(unsafe { compressor.compress(at.as_ptr().cast()) }),
        };
        LinkNode { at, by }
    }

    /// As [`node`](Self::node), for a cursor, which is in no slot: registers it under a number.
    /// `None`: there is no number left, or no memory.
    pub(super) fn register_external(&self, at: NonNull<Hook>) -> Option<LinkNode> {
        let by = match &self.slots {
            None => LinkRef(at.as_ptr()),
            Some(compressor) => LinkRef::of_number(compressor.register_external(at.cast())?),
        };
        Some(LinkNode { at, by })
    }

    /// Unregisters a cursor's reference.
    ///
    /// # Safety
    ///
    /// `by` was returned by `register_external` of this layout and not unregistered yet, and the
    /// cursor is on no list.
    pub unsafe fn unregister_external(&self, by: LinkRef) {
        if let Some(compressor) = &self.slots {
            // SAFETY: `by` is registered, and the cursor is on no list, so its number is not used
            // any more (this function's clause).
            unsafe { compressor.unregister_external(by.number()) };
        }
    }

    /// Returns the reference to the next links.
    ///
    /// # Safety
    ///
    /// `of` is live and has this layout, and the caller may access its `next` (invariants 1 to 3 of
    /// [`Hook`]).
    #[inline]
    pub unsafe fn next(&self, of: NonNull<Hook>) -> LinkRef {
        // SAFETY: this function's clause is that of `read` for `next`.
        unsafe { self.read(of, |links| &links.next, |links| &links.next) }
    }

    /// Returns the reference to the previous links.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next), for `prev`.
    #[inline]
    pub(super) unsafe fn prev(&self, of: NonNull<Hook>) -> LinkRef {
        // SAFETY: this function's clause is that of `read` for `prev`.
        unsafe { self.read(of, |links| &links.prev, |links| &links.prev) }
    }

    /// Sets the reference to the next links.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next).
    #[inline]
    pub(super) unsafe fn set_next(&self, of: NonNull<Hook>, to: LinkRef) {
        // SAFETY: this function's clause is that of `write` for `next`.
        unsafe { self.write(of, to, |links| &links.next, |links| &links.next) };
    }

    /// Sets the reference to the previous links.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next), for `prev`.
    #[inline]
    pub(super) unsafe fn set_prev(&self, of: NonNull<Hook>, to: LinkRef) {
        // SAFETY: this function's clause is that of `write` for `prev`.
        unsafe { self.write(of, to, |links| &links.prev, |links| &links.prev) };
    }

    /// Stores 32 bits in links that are on no list, or on a [`RawQueue`](super::RawQueue), which
    /// does not use `prev`.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next), for `prev`.
    #[inline]
    pub unsafe fn set_spare(&self, of: NonNull<Hook>, bits: u32) {
        // SAFETY: this function's clause is that of `set_prev`.
        unsafe { self.set_prev(of, LinkRef::of_number(bits)) };
    }

    /// Returns the bits that [`set_spare`](Self::set_spare) stored last.
    ///
    /// # Safety
    ///
    /// The clause of [`set_spare`](Self::set_spare); and since that call the links were on no list
    /// but a queue.
    #[inline]
    pub unsafe fn spare(&self, of: NonNull<Hook>) -> u32 {
        // SAFETY: this function's clause includes that of `prev`.
        unsafe { self.prev(of) }.number()
    }

    /// Reads the cell that the closure of the matching layout selects.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next), for the selected cell.
    #[inline]
    unsafe fn read(
        &self,
        of: NonNull<Hook>,
        links: impl Fn(&Links) -> &UnsafeCell<LinkRef>,
        compressed_links: impl Fn(&CompressedLinks) -> &UnsafeCell<u32>,
    ) -> LinkRef {
        if self.is_in_slots() {
            // SAFETY: `of` is live and has this layout (this function's clause), so it points to
            // `CompressedLinks`.
            let cell = compressed_links(unsafe { of.cast().as_ref() });
            // SAFETY: the caller may access the cell (this function's clause), so no other thread
            // writes it.
            LinkRef::of_number(cell.with(|number| unsafe { *number }))
        } else {
            // SAFETY: `of` is live and has this layout (this function's clause), so it points to
            // `Links`.
            let cell = links(unsafe { of.cast().as_ref() });
            // SAFETY: the caller may access the cell (this function's clause), so no other thread
            // writes it.
            cell.with(|by| unsafe { *by })
        }
    }

    /// Writes the cell that the closure of the matching layout selects.
    ///
    /// # Safety
    ///
    /// The clause of [`next`](Self::next), for the selected cell.
    #[inline]
    unsafe fn write(
        &self,
        of: NonNull<Hook>,
        to: LinkRef,
        links: impl Fn(&Links) -> &UnsafeCell<LinkRef>,
        compressed_links: impl Fn(&CompressedLinks) -> &UnsafeCell<u32>,
    ) {
        if self.is_in_slots() {
            // SAFETY: `of` is live and has this layout (this function's clause), so it points to
            // `CompressedLinks`.
            let cell = compressed_links(unsafe { of.cast().as_ref() });
            // SAFETY: the caller may access the cell (this function's clause), so no other thread
            // accesses it.
            cell.with_mut(|number| unsafe { *number = to.number() });
        } else {
            // SAFETY: `of` is live and has this layout (this function's clause), so it points to
            // `Links`.
            let cell = links(unsafe { of.cast().as_ref() });
            // SAFETY: the caller may access the cell (this function's clause), so no other thread
            // accesses it.
            cell.with_mut(|by| unsafe { *by = to });
        }
    }
}
