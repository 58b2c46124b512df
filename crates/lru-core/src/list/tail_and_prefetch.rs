//! The end of a list and, for lists of slots, the prefetch cursor.
//!
//! A walk visits items one after the other, each on a cache line that has not been used for long,
//! so it would wait for memory at each item. So a list of slots keeps a prefetch cursor, the item
//! that was prefetched last, and each append prefetches the next item after it. In the steady state
//! of a cache, as many items are appended as are evicted, so the cursor keeps pace with the walks.
//!
//! A change must ensure that the cursor is none or refers to links on the list.

use super::link_layout::LinkLayout;
use super::link_ref::LinkRef;

/// With slot numbers: the number of the last item, and above it that of the item that was
/// prefetched last (or of the item after it, if that one was removed), where a pointer has room for
/// both. With addresses: the last item.
#[derive(Debug)]
pub(super) struct TailAndPrefetch(LinkRef);

/// The bits of a slot number.
const NUMBER: u32 = u32::BITS;

impl TailAndPrefetch {
    pub(super) const NONE: Self = Self(LinkRef::NONE);

    #[inline]
    pub(super) fn last(&self, layout: &LinkLayout) -> LinkRef {
        match layout.is_in_slots() {
            true => LinkRef::of_number(self.0.number()),
            false => self.0,
        }
    }

    #[inline]
    pub(super) fn set_last(&mut self, layout: &LinkLayout, last: LinkRef) {
        self.0 = match layout.is_in_slots() {
            true => pack(last, self.prefetch_cursor(layout)),
            false => last,
        };
    }

    /// Returns the item that was prefetched last, which is on the list, or none.
    #[inline]
    pub(super) fn prefetch_cursor(&self, layout: &LinkLayout) -> LinkRef {
        match layout.is_in_slots() {
            // Shifted as 64 bits: where pointers have 32, the result is 0, which is none.
            true => LinkRef::of_number((self.0.bits() >> NUMBER) as u32),
            false => LinkRef::NONE,
        }
    }

    #[inline]
    pub(super) fn set_prefetch_cursor(&mut self, layout: &LinkLayout, ahead: LinkRef) {
        if layout.is_in_slots() {
            self.0 = pack(self.0, ahead);
        }
    }
}

#[inline]
fn pack(last: LinkRef, ahead: LinkRef) -> LinkRef {
    LinkRef::of_bits(u64::from(last.number()) | u64::from(ahead.number()) << NUMBER)
}
