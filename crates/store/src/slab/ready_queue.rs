//! Objects that their readers have left. Who drops them would wait for one after the other, as all left long ago: so with each slot that is
//! given out one more is asked for ahead.

use super::bag::Bag;
use core::ptr::NonNull;
use lowwater_lru_core::list::{Hook, LinkLayout};

/// See the module.
pub(super) struct ReadyQueue {
    bag: Bag,
    /// The one that was asked for last; in the bag.
    ahead: Option<NonNull<Hook>>,
}

// SAFETY: it owns its objects as its bag does, and the one that was asked for last is one of them.
unsafe impl Send for ReadyQueue {}

impl ReadyQueue {
    pub(super) const fn new() -> Self {
        Self { bag: Bag::new(), ahead: None }
    }

    pub(super) fn len(&self) -> u32 {
        self.bag.len
    }

    #[inline]
    pub(super) fn pop(&mut self, shape: &LinkLayout) -> Option<NonNull<Hook>> {
        let links = self.bag.pop(shape)?;
        if self.ahead == Some(links) {
            self.ahead = None;
        }
        Some(links)
    }

    /// The first of them, at most so many.
    pub(super) fn pop_some(&mut self, shape: &LinkLayout, most: usize) -> Bag {
        let mut some = Bag::new();
        for _ in 0..most {
            let Some(links) = self.bag.move_first(shape, &mut some) else { break };
            if self.ahead == Some(links) {
                self.ahead = None;
            }
        }
        some
    }

    /// Puts what their readers have just left before the others: it is nearer.
    pub(super) fn prepend(&mut self, shape: &LinkLayout, bag: &mut Bag) {
        self.bag.append(shape, bag);
        self.ahead = None;
    }

    /// The next one to be asked for, from the first to the last.
    #[inline]
    pub(super) fn prefetch_next(&mut self, shape: &LinkLayout) -> Option<NonNull<Hook>> {
        self.ahead = if let Some(ahead) = self.ahead {
            // SAFETY: it is in the bag.
            let next = unsafe { shape.next(ahead) };
            // SAFETY: it is none, or in the bag.
            unsafe { shape.find(next) }
        } else {
            self.bag.first(shape)
        };
        self.ahead
    }

    /// Everything, to be dropped.
    pub(super) fn take(&mut self) -> Bag {
        core::mem::replace(self, Self::new()).bag
    }
}
