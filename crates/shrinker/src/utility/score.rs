//! The score of a pair (a shrinker and a group): its utility and size in one word, comparable with
//! those of other pairs at any time.
//!
//! Choosing a victim reads the scores of up to 66 pairs, so a score must be one word and need no
//! update as time passes: the logarithm of a decaying utility plus a term for the epoch does not
//! change. Logarithms are to the base 2, in units of 1/[`ONE`].
//!
//! A change must ensure that [`PairState::unpack`] inverts [`PairState::pack`], except as said
//! there, and that a rank does not depend on the epoch in which its score was stored. The oracle
//! (`tests/one_budget/oracle.rs` of the package `lowwater`) has the same penalty and places.

use super::clock::HALF_LIFE;
use super::log2::{log2, ONE};

/// The fraction of the logarithm of a pair's size by which its score is reduced, as a divisor: of
/// equal pairs the larger is the victim.
const SIZE_PENALTY_PARTS: i32 = 10;
/// The decrease of the logarithm of a utility in one epoch.
const DECAY_PER_EPOCH: i32 = ONE / HALF_LIFE as i32;
/// A pair without hits has a utility of this many binary places below one hit in the whole budget.
const NONE_PLACES: i32 = 6;
/// Marks [`PairState::Empty`] in a packed word, in the place of a size penalty, which is never
/// above 0.
const EMPTY_TAG: u64 = 1;
/// Among pairs without utility, a pair with inserts is selected before an idle one: its score is
/// lower by at most this many binary places.
const RATE_PLACES: i32 = 8;

/// The state of a pair for a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairState {
    /// Not counted yet.
    Unknown,
    /// The pair had no objects, freed none, or could not be counted, in the epoch with these low
    /// bits.
    Empty(u16),
    /// The pair has objects.
    Scored(Score),
}

/// The score of a pair; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Score {
    /// The logarithm of the utility, plus [`DECAY_PER_EPOCH`] times the epoch in which it was
    /// computed; wraps. So scores of different epochs can be compared: all lose the same amount
    /// with time.
    utility: i32,
    /// The reduction for the pair's size, as a logarithm.
    size_penalty: i16,
    /// The low bits of the epoch in which the pair was last counted.
    counted: u16,
}

impl Score {
    /// Returns the score of a pair with `held` bytes, which was last counted in the epoch
    /// `counted`. `utility` is the logarithm of its utility in `epoch`.
    pub(crate) fn new(utility: i32, held: u64, epoch: u32, counted: u32) -> Self {
        let age = (epoch as i32).wrapping_mul(DECAY_PER_EPOCH);
        Self {
            utility: utility.wrapping_add(age),
            size_penalty: (-log2(held.max(1)) / SIZE_PENALTY_PARTS) as i16,
            counted: counted as u16,
        }
    }

    /// Returns the logarithm of the utility of a pair that has none, given the logarithm of its
    /// insert rate, if any: a pair with inserts and without hits (a scan) becomes a victim before
    /// idle pairs.
    pub(crate) fn none(rate: Option<i32>, budget: u64) -> i32 {
        none(budget) - rate.unwrap_or(0).clamp(0, RATE_PLACES * ONE)
    }

    /// Returns a number that is greater for the pair that should keep its memory, if both numbers
    /// are computed for the same present `epoch` and `budget`.
    pub(crate) fn rank(self, epoch: u32, budget: u64) -> i32 {
        self.decayed(epoch).max(none(budget) - RATE_PLACES * ONE) + i32::from(self.size_penalty)
    }

    /// Returns true if no hits of the pair are known at this present `epoch`.
    pub(crate) fn is_none(self, epoch: u32, budget: u64) -> bool {
        self.decayed(epoch) <= none(budget)
    }

    /// Returns the logarithm of the utility at this present `epoch`.
    fn decayed(self, epoch: u32) -> i32 {
        self.utility.wrapping_sub((epoch as i32).wrapping_mul(DECAY_PER_EPOCH))
    }

    /// Returns the low bits of the epoch in which the pair was last counted.
    pub(crate) fn counted(self) -> u32 {
        self.counted.into()
    }
}

/// Returns the logarithm of the utility of a pair without hits and inserts.
fn none(budget: u64) -> i32 {
    -log2(budget.max(1)) - NONE_PLACES * ONE
}

impl PairState {
    /// Returns true if the pair has to be counted in this epoch.
    pub(crate) fn is_due(self, epoch: u32) -> bool {
        self.age(epoch) > 0
    }

    /// Returns the number of epochs since the pair was counted, modulo 2^16; the maximum if it
    /// never was.
    pub(crate) fn age(self, epoch: u32) -> u32 {
        match self {
            Self::Unknown => u32::MAX,
            Self::Empty(counted) | Self::Scored(Score { counted, .. }) => (epoch as u16).wrapping_sub(counted).into(),
        }
    }

    /// Packs the state into one word. A score whose parts are all 0 packs as `Unknown`: its pair is
    /// counted again.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::Unknown => 0,
            // The size penalty of any held size is negative, or 0 for one byte, so `EMPTY_TAG` is
            // unambiguous.
            Self::Empty(counted) => EMPTY_TAG << 16 | u64::from(counted),
            Self::Scored(Score { utility, size_penalty, counted }) => {
                u64::from(utility as u32) << 32 | u64::from(size_penalty as u16) << 16 | u64::from(counted)
            }
        }
    }

    /// Unpacks the result of [`pack`](Self::pack).
    pub(crate) fn unpack(word: u64) -> Self {
        match word {
            0 => Self::Unknown,
            _ if word >> 16 & 0xffff == EMPTY_TAG => Self::Empty(word as u16),
            _ => Self::Scored(Score {
                utility: (word >> 32) as i32,
                size_penalty: (word >> 16) as i16,
                counted: word as u16,
            }),
        }
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;

    const BUDGET: u64 = 1 << 20;

    fn rank(utility: Option<i32>, held: u64, epoch: u32, now: u32) -> i32 {
        Score::new(utility.unwrap_or(Score::none(None, BUDGET)), held, epoch, epoch).rank(now, BUDGET)
    }

    #[test]
    fn a_stored_score_decays_by_itself() {
        for epoch in [0, 5, u32::MAX - 2] {
            let now = epoch.wrapping_add(HALF_LIFE);
            assert_eq!(rank(Some(-3 * ONE), 4096, epoch, now), rank(Some(-4 * ONE), 4096, now, now));
        }
    }

    #[test]
    fn more_hits_win_and_of_equals_the_larger_pays() {
        assert!(rank(Some(-ONE), 1 << 18, 0, 0) > rank(Some(-2 * ONE), 1 << 10, 0, 0));
        assert!(rank(Some(-ONE), 1 << 10, 0, 0) > rank(Some(-ONE), 1 << 18, 0, 0));
        assert!(rank(None, 1 << 10, 0, 0) > rank(None, 1 << 18, 0, 0), "also without any");
        let scan = Score::none(Some(3 * ONE), BUDGET);
        assert!(rank(Some(scan), 1 << 10, 0, 0) < rank(None, 1 << 18, 0, 0), "a scan pays before the idle");
        assert_eq!(rank(Some(Score::none(Some(i32::MAX), BUDGET)), 1, 0, 0), rank(Some(-1 << 20), 1, 0, 1_000));
    }

    #[test]
    fn a_rank_is_the_utility_less_a_tenth_of_the_size() {
        let none = -20 * ONE - 6 * ONE;
        for (utility, held, rank) in [
            (-3 * ONE, 0, -3 * ONE),
            (-3 * ONE, 1, -3 * ONE),
            (-3 * ONE, 1 << 15, -3 * ONE - 15 * ONE / 10),
            (none - 8 * ONE, 1, none - 8 * ONE),
            (none - 8 * ONE - 1, 1, none - 8 * ONE),
        ] {
            let score = Score::new(utility, held, 9, 7);
            assert_eq!((score.rank(9, BUDGET), score.counted()), (rank, 7), "{utility} with {held} bytes");
        }
        for (rate, less) in [(None, 0), (Some(-ONE), 0), (Some(3), 3), (Some(8 * ONE + 1), 8 * ONE)] {
            assert_eq!(Score::none(rate, BUDGET), none - less, "{rate:?}");
        }
        assert_eq!(Score::none(None, 0), -6 * ONE);
    }

    #[test]
    fn a_pair_is_due_in_each_epoch_after_its_count() {
        for counted in [0, 5, u32::MAX] {
            let scored = PairState::Scored(Score::new(0, 1, counted, counted));
            for state in [scored, PairState::Empty(counted as u16)] {
                assert!(!state.is_due(counted));
                let next = counted.wrapping_add(1);
                assert!(state.is_due(next));
                assert_eq!([counted, next].map(|epoch| state.age(epoch)), [0, 1]);
            }
        }
        assert_eq!((PairState::Unknown.age(0), PairState::Unknown.is_due(0)), (u32::MAX, true));
    }

    #[test]
    fn a_state_survives_packing() {
        for state in [
            PairState::Unknown,
            PairState::Empty(0),
            PairState::Empty(u16::MAX),
            PairState::Scored(Score::new(-777, 12_345, 9, 9)),
            PairState::Scored(Score::new(i32::MIN, u64::MAX, u32::MAX, 7)),
        ] {
            assert_eq!(PairState::unpack(state.pack()), state);
        }
    }
}
