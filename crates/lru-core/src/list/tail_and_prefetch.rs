//! Where a list ends; and of slots, how far what a walk will come to was asked for ahead.
//!
//! A walk goes from item to item, each on a line that nobody has touched for long: it would wait for one after the other. So a list of slots keeps
//! in mind who comes next, and each item that is put behind asks for one more ahead: as many are added as are let go.

use super::link_layout::LinkLayout;
use super::link_ref::LinkRef;

/// In the space of one name: the number of the last, and above it that of the one that was asked for last, where pointers have room for
/// both. By address: the last.
#[derive(Debug)]
pub(super) struct TailAndPrefetch(LinkRef);

/// Bits of a number.
const NUMBER: u32 = u32::BITS;

impl TailAndPrefetch {
    pub(super) const NONE: Self = Self(LinkRef::NONE);

    #[inline]
    pub(super) fn last(&self, shape: &LinkLayout) -> LinkRef {
        match shape.is_in_slots() {
            true => LinkRef::of_number(self.0.number()),
            false => self.0,
        }
    }

    #[inline]
    pub(super) fn set_last(&mut self, shape: &LinkLayout, last: LinkRef) {
        self.0 = match shape.is_in_slots() {
            true => pack(last, self.prefetch_cursor(shape)),
            false => last,
        };
    }

    /// The one that was asked for last; always on the list.
    #[inline]
    pub(super) fn prefetch_cursor(&self, shape: &LinkLayout) -> LinkRef {
        match shape.is_in_slots() {
            // As 64 bits: where pointers have 32, nothing is above the number.
            true => LinkRef::of_number((self.0.bits() >> NUMBER) as u32),
            false => LinkRef::NONE,
        }
    }

    #[inline]
    pub(super) fn set_prefetch_cursor(&mut self, shape: &LinkLayout, ahead: LinkRef) {
        if shape.is_in_slots() {
            self.0 = pack(self.0, ahead);
        }
    }
}

#[inline]
fn pack(last: LinkRef, ahead: LinkRef) -> LinkRef {
    LinkRef::of_bits(u64::from(last.number()) | u64::from(ahead.number()) << NUMBER)
}
