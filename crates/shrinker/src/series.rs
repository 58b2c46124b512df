//! Labels and counters for metrics: stable labels, and counters that never fall.
//!
//! A recorder identifies a series by its labels for as long as the process runs, and keeps the
//! largest value to which a counter was ever set. But two shrinkers may have the same name, and a
//! name may be reused after its first shrinker has ended.
//!
//! A change must ensure that a label belongs to one owner at a time, and that no total falls while
//! its series is remembered.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The number of counters of a shrinker.
pub(crate) const NR_COUNTERS: usize = 9;

/// The maximum number of ended owners with a remembered series, in one table. Beyond it, the series
/// that ended first is dropped, and starts at 0 if its label is reused.
pub const ENDED_MAX: usize = 1_024;

/// The labels of live owners, by their numbers: the name, or `name#2` for the second owner of a
/// name, and so on. A label stays with its owner until the owner has ended, and is then given to
/// the next owner of that name.
#[derive(Debug, Default)]
pub struct LabelTable {
    by_owner: BTreeMap<u64, String>,
}

impl LabelTable {
    /// Updates the table to the numbers and names of the owners that are live `now`. New owners get
    /// their labels in the order of their numbers, which no other owner ever has.
    pub fn update<'a>(&mut self, now: impl IntoIterator<Item = (u64, &'a str)>) {
        let now: BTreeMap<u64, &str> = now.into_iter().collect();
        self.by_owner.retain(|owner, _| now.contains_key(owner));
        if self.by_owner.len() == now.len() {
            return;
        }
        let mut taken: BTreeSet<String> = self.by_owner.values().cloned().collect();
        // For each name, the first number that may be free.
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for (owner, name) in now {
            if self.by_owner.contains_key(&owner) {
                continue;
            }
            let number = numbers.entry(name).or_insert(1);
            let label = loop {
                let label = if *number == 1 { name.to_owned() } else { format!("{name}#{number}") };
                *number += 1;
                if taken.insert(label.clone()) {
                    break label;
                }
            };
            self.by_owner.insert(owner, label);
        }
    }

    /// Returns the label of an owner; `None` if the last [`update`](Self::update) did not have it.
    pub fn get(&self, owner: u64) -> Option<&str> {
        self.by_owner.get(&owner).map(String::as_str)
    }
}

/// The published labels and totals of a registry.
#[derive(Debug, Default)]
pub(crate) struct PublishedSeries {
    pub(crate) labels: LabelTable,
    pub(crate) totals: Totals<NR_COUNTERS>,
}

/// Counter totals: `N` for each label, each the sum over all owners (shrinkers or caches) that the
/// label has had.
#[derive(Debug)]
pub struct Totals<const N: usize> {
    series: BTreeMap<String, Series<N>>,
    round: u64,
}

#[derive(Debug)]
struct Series<const N: usize> {
    /// The number of the current owner.
    owner: u64,
    /// The last counts of earlier owners, summed.
    before: [u64; N],
    /// The last counts of the current owner.
    last: [u64; N],
    /// The last round in which the owner was live.
    round: u64,
    has_ended: bool,
}

impl<const N: usize> Default for Totals<N> {
    fn default() -> Self {
        Self { series: BTreeMap::new(), round: 0 }
    }
}

impl<const N: usize> Totals<N> {
    /// Begins a round, in which the counts of live owners are added.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Adds the current counts of the label's owner, and returns the label's totals, which never
    /// fall.
    ///
    /// `owner` is a number that no other owner ever has. Counts may be added later than younger
    /// counts of the same owner, but never after those of the label's next owner: they would be
    /// counted twice.
    pub fn add(&mut self, label: &str, owner: u64, counts: [u64; N]) -> [u64; N] {
        let round = self.round;
        let series = self.series.entry(label.to_owned()).or_insert_with(|| Series {
            owner,
            before: [0; N],
            last: [0; N],
            round,
            has_ended: false,
        });
        if series.owner != owner {
            series.before = core::array::from_fn(|at| series.before[at].saturating_add(series.last[at]));
            series.last = [0; N];
        }
        series.last = core::array::from_fn(|at| counts[at].max(series.last[at]));
        (series.owner, series.round, series.has_ended) = (owner, round, false);
        core::array::from_fn(|at| series.before[at].saturating_add(series.last[at]))
    }

    /// Ends a round. Returns the labels of owners that have ended since the last round: those that
    /// were not added, unless `is_living` returns true for the owner's number.
    pub fn end_round(&mut self, is_living: impl Fn(u64) -> bool) -> Vec<String> {
        let round = self.round;
        let mut ended = Vec::new();
        for (label, series) in self.series.iter_mut().filter(|(_, series)| !series.has_ended && series.round < round) {
            if is_living(series.owner) {
                series.round = round;
            } else {
                series.has_ended = true;
                ended.push(label.clone());
            }
        }
        let mut rounds: Vec<u64> = self.series.values().filter(|series| series.has_ended).map(|s| s.round).collect();
        if let Some(excess) = rounds.len().checked_sub(ENDED_MAX).filter(|excess| *excess > 0) {
            rounds.sort_unstable();
            let last_round = rounds[excess - 1];
            // Of the last round that is dropped, only some of the series may be excess.
            let mut excess_left = excess - rounds.partition_point(|round| *round < last_round);
            self.series.retain(|_, series| {
                let is_of_last = series.has_ended && series.round == last_round && excess_left > 0;
                excess_left -= usize::from(is_of_last);
                !(is_of_last || series.has_ended && series.round < last_round)
            });
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(table: &LabelTable) -> Vec<(u64, &str)> {
        table.by_owner.iter().map(|(owner, label)| (*owner, label.as_str())).collect()
    }

    #[test]
    fn a_label_stays_with_its_owner_and_is_given_to_the_next_of_the_name() {
        let mut table = LabelTable::default();
        table.update([(0, "a"), (1, "b"), (2, "a"), (3, "a")]);
        assert_eq!(labels(&table), [(0, "a"), (1, "b"), (2, "a#2"), (3, "a#3")]);
        table.update([(2, "a"), (3, "a")]);
        assert_eq!(labels(&table), [(2, "a#2"), (3, "a#3")]);
        // In the order of the numbers, and not of the call.
        table.update([(6, "b"), (5, "a"), (2, "a"), (3, "a"), (4, "a")]);
        assert_eq!(labels(&table), [(2, "a#2"), (3, "a#3"), (4, "a"), (5, "a#4"), (6, "b")]);
        assert_eq!((table.get(4), table.get(7)), (Some("a"), None));
    }

    #[test]
    fn a_name_that_looks_like_a_label_does_not_share_it() {
        let mut table = LabelTable::default();
        table.update([(0, "a#2"), (1, "a"), (2, "a"), (3, "a#2")]);
        assert_eq!([0, 1, 2, 3].map(|owner| table.get(owner).unwrap()), ["a#2", "a", "a#3", "a#2#2"]);
    }

    #[test]
    fn totals_continue_with_a_labels_next_owner() {
        let mut totals = Totals::<2>::default();
        totals.begin_round();
        assert_eq!(totals.add("a", 1, [5, 1]), [5, 1]);
        // Counts that were read earlier and added late.
        assert_eq!(totals.add("a", 1, [4, 2]), [5, 2]);
        assert!(totals.end_round(|_| false).is_empty());
        totals.begin_round();
        assert_eq!(totals.end_round(|_| false), ["a"]);
        assert!(totals.end_round(|_| false).is_empty(), "once");
        // A cache that was missing from one round.
        assert_eq!(totals.add("a", 1, [6, 2]), [6, 2]);
        assert_eq!(totals.add("a", 2, [1, 0]), [7, 2]);
        assert_eq!(totals.add("a", 2, [3, 0]), [9, 2]);
    }

    #[test]
    fn an_owner_that_lives_need_not_be_added_in_each_round() {
        let mut totals = Totals::<1>::default();
        totals.begin_round();
        totals.add("a", 1, [5]);
        totals.add("b", 2, [7]);
        totals.end_round(|_| false);
        for _ in 0..2 {
            totals.begin_round();
            assert!(totals.end_round(|_| true).is_empty());
        }
        totals.begin_round();
        assert_eq!(totals.end_round(|owner| owner == 2), ["a"]);
        totals.begin_round();
        assert_eq!(totals.add("b", 2, [8]), [8]);
        assert!(totals.end_round(|_| false).is_empty());
    }

    #[test]
    fn the_oldest_ended_series_is_forgotten() {
        let mut totals = Totals::<1>::default();
        for n in 0..ENDED_MAX + 10 {
            totals.begin_round();
            assert_eq!(totals.add(&format!("{n}"), n as u64, [1]), [1]);
            totals.end_round(|_| false);
        }
        totals.begin_round();
        totals.end_round(|_| false);
        assert_eq!(totals.series.len(), ENDED_MAX);
        assert_eq!(totals.add("0", 99, [1]), [1], "forgotten");
        assert_eq!(totals.add("500", 98, [1]), [2], "remembered");
    }

    #[test]
    fn of_ended_series_those_of_earlier_rounds_are_forgotten_first() {
        let mut totals = Totals::<1>::default();
        totals.begin_round();
        totals.add("z", 1, [1]);
        totals.end_round(|_| false);
        // More than fit end together, later, and their labels come before the one that ended first.
        totals.begin_round();
        for n in 0..=ENDED_MAX {
            totals.add(&format!("a{n:04}"), 2 + n as u64, [1]);
        }
        totals.end_round(|_| false);
        totals.begin_round();
        totals.end_round(|_| false);
        assert_eq!(totals.series.len(), ENDED_MAX);
        assert_eq!(totals.add("z", 9_999, [1]), [1], "forgotten");
    }
}
