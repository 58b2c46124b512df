//! The soonest of the times that were said, for one who goes over things now and then to find those whose time is over.
//!
//! ```text
//!     who puts a thing in                    who goes over them
//!       the thing, with its time               begin: nothing was said
//!       says: a fence                          a fence
//!       said later, or nothing? say ours       look at the things
//! ```
//!
//! Either the look finds the thing, or its time is said to the next one. Saying costs a fence and a load, and an exchange where it is the
//! soonest.
//!
//! # Orderings
//!
//! Two words, written and read crosswise, so each side has a SeqCst fence between. Held by `a_thing_is_found_or_said`, and its twins.

use crate::sync::atomic::{fence, AtomicU32, Ordering};

/// See the module. Times are numbers whose order is the caller's, but for [`NOTHING`](Self::NOTHING).
#[derive(Debug)]
pub struct Soonest(AtomicU32);

impl Soonest {
    /// No time.
    pub const NOTHING: u32 = 0;

    /// Nothing was said.
    pub fn new() -> Self {
        Self(AtomicU32::new(Self::NOTHING))
    }

    /// Says the time of a thing that can be found from here on. True if it is the soonest. `is_sooner` is asked about ours and what was
    /// said, which may be [`NOTHING`](Self::NOTHING).
    ///
    /// ```
    /// use lowwater_lru_core::Soonest;
    ///
    /// let soonest = Soonest::new();
    /// let is_sooner = |ours, said| said == Soonest::NOTHING || ours < said;
    /// assert!(soonest.says(7, is_sooner) && !soonest.says(9, is_sooner) && soonest.says(5, is_sooner));
    /// assert_eq!(soonest.said(), 5);
    /// soonest.begin();
    /// assert_eq!(soonest.said(), Soonest::NOTHING);
    /// ```
    #[inline]
    pub fn says(&self, at: u32, is_sooner: impl Fn(u32, u32) -> bool) -> bool {
        if !crate::mutated!("says_without_fence") {
            // SeqCst: meets the one in `begin`. Either we see that a look has begun, and say our time to the next one, or that look sees
            // the thing.
            fence(Ordering::SeqCst);
        }
        // Relaxed, all: the time stands for itself, and the fences order it with the thing.
        let mut said = self.0.load(Ordering::Relaxed);
        while is_sooner(at, said) {
            match self.0.compare_exchange_weak(said, at, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => said = other,
            }
        }
        false
    }

    /// A look begins: what is said from now on is for the next.
    pub fn begin(&self) {
        // Relaxed: as in `says`.
        self.0.store(Self::NOTHING, Ordering::Relaxed);
        if !crate::mutated!("begin_without_fence") {
            // SeqCst: meets the one in `says`.
            fence(Ordering::SeqCst);
        }
    }

    /// The soonest that was said since a look last began.
    pub fn said(&self) -> u32 {
        // Relaxed: as in `says`.
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Soonest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, lowwater_loom))]
mod tests {
    use super::*;
    use crate::sync::{model, thread, with_mutant, Arc};

    /// A thing of time 7 is put in, where 5 was said before, while a look begins.
    fn put_beside_look() {
        let (soonest, thing) = (Arc::new(Soonest::new()), Arc::new(AtomicU32::new(0)));
        let is_sooner = |ours, said| said == Soonest::NOTHING || ours < said;
        soonest.says(5, is_sooner);
        let other = {
            let (soonest, thing) = (soonest.clone(), thing.clone());
            thread::spawn(move || {
                // Relaxed: the fences are what is checked.
                thing.store(7, Ordering::Relaxed);
                soonest.says(7, is_sooner);
            })
        };
        soonest.begin();
        let found = thing.load(Ordering::Relaxed);
        other.join().unwrap();
        assert!(found == 7 || soonest.said() == 7, "neither found nor said");
    }

    #[test]
    fn a_thing_is_found_or_said() {
        model(put_beside_look);
    }

    #[test]
    #[should_panic]
    fn or_neither_without_the_fence_of_who_says() {
        with_mutant("says_without_fence", || model(put_beside_look));
    }

    #[test]
    #[should_panic]
    fn or_neither_without_the_fence_of_who_looks() {
        with_mutant("begin_without_fence", || model(put_beside_look));
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod unit {
    use super::*;

    #[test]
    fn the_soonest_is_said_until_a_look_begins() {
        let soonest = Soonest::default();
        let says = |at| soonest.says(at, |ours, said| said == Soonest::NOTHING || ours < said);
        assert_eq!((says(5), says(7), says(5), says(3)), (true, false, false, true));
        assert_eq!(soonest.said(), 3);
        soonest.begin();
        assert_eq!(soonest.said(), Soonest::NOTHING);
        assert!(says(7));
    }
}
