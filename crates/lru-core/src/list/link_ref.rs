//! References between links.
//!
//! Both kinds of reference fit into one pointer-sized word, so lists need not be generic over them;
//! `link_layout.rs` knows which kind a list has.
//!
//! A change must keep it one word.

use super::hook::Hook;
use core::ptr::{self, NonNull};

/// A reference to links: their address, or a slot number stored as a pointer without provenance.
/// Null: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRef(pub(in crate::list) *mut Hook);

/// Links together with the reference by which other links point to them.
#[derive(Clone, Copy, Debug)]
pub struct LinkNode {
    /// The address of the links.
    pub at: NonNull<Hook>,
    /// The reference to the links.
    pub by: LinkRef,
}

impl LinkRef {
    /// The reference to no links.
    pub const NONE: Self = Self(ptr::null_mut());

    #[inline]
    /// Returns whether this refers to no links.
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    #[inline]
    pub(in crate::list) const fn of_number(number: u32) -> Self {
        Self::of_bits(number as u64)
    }

    #[inline]
    pub(in crate::list) fn number(self) -> u32 {
        self.bits() as u32
    }

    /// Stores as many of the low bits as a pointer has.
    #[inline]
    pub(in crate::list) const fn of_bits(bits: u64) -> Self {
        Self(ptr::without_provenance_mut(bits as usize))
    }

    #[inline]
    pub(in crate::list) fn bits(self) -> u64 {
        self.0.addr() as u64
    }
}
