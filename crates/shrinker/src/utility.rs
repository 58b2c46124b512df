//! Utility: how many misses each pair of a shrinker and a group would save per byte of more memory, so
//! that memory is taken where it earns least.
//!
//! ```text
//!     ghost hit  -> Tallies::hit        misses that so much more memory would have saved, by distance
//!     scan       -> Tallies::kept       objects that were looked at and kept, because they were used
//!     Tallies    -> Score               the best hits per byte over all distances, as a logarithm
//!     scores     -> Pairs::candidates   of which the least is the next victim
//! ```
//!
//! The rule is that of utility-based cache partitioning with look-ahead (Qureshi and Patt, 2006): the
//! utility of a pair is the greatest mean of hits per byte from its present size to any distance, so
//! that a pair whose hits begin far off (a loop, a second queue) is seen. Three things are added:
//!
//! * Tallies decay: they halve when victims have given a quarter of the budget. All pairs decay
//!   at the same rate, so the logarithm of a decayed utility differs from the stored one by a number
//!   that is the same for all: scores are compared without being brought up to date.
//! * Only attainable hits count: one that needs more than the whole limit counts nothing.
//! * Of equals the larger pays: the score of a pair is less by a tenth of the logarithm of its size.
//!
//! A shrinker that does not report ghost hits is judged by its turnover, which is taken to be worth as
//! many hits as the turnover of those that report ([`Pairs::score`]).
//!
//! All of it are tallies that make a guess better: every access is Relaxed, a lost update does no harm,
//! and nothing is read through them. Integers only, as kernels have no others.

mod clock;
mod log2;
mod miss;
mod pairs;
mod score;
mod tallies;

pub(crate) use log2::{log2, ONE};
pub use miss::Miss;
pub(crate) use miss::COST_ONE;
pub(crate) use pairs::{Candidates, Pairs, CANDIDATES_MAX};
pub(crate) use score::Standing;
