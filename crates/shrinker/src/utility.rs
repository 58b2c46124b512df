//! Utility: how many misses each pair of a shrinker and a group would save per byte of additional
//! memory, so that memory is taken from the pairs to which it brings the least.
//!
//! ```text
//!     ghost hit  -> Tallies::hit        misses that a given amount of memory would have saved, by distance
//!     scan       -> Tallies::scanned    objects that were scanned and kept, because they were used
//!     Tallies    -> Score               the best hits per byte over all distances, as a logarithm
//!     scores     -> LeastUseful::choose the candidate (Pairs::select) of the least score is the next victim
//! ```
//!
//! The algorithm is utility-based cache partitioning with look-ahead (Qureshi and Patt, 2006): the
//! utility of a pair is the greatest mean of hits per byte from its present size to any distance,
//! so that a pair whose hits begin at a large distance (a loop that does not fit) is not missed.
//! Four things are added:
//!
//! * Tallies decay: they halve when the bytes evicted from victims amount to a quarter of the
//!   budget. All pairs decay at the same rate, so the logarithm of a decayed utility differs from
//!   the stored one by the same number for all: scores are compared without being updated.
//! * Only attainable hits count: a hit that needs more memory than the whole limit does not count.
//! * Of many pairs, one that is smaller than the nearest class of distances counts as having more
//!   of its hits nearby, by a logarithmic curve. (A loop that is shorter than the class keeps some
//!   memory without hits.)
//! * Of pairs with equal utility the larger is the victim: a pair's score is reduced by a tenth of
//!   the logarithm of its size.
//!
//! The utility of a shrinker that does not report ghost hits is estimated from its turnover, at the
//! hits per turnover of the shrinkers that report ([`Pairs::score`]).
//!
//! All tallies are statistics for a heuristic: every access is Relaxed, a lost update does no harm,
//! and no other data is ordered by them. Integers only, because kernels have no floating point.
//!
//! A change must ensure that scores stay comparable without being updated: all tallies decay alike.
//! (For up to an epoch after a pair comes or goes, so that there are many or few, scores of small
//! pairs are of both kinds.)

mod clock;
mod log2;
mod miss;
mod pairs;
mod score;
mod tallies;
mod tally;

pub(crate) use log2::{log2, ONE};
pub use miss::Miss;
pub(crate) use miss::COST_ONE;
pub(crate) use pairs::{Candidates, Pair, Pairs, CANDIDATES_MAX};
pub(crate) use score::PairState;
