//! Hidden objects: the key's hash has panicked while the segment grew, so their hash is unknown.
//!
//! They have a tag of their own, which no hash has, so that no lookup finds them, also if the hash
//! works again later: a newer object of the same key may be in the index by then.
//!
//! A change must ensure that an object that is hidden stays so, and that a panic's payload is
//! dropped without the segment's lock.

use super::segment::LockedSegment;
use super::ExtendibleIndex;
use crate::slab::Slotted;
use core::cell::Cell;
use core::ptr;
use lowwater_base::unwind::caught;
use lowwater_lru_core::AllocError;
use lowwater_rcu::Guard;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Grows a segment, and releases it. If `hasher` panics for an object, hides that object, and
    /// returns `None`: the segment keeps its size.
    pub(super) fn grow_or_hide(
        &self,
        mut segment: LockedSegment<'_>,
        guard: &Guard,
        hasher: &impl Fn(&T) -> u64,
    ) -> Option<Result<(), AllocError>> {
        let prefix = segment.view().header().prefix;
        let last = Cell::new(ptr::null());
        let noted = |object: &T| {
            last.set(ptr::from_ref(object));
            hasher(object)
        };
        // Moved in, so that after a panic the lock is released before the payload is dropped, which
        // is user code.
        let grown = caught(move || self.grow(&mut segment, guard, &noted));
        if grown.is_none() {
            if let Some(mut segment) = self.lock_if_any(prefix, guard) {
                // Not found if it was removed, or if another thread has split the segment: then the
                // next call hides it.
                if let Some(place) = segment.find_anywhere(|number| ptr::eq(self.object(number), last.get())) {
                    segment.hide(place);
                }
            }
        }
        grown
    }
}
