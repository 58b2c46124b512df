//! Shrinker ids: small, dense, the lowest free one first.
//!
//! An id is a bit's place in every group's map, so it must stay small however many shrinkers have come and gone.

use alloc::collections::BinaryHeap;
use core::{cmp::Reverse, fmt};

/// A shrinker's number, and its bit in the map. Reused after the registration is gone; the heir starts clean (S17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "shrinker_id")]
pub struct ShrinkerId(u32);

impl ShrinkerId {
    pub(crate) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ShrinkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The ids that are free. O(log n) to take and to put back.
#[derive(Debug, Default)]
pub(crate) struct IdPool {
    /// Ids from here on were never given out.
    next: u32,
    /// Below `next`, and free again.
    free: BinaryHeap<Reverse<u32>>,
}

impl IdPool {
    /// The lowest free id; `None` when all are in use.
    pub(crate) fn take(&mut self) -> Option<ShrinkerId> {
        if let Some(Reverse(id)) = self.free.pop() {
            return Some(ShrinkerId(id));
        }
        let id = self.next;
        self.next = id.checked_add(1)?;
        Some(ShrinkerId(id))
    }

    /// Gives an id back.
    pub(crate) fn put(&mut self, id: ShrinkerId) {
        debug_assert!(id.0 < self.next && !self.free.iter().any(|Reverse(f)| *f == id.0), "id {id} was not in use");
        if self.free.try_reserve(1).is_err() {
            return; // Nobody has it again, until all ids are free for another reason.
        }
        self.free.push(Reverse(id.0));
        if self.free.len() == self.next as usize {
            *self = Self::default();
        }
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_comes_first() {
        let mut pool = IdPool::default();
        let ids: alloc::vec::Vec<_> = (0..4).map(|_| pool.take().unwrap()).collect();
        assert_eq!(ids, [0, 1, 2, 3].map(ShrinkerId));
        pool.put(ids[2]);
        pool.put(ids[0]);
        assert_eq!(pool.take(), Some(ShrinkerId(0)));
        assert_eq!(pool.take(), Some(ShrinkerId(2)));
        assert_eq!(pool.take(), Some(ShrinkerId(4)));
    }

    #[test]
    fn the_last_id_is_refused_not_wrapped() {
        let mut pool = IdPool { next: u32::MAX, free: BinaryHeap::new() };
        assert_eq!(pool.take(), None);
        assert_eq!(pool.take(), None);
    }
}
