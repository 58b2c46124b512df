//! Objects after their grace period. The objects are no longer cached, so dropping them one after
//! the other would stall on memory: each slot allocation prefetches one more object of the queue.
//!
//! A change must ensure that the prefetch cursor is null or in the queue: removing the object it
//! points to resets it.

use super::bag::Bag;
use core::ptr::NonNull;
use lowwater_lru_core::list::{Hook, LinkLayout};

/// A queue of objects without readers, with a prefetch cursor.
pub(super) struct ReadyQueue {
    bag: Bag,
    /// The object that was prefetched last; it is in the bag.
    ahead: Option<NonNull<Hook>>,
}

// SAFETY: it owns its objects as its bag does, and `ahead` is one of them.
unsafe impl Send for ReadyQueue {}

impl ReadyQueue {
    pub(super) const fn new() -> Self {
        Self { bag: Bag::new(), ahead: None }
    }

    pub(super) fn len(&self) -> u32 {
        self.bag.len
    }

    #[inline]
    pub(super) fn pop(&mut self, layout: &LinkLayout) -> Option<NonNull<Hook>> {
        let links = self.bag.pop(layout)?;
        if self.ahead == Some(links) {
            self.ahead = None;
        }
        Some(links)
    }

    /// Takes the first objects, at most `most`.
    pub(super) fn pop_some(&mut self, layout: &LinkLayout, most: usize) -> Bag {
        let mut some = Bag::new();
        for _ in 0..most {
            let Some(links) = self.bag.move_first(layout, &mut some) else { break };
            if self.ahead == Some(links) {
                self.ahead = None;
            }
        }
        some
    }

    /// Puts newly ready objects before the others: they are more likely to be cached.
    pub(super) fn prepend(&mut self, layout: &LinkLayout, bag: &mut Bag) {
        self.bag.append(layout, bag);
        self.ahead = None;
    }

    /// Advances the prefetch cursor and returns the object to prefetch, from the first to the last.
    #[inline]
    pub(super) fn prefetch_next(&mut self, layout: &LinkLayout) -> Option<NonNull<Hook>> {
        self.ahead = if let Some(ahead) = self.ahead {
            // SAFETY: `ahead` is in the bag.
            let next = unsafe { layout.next(ahead) };
            // SAFETY: `next` is empty, or names an object in the bag.
            unsafe { layout.find(next) }
        } else {
            self.bag.first(layout)
        };
        self.ahead
    }

    /// Takes all objects, to drop them.
    pub(super) fn take(&mut self) -> Bag {
        core::mem::replace(self, Self::new()).bag
    }
}
