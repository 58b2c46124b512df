//! Where a list ends; and of slots, how far what a walk will come to was asked for ahead.
//!
//! A walk goes from item to item, each on a line that nobody has touched for long: it would wait for one after the other. So a list of slots keeps
//! in mind who comes next, and each item that is put behind asks for one more ahead: as many are added as are let go.

use super::{Ref, Shape};

/// In the space of one name: the number of the last, and above it that of the one that was asked for last, where pointers have room for
/// both. By address: the last.
#[derive(Debug)]
pub(super) struct Tail(Ref);

/// Bits of a number.
const NUMBER: u32 = u32::BITS;

impl Tail {
    pub(super) const NONE: Self = Self(Ref::NONE);

    #[inline]
    pub(super) fn last(&self, shape: &Shape) -> Ref {
        match shape.is_in_slots() {
            true => Ref::of_number(self.0.number()),
            false => self.0,
        }
    }

    #[inline]
    pub(super) fn set_last(&mut self, shape: &Shape, last: Ref) {
        self.0 = match shape.is_in_slots() {
            true => pack(last, self.ahead(shape)),
            false => last,
        };
    }

    /// The one that was asked for last; always on the list.
    #[inline]
    pub(super) fn ahead(&self, shape: &Shape) -> Ref {
        match shape.is_in_slots() {
            // As 64 bits: where pointers have 32, nothing is above the number.
            true => Ref::of_number((self.0.bits() >> NUMBER) as u32),
            false => Ref::NONE,
        }
    }

    #[inline]
    pub(super) fn set_ahead(&mut self, shape: &Shape, ahead: Ref) {
        if shape.is_in_slots() {
            self.0 = pack(self.0, ahead);
        }
    }
}

#[inline]
fn pack(last: Ref, ahead: Ref) -> Ref {
    Ref::of_bits(u64::from(last.number()) | u64::from(ahead.number()) << NUMBER)
}
