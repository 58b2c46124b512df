//! How links name other links.

use super::hook::Hook;
use core::ptr::{self, NonNull};

/// What links name other links by: their address, or a number as an address that is none. Null: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRef(pub(in crate::list) *mut Hook);

/// Links that are on a list, and what other links name them by.
#[derive(Clone, Copy, Debug)]
pub struct LinkNode {
    /// The address of the links.
    pub at: NonNull<Hook>,
    /// The name by which other links lead to them.
    pub by: LinkRef,
}

impl LinkRef {
    /// No links.
    pub const NONE: Self = Self(ptr::null_mut());

    #[inline]
    /// Does it name no links?
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

    /// As many of these bits as a pointer has.
    #[inline]
    pub(in crate::list) const fn of_bits(bits: u64) -> Self {
        Self(ptr::without_provenance_mut(bits as usize))
    }

    #[inline]
    pub(in crate::list) fn bits(self) -> u64 {
        self.0.addr() as u64
    }
}
