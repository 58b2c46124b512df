//! The policy for negative dentries: a trait, and the inputs of its bound.
//!
//! A policy sees each new negative once and may trim through `NewNegative` only, so that it cannot
//! kill a dentry in use. Its bound must hold at rest, when no lookup is in flight.

use super::trim::NewNegative;
use std::fmt;

/// A policy that decides which negative dentries stay cached.
#[doc(alias = "trim_negative")]
pub trait NegativePolicy: Send + Sync + fmt::Debug {
    /// Returns the name of the policy, for reports.
    fn name(&self) -> &'static str;

    /// Returns whether negatives have lists of their own, which are reclaimed before any positive.
    fn has_own_lists(&self) -> bool {
        false
    }

    /// Trims after a new negative was added to its list: kills it or others through the methods of
    /// `negative`.
    ///
    /// Must use nothing else of the cache: no lock of a dentry or list is held, but after a link,
    /// an unlink or a rename the `rwsem`s of the directories are.
    fn negative_added(&self, negative: &NewNegative<'_>);

    /// Returns whether an unused, unlinked dentry may stay as a negative. Must not trim:
    /// the directory's `rwsem` is held.
    fn can_keep_removed(&self, _removed: &NewNegative<'_>) -> bool {
        true
    }

    /// Returns the most negatives of one mount that one memcg keeps on one node at rest, in a cache
    /// with these inputs; `None` if there is no bound. While threads work, each may add one more.
    ///
    /// When the bound falls below the current number, because positives were freed, no single
    /// lookup trims the whole excess. Each lookup that adds a negative kills more than one, up to a
    /// small constant (32 in [`Probation`](super::Probation), 2 in
    /// [`ThreeInARow`](super::ThreeInARow) and [`PerDirectory`](super::PerDirectory)), until the
    /// bound holds. Without new negatives the excess stays until there is memory pressure, which
    /// frees negatives first where they have lists of their own: the unused ones, then the excess,
    /// then positives.
    ///
    /// For such lists reclaim calls this method, without a lock of a dentry or list, and with at
    /// least the number of directories that hold negatives. If the method panics, the mount is not
    /// reclaimed any more, or the lookup panics whose charge reclaims.
    fn bound(&self, inputs: BoundInputs) -> Option<u64>;
}

/// The inputs of [`NegativePolicy::bound`].
#[derive(Clone, Copy, Debug)]
pub struct BoundInputs {
    /// Buckets of the hash table.
    pub buckets: u64,
    /// Unused positive dentries of the memcg.
    pub positives: u64,
    /// Directories that hold negatives.
    pub directories: u64,
}
