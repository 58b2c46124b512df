//! Deferred objects: objects of a group on a node that a shrinker should have scanned and has not
//! (Linux's `nr_deferred`).
//!
//! A debt is stored next to its bit, in the same `ShrinkerInfo` of the map: when the group dies, it
//! moves to the parent together with the bit (S18); when the bit is cleared, it is dropped, because
//! then no objects exist that could pay it (S17).
//!
//! Numbers such as S18 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a debt is taken once, and never exceeds its cap.

use lowwater_base::mutated;

use crate::thin_vec::ThinVec;

/// Fixed point: objects are counted in 65,536ths. A cache of ten objects at the lightest pressure,
/// with a part of five thousandths of an object per pass, is then scanned eventually.
pub(crate) const FRACTION_BITS: u32 = 16;

/// The objects whose scan one shrinker deferred for one group on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "nr_deferred")]
pub struct Debt {
    /// Objects that should have been scanned, but could not or must not be.
    pub owed: u64,
    /// The rest of a pass's own part, in 65,536ths of an object: too small for a scan, or cut off
    /// by a bound. The next pass adds it to its own part.
    pub carry: u64,
}

impl Debt {
    /// No debt.
    pub const NONE: Self = Self { owed: 0, carry: 0 };

    /// Returns true if nothing is owed and nothing carried.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// The debts of all shrinkers for one group on one node, sorted by shrinker id; without entries
/// that are [`Debt::NONE`].
#[doc(alias = "nr_deferred")]
#[derive(Debug, Default)]
pub(crate) struct NrDeferred {
    debts: ThinVec<(u32, Debt)>,
    /// The owed objects that ended groups have handed over, paid ones included; only of shrinkers
    /// that received some.
    received: ThinVec<(u32, u64)>,
}

impl NrDeferred {
    /// Takes the debt out, as an exchange with 0 would, so that no two callers get the same object
    /// (S5). Without `all`, takes only the carried fraction and leaves the owed objects to callers
    /// that pay debts (`Policy::pays`). With `all`, too, leaves as many owed objects as were
    /// received in excess of `received_before`: the caller has not counted them, and would forgive
    /// them.
    pub(crate) fn take(&mut self, id: u32, all: bool, received_before: u64) -> Debt {
        let late = self.received(id).saturating_sub(received_before);
        let Ok(at) = self.debts.binary_search_by_key(&id, |d| d.0) else { return Debt::NONE };
        let Some((_, debt)) = self.debts.get_mut(at) else { return Debt::NONE };
        if mutated!("take_debt_without_exchange") {
            return *debt;
        }
        let left = if all { debt.owed.min(late) } else { debt.owed };
        if left == 0 {
            return self.debts.remove(at).map_or(Debt::NONE, |(_, debt)| debt);
        }
        let taken = Debt { owed: debt.owed - left, carry: debt.carry };
        *debt = Debt { owed: left, carry: 0 };
        taken
    }

    /// Takes the whole debt out.
    pub(crate) fn take_all(&mut self, id: u32) -> Debt {
        self.take(id, true, u64::MAX)
    }

    /// Takes up to `max` of the owed objects that [`take`](Self::take) would take; leaves the
    /// other owed objects, and the carried fraction for the next pass.
    pub(crate) fn take_owed(&mut self, id: u32, max: u64, received_before: u64) -> u64 {
        let Debt { owed, carry } = self.take(id, true, received_before);
        let taken = owed.min(max);
        self.add(id, Debt { owed: owed - taken, carry }, u64::MAX);
        taken
    }

    /// Adds to the debt and returns the owed objects afterwards. Owed objects saturate at
    /// `owed_max`, also if nothing is added; the carried fraction at the largest number. Without
    /// memory the debt is forgiven.
    pub(crate) fn add(&mut self, id: u32, debt: Debt, owed_max: u64) -> u64 {
        let at = match self.debts.binary_search_by_key(&id, |d| d.0) {
            Ok(at) => at,
            Err(_) if debt.is_none() => return 0,
            Err(at) => {
                self.debts.try_insert(at, (id, Debt::NONE));
                at
            }
        };
        let Some((_, sum)) = self.debts.get_mut(at).filter(|debt| debt.0 == id) else { return 0 };
        sum.owed = sum.owed.saturating_add(debt.owed).min(owed_max);
        sum.carry = sum.carry.saturating_add(debt.carry);
        let sum = *sum;
        if sum.is_none() {
            self.debts.remove(at);
        }
        sum.owed
    }

    /// Adds the debt of a group that has ended, and returns the owed objects afterwards. Without
    /// memory the debt is forgiven, or counted as added by a visit.
    pub(crate) fn receive(&mut self, id: u32, debt: Debt) -> u64 {
        if debt.owed > 0 && !mutated!("forget_received") {
            let at = self.received.binary_search_by_key(&id, |d| d.0);
            let at = at.unwrap_or_else(|at| {
                self.received.try_insert(at, (id, 0));
                at
            });
            if let Some((_, received)) = self.received.get_mut(at).filter(|received| received.0 == id) {
                *received = received.saturating_add(debt.owed);
            }
        }
        self.add(id, debt, u64::MAX)
    }

    /// Returns the owed objects that ended groups have handed to the shrinker `id`, paid ones
    /// included.
    pub(crate) fn received(&self, id: u32) -> u64 {
        self.received
            .binary_search_by_key(&id, |d| d.0)
            .ok()
            .and_then(|at| self.received.get(at))
            .map_or(0, |received| received.1)
    }

    /// Removes all that is known of one shrinker.
    pub(crate) fn remove(&mut self, id: u32) {
        self.take_all(id);
        if let Ok(at) = self.received.binary_search_by_key(&id, |d| d.0) {
            self.received.remove(at);
        }
    }

    /// Returns the objects owed by the shrinker `id`.
    pub(crate) fn owed(&self, id: u32) -> u64 {
        self.debts.binary_search_by_key(&id, |d| d.0).map_or(0, |at| self.debts[at].1.owed)
    }

    /// Returns the ids of shrinkers with owed objects.
    pub(crate) fn ids_owing(&self) -> impl Iterator<Item = u32> + '_ {
        self.debts.iter().filter(|(_, debt)| debt.owed > 0).map(|(id, _)| *id)
    }

    /// Returns the sum of all owed objects.
    pub(crate) fn sum(&self) -> u64 {
        self.debts.iter().fold(0, |sum, (_, debt)| sum.saturating_add(debt.owed))
    }

    /// Keeps only the state of ids for which `stays` returns true.
    pub(crate) fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.debts.retain(|d| stays(d.0));
        self.received.retain(|d| stays(d.0));
    }

    /// Returns the heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.debts.bytes() + self.received.bytes()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn s5_a_debt_is_taken_once() {
        let mut debts = NrDeferred::default();
        debts.add(7, Debt { owed: 100, carry: 5 }, u64::MAX);
        assert_eq!(debts.take_all(7), Debt { owed: 100, carry: 5 });
        assert_eq!(debts.take_all(7), Debt::NONE);
    }

    #[test]
    fn a_take_without_paying_leaves_owed_objects() {
        let mut debts = NrDeferred::default();
        debts.add(7, Debt { owed: 100, carry: 5 }, u64::MAX);
        assert_eq!(debts.take(7, false, u64::MAX), Debt { owed: 0, carry: 5 });
        assert_eq!(debts.take_all(7), Debt { owed: 100, carry: 0 });
    }

    #[test]
    fn take_owed_leaves_the_carried_fraction() {
        let mut debts = NrDeferred::default();
        debts.add(7, Debt { owed: 100, carry: 5 }, u64::MAX);
        assert_eq!([60, 60, 60].map(|max| debts.take_owed(7, max, u64::MAX)), [60, 40, 0]);
        assert_eq!(debts.take_all(7), Debt { owed: 0, carry: 5 });
        assert!(debts.debts.is_empty());
    }

    #[test]
    fn a_debt_stops_at_its_cap_and_does_not_overflow() {
        let mut debts = NrDeferred::default();
        assert_eq!(debts.add(1, Debt { owed: u64::MAX, carry: u64::MAX }, u64::MAX), u64::MAX);
        assert_eq!(debts.add(1, Debt { owed: u64::MAX, carry: u64::MAX }, 10), 10);
        assert_eq!(debts.take_all(1), Debt { owed: 10, carry: u64::MAX });
        assert!(debts.debts.is_empty(), "no debt leaves no entry");
    }

    #[test]
    fn s3_received_objects_are_counted_by_shrinker_until_it_is_removed() {
        let mut debts = NrDeferred::default();
        for (id, owed) in [(9, 4), (2, 5), (9, 1), (5, 0)] {
            debts.receive(id, Debt { owed, carry: 1 });
        }
        debts.add(2, Debt { owed: 7, carry: 0 }, u64::MAX);
        assert_eq!([2, 5, 9].map(|id| debts.received(id)), [5, 0, 5]);
        assert_eq!(debts.take_all(9), Debt { owed: 5, carry: 2 });
        assert_eq!(debts.received(9), 5, "paid ones included");
        debts.remove(9);
        assert_eq!([2, 5, 9].map(|id| debts.received(id)), [5, 0, 0]);
        debts.retain(|_| false);
        assert_eq!((debts.received(2), debts.bytes()), (0, 0));
    }

    #[test]
    fn s18_a_take_leaves_what_was_received_since_the_count() {
        let mut debts = NrDeferred::default();
        debts.receive(7, Debt { owed: 10, carry: 0 });
        let counted = debts.received(7);
        debts.receive(7, Debt { owed: 100, carry: 5 });
        assert_eq!(debts.take_owed(7, 4, counted), 4);
        assert_eq!(debts.take(7, true, counted), Debt { owed: 6, carry: 5 });
        assert_eq!(debts.take(7, true, counted), Debt::NONE);
        assert_eq!((debts.take_owed(7, 4, counted), debts.owed(7)), (0, 100));
        assert_eq!(debts.take_all(7), Debt { owed: 100, carry: 0 });
    }

    #[test]
    fn nothing_is_no_debt() {
        let mut debts = NrDeferred::default();
        assert!(Debt::NONE.is_none());
        assert!(!Debt { owed: 1, carry: 0 }.is_none());
        assert!(!Debt { owed: 0, carry: 1 }.is_none());
        assert_eq!(debts.add(7, Debt::NONE, u64::MAX), 0);
        assert_eq!(debts.take_owed(7, 10, u64::MAX), 0);
        assert_eq!(debts.bytes(), 0, "not even an entry was made");
        debts.add(7, Debt { owed: 3, carry: 0 }, u64::MAX);
        assert_eq!(debts.add(7, Debt::NONE, u64::MAX), 3);
        assert_eq!(debts.add(7, Debt::NONE, 2), 2, "the cap holds although nothing is added");
        assert_eq!(debts.add(7, Debt::NONE, 0), 0);
        assert!(debts.debts.is_empty());
    }

    #[test]
    fn ids_owing_excludes_carried_fractions() {
        let mut debts = NrDeferred::default();
        for (id, owed, carry) in [(9, 4, 0), (2, 0, 5), (5, 3, 1), (7, u64::MAX, 0)] {
            debts.add(id, Debt { owed, carry }, u64::MAX);
        }
        let ids_owing = |debts: &NrDeferred| debts.ids_owing().collect::<alloc::vec::Vec<_>>();
        assert_eq!((ids_owing(&debts), debts.sum()), ([5, 7, 9].into(), u64::MAX));
        debts.retain(|id| id != 7);
        assert_eq!((ids_owing(&debts), debts.sum()), ([5, 9].into(), 7));
        assert_eq!(debts.take_all(2), Debt { owed: 0, carry: 5 });
        debts.retain(|_| false);
        assert_eq!((ids_owing(&debts), debts.sum(), debts.bytes()), ([].into(), 0, 0));
    }
}
