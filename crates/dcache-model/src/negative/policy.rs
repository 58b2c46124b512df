//! The policy for negative dentries: a trait, and what its bound depends on.

use super::trim::NewNegative;
use std::fmt;

/// A policy that decides which negative dentries stay cached.
#[doc(alias = "trim_negative")]
pub trait NegativePolicy: Send + Sync + fmt::Debug {
    /// A name for people.
    fn name(&self) -> &'static str;

    /// Returns whether negatives have lists of their own, which are reclaimed before any positive.
    fn has_own_lists(&self) -> bool {
        false
    }

    /// Trims after a new negative was added to its list: kills it or others through the methods of
    /// `negative`. Must use nothing else of the cache: no lock of a name or list is held, but after
    /// an unlink or a rename those of the directories are.
    fn negative_added(&self, negative: &NewNegative<'_>);

    /// Returns whether an unused dentry whose name was removed may stay as a negative. Must not
    /// trim: the directory is locked.
    fn can_keep_removed(&self, _removed: &NewNegative<'_>) -> bool {
        true
    }

    /// The most negatives that one group on one node keeps at rest, in a cache of `buckets` that
    /// holds `positives` and in which negatives are spread over `directories`; `None` for no bound.
    /// Threads add one each while they work.
    ///
    /// Where the bound falls below what is there, as positives go, no lookup pays for all of it:
    /// each that adds a negative kills more than one, up to a small constant (32 in [`Probation`](super::Probation),
    /// 2 in [`ThreeInARow`](super::ThreeInARow)), until the bound holds. Without new negatives the rest stays until
    /// there is pressure, which takes negatives first where they have lists of their own.
    fn bound(&self, inputs: BoundInputs) -> Option<u64>;
}

/// The inputs of [`NegativePolicy::bound`].
#[derive(Clone, Copy, Debug)]
pub struct BoundInputs {
    /// Buckets of the cache.
    pub buckets: u64,
    /// Positive dentries of the group that nobody uses.
    pub positives: u64,
    /// Directories with negatives.
    pub directories: u64,
}
