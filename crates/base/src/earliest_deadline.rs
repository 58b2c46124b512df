//! The earliest deadline registered since the last sweep; the sweeper reads it to schedule its next
//! run.
//!
//! ```text
//!     insert                                 sweep
//!       publish the item                       reset: no deadline
//!       lower: a fence                         a fence
//!       store the deadline if it is earlier    visit the items
//! ```
//!
//! Either the sweep visits the item, or the item's deadline is left in the word, from which the
//! next sweep is scheduled. `lower` costs a fence and a load, and an exchange if the deadline is
//! the earliest.
//!
//! # Orderings
//!
//! The item and the deadline are two words. Each side writes one and then reads the other, so each
//! side has a SeqCst fence in between. Checked by `an_item_is_visited_or_its_deadline_is_left`, and
//! its mutants, which docs/ORDERINGS.md lists by name.
//!
//! A change must keep both fences: without one of them an item may stay unvisited for ever.

use crate::sync::atomic::{fence, AtomicU32, Ordering};

/// The earliest deadline since the last [`reset`](Self::reset). The caller defines the order of
/// deadlines; [`NONE`](Self::NONE) means no deadline.
#[derive(Debug)]
pub struct EarliestDeadline(AtomicU32);

impl EarliestDeadline {
    /// No deadline; never the deadline of an item.
    pub const NONE: u32 = 0;

    /// Creates the state without a deadline.
    pub fn new() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }

    /// Registers the deadline of an item that sweeps can visit from now on. Returns true if it is
    /// the earliest. O(1).
    ///
    /// `is_earlier(ours, stored)` compares with the stored deadline, which may be
    /// [`NONE`](Self::NONE).
    ///
    /// ```
    /// use lowwater_base::EarliestDeadline;
    ///
    /// let earliest = EarliestDeadline::new();
    /// let is_earlier = |ours, stored| stored == EarliestDeadline::NONE || ours < stored;
    /// assert!(earliest.lower(7, is_earlier) && !earliest.lower(9, is_earlier) && earliest.lower(5, is_earlier));
    /// assert_eq!(earliest.get(), 5);
    /// earliest.reset();
    /// assert_eq!(earliest.get(), EarliestDeadline::NONE);
    /// ```
    #[inline]
    pub fn lower(&self, at: u32, is_earlier: impl Fn(u32, u32) -> bool) -> bool {
        if !crate::mutated!("lower_without_fence") {
            // SeqCst: pairs with the fence in `reset`. Either this call sees that a sweep has begun
            // and leaves its deadline for the next one, or that sweep visits the item.
            fence(Ordering::SeqCst);
        }
        // Relaxed, all: the fences order the deadline with the item.
        let mut stored = self.0.load(Ordering::Relaxed);
        while is_earlier(at, stored) {
            match self.0.compare_exchange_weak(stored, at, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => stored = other,
            }
        }
        false
    }

    /// Begins a sweep: deadlines registered from now on are for the next one. O(1).
    pub fn reset(&self) {
        // Relaxed: ordered by the fence below.
        self.0.store(Self::NONE, Ordering::Relaxed);
        if !crate::mutated!("reset_without_fence") {
            // SeqCst: pairs with the fence in `lower`.
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the earliest deadline since the last [`reset`](Self::reset), or
    /// [`NONE`](Self::NONE).
    pub fn get(&self) -> u32 {
        // Relaxed: the fences in `lower` and `reset` order the deadline with the item.
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for EarliestDeadline {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, lowwater_loom))]
mod tests {
    use super::*;
    use crate::sync::{model, thread, with_mutant, Arc};

    /// An item with deadline 7 is inserted while a sweep begins; 5 was registered before.
    fn insert_beside_sweep() {
        let (earliest, item) = (Arc::new(EarliestDeadline::new()), Arc::new(AtomicU32::new(0)));
        let is_earlier = |ours, stored| stored == EarliestDeadline::NONE || ours < stored;
        earliest.lower(5, is_earlier);
        let other = {
            let (earliest, item) = (earliest.clone(), item.clone());
            thread::spawn(move || {
                // Relaxed: the fences are what is checked.
                item.store(7, Ordering::Relaxed);
                earliest.lower(7, is_earlier);
            })
        };
        earliest.reset();
        let found = item.load(Ordering::Relaxed);
        other.join().unwrap();
        assert!(found == 7 || earliest.get() == 7, "neither visited nor left for the next sweep");
    }

    #[test]
    fn an_item_is_visited_or_its_deadline_is_left() {
        model(insert_beside_sweep);
    }

    #[test]
    #[should_panic]
    fn fails_with_lower_without_fence() {
        with_mutant("lower_without_fence", || model(insert_beside_sweep));
    }

    #[test]
    #[should_panic]
    fn fails_with_reset_without_fence() {
        with_mutant("reset_without_fence", || model(insert_beside_sweep));
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod unit {
    use super::*;

    #[test]
    fn the_earliest_deadline_stays_until_a_sweep_begins() {
        let earliest = EarliestDeadline::default();
        let lower = |at| earliest.lower(at, |ours, stored| stored == EarliestDeadline::NONE || ours < stored);
        assert_eq!((lower(5), lower(7), lower(5), lower(3)), (true, false, false, true));
        assert_eq!(earliest.get(), 3);
        earliest.reset();
        assert_eq!(earliest.get(), EarliestDeadline::NONE);
        assert!(lower(7));
    }
}
