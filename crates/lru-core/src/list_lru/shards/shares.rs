//! The shares of a walk: how many items it visits of a list and of each of its shards.
//!
//! In proportion to their lengths, and exactly so over many walks. A walk visits whole items, and
//! most walks visit a few only (an insert evicts 8): with shares that are rounded up, each walk
//! would visit an item of a shard that has a single one. A thread that adds rarely, beside a busy
//! one, would find its items at the end of the list as soon as they are added. So each list has a
//! *credit*: the part of its shares so far that it was not visited for. A list that becomes empty
//! is owed nothing any more, and no other list gets that.
//!
//! A change must ensure that the shares of a walk add up to the items that it is to visit.

/// The maximum number of shards of a list, however many processors there are: bounds their memory,
/// and the lists that a walk visits. `list_lru.rs` and docs/DESIGN.md state the number.
pub(super) const SHARDS_MAX: usize = 32;
/// The most lists of a walk: the split list and its shards.
pub(in super::super) const LISTS_MAX: usize = 1 + SHARDS_MAX;
/// One item, in the unit of credits: so small that a single item of a billion has a part in each
/// walk.
const ONE: i64 = 1 << 30;

/// The number of items that a walk visits of each list, by the number of the list.
pub(in super::super) type Shares = [u32; LISTS_MAX];

/// The part of one list in a walk.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Part {
    /// The number of items on the list.
    pub(super) len: u32,
    /// The number of items that the walk visits.
    pub(super) share: u32,
    /// The visits that the list is owed, in parts of [`ONE`].
    pub(super) credit: i64,
}

/// Divides the visits of a walk of `nr` items among lists, and updates their credits. Returns
/// false, and changes nothing, if the walk visits all items. O(lists²) at most.
pub(super) fn divide(nr: u64, parts: &mut [Part]) -> bool {
    let all: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
    if nr >= all {
        return false;
    }
    let mut sum = 0;
    for part in parts.iter_mut().filter(|part| part.len > 0) {
        // At most the length, as `nr` is less than `all`.
        let of_len = u128::from(nr) * u128::from(part.len) * ONE as u128 / u128::from(all);
        let owed = of_len as i64 + part.credit;
        part.share = u32::try_from(owed.max(0) / ONE).unwrap_or(u32::MAX).min(part.len);
        part.credit = owed - i64::from(part.share) * ONE;
        sum += u64::from(part.share);
    }
    // The parts of items add up to a few items: those lists come first that have waited longest. If
    // some have been visited too early, the whole items alone may be more than `nr`.
    while sum < nr {
        let unvisited = parts.iter_mut().rev().filter(|part| part.share < part.len);
        let Some(part) = unvisited.max_by_key(|part| part.credit) else { break };
        (part.share, part.credit, sum) = (part.share + 1, part.credit - ONE, sum + 1);
    }
    while sum > nr {
        let visited = parts.iter_mut().rev().filter(|part| part.share > 0);
        let Some(part) = visited.min_by_key(|part| part.credit) else { break };
        (part.share, part.credit, sum) = (part.share - 1, part.credit + ONE, sum - 1);
    }
    for part in parts {
        // A list that the walk may empty has no credit, which its next item would pay for.
        let most = if part.share == part.len { 0 } else { ONE };
        part.credit = part.credit.min(most).max(-ONE);
    }
    true
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Returns the shares of a walk of `nr` items; `credits` are updated.
    fn shares(nr: u64, lens: &[u32], credits: &mut [i64]) -> Vec<u32> {
        let part = |(&len, &credit): (&u32, &i64)| Part { len, credit, share: 0 };
        let mut parts: Vec<_> = lens.iter().zip(&*credits).map(part).collect();
        assert!(divide(nr, &mut parts));
        credits.iter_mut().zip(&parts).for_each(|(credit, part)| *credit = part.credit);
        parts.iter().map(|part| part.share).collect()
    }

    /// Returns the visits of each list in `walks` walks of `nr` items, of lists of a constant
    /// length.
    fn visits(nr: u64, lens: &[u32], walks: u32) -> Vec<u32> {
        let mut credits = Vec::from_iter(lens.iter().map(|_| 0));
        let mut visits = Vec::from_iter(lens.iter().map(|_| 0));
        for _ in 0..walks {
            visits.iter_mut().zip(shares(nr, lens, &mut credits)).for_each(|(visits, share)| *visits += share);
        }
        visits
    }

    #[test]
    fn walks_of_few_items_are_in_proportion_too() {
        assert_eq!(visits(8, &[0, 4_000, 96], 512), [0, 4_000, 96]);
        assert_eq!(visits(1, &[10, 20, 70], 100), [10, 20, 70]);
        assert_eq!(visits(1, &[1, 999], 499), [0, 499], "its turn comes in the middle of a round");
        assert_eq!(visits(1, &[1, 999], 501), [1, 500]);
    }

    #[test]
    fn an_item_of_an_empty_list_owes_nothing_for_earlier_walks() {
        let mut credits = [0; 2];
        for _ in 0..1_000 {
            assert_eq!(shares(8, &[1_000, 0], &mut credits), [8, 0]);
        }
        assert!((0..60).all(|_| shares(8, &[1_000, 1], &mut credits) == [8, 0]));
    }

    #[test]
    fn one_item_of_many_has_its_turn() {
        let mut credits = [0; 2];
        let walk = (1..400_000).find(|_| shares(8, &[5_000_000, 1], &mut credits)[1] > 0);
        assert!(walk.is_some_and(|walk| (312_000..313_000).contains(&walk)), "{walk:?}");
    }

    #[test]
    fn a_list_that_a_walk_empties_has_no_credit() {
        let mut credits = [-ONE, ONE].map(|one| one * 9 / 10);
        assert_eq!((shares(1, &[1, 1], &mut credits), credits[1]), (Vec::from([0, 1]), 0));
    }

    #[test]
    fn lists_that_are_owed_more_than_the_walk_share_it() {
        let mut credits = [ONE, ONE, -ONE, -ONE].map(|one| one * 4 / 5);
        assert_eq!(shares(1, &[9; 4], &mut credits), [1, 0, 0, 0]);
        assert_eq!(shares(1, &[9; 4], &mut credits), [0, 1, 0, 0]);
    }

    #[test]
    fn a_walk_of_all_items_is_not_divided() {
        let mut parts = [3, 4].map(|len| Part { len, ..Part::default() });
        assert!(!divide(7, &mut parts) && divide(6, &mut parts));
        assert_eq!(parts.map(|part| part.share), [3, 3]);
        assert_eq!(shares(0, &[3, 4], &mut [0; 2]), [0; 2]);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_visits_and_lists_have_so_many_items(
            walks in prop::collection::vec((0..20_u64, prop::collection::vec(0..100_u32, 5)), 1..50),
        ) {
            let mut credits = [0; 5];
            for (nr, lens) in walks {
                if nr < lens.iter().copied().map(u64::from).sum() {
                    let shares = shares(nr, &lens, &mut credits);
                    prop_assert_eq!(shares.iter().copied().map(u64::from).sum::<u64>(), nr);
                    prop_assert!(shares.iter().zip(&lens).all(|(share, len)| share <= len));
                }
            }
        }
    }
}
