//! The policy for negative dentries: a trait, and what its bound depends on.

use super::trim::Settled;
use std::fmt;

/// Which negatives stay.
pub trait NegativePolicy: Send + Sync + fmt::Debug {
    /// A name for people.
    fn name(&self) -> &'static str;

    /// Do negatives have lists of their own, from which they are taken before any positive?
    fn apart(&self) -> bool {
        false
    }

    /// A new negative is on its list. May kill it, and others, by what `negative` offers, and must use nothing else of the cache: no lock of
    /// names or lists is held, but where a name was removed or moved, those of the directories are.
    fn settled(&self, negative: &Settled<'_>);

    /// A name was removed, nobody else uses it, and nobody asked for it: may it stay as a negative? Only answers: its directory is
    /// kept from changing meanwhile.
    fn keeps_removed(&self, _removed: &Settled<'_>) -> bool {
        true
    }

    /// The most negatives that one group on one node keeps at rest, in a cache of `buckets` that holds `positives` and in which
    /// negatives are spread over `directories`; `None` for no bound. Threads add one each while they work.
    ///
    /// Where the bound falls below what is there, as positives go, no lookup pays for all of it:
    /// each that adds a negative kills more than one, up to a small constant (32 in [`Probation`],
    /// 2 in [`ThreeInARow`]), until the bound holds. Without new negatives the rest stays until
    /// there is pressure, which takes negatives first where they are kept apart.
    fn bound(&self, situation: Situation) -> Option<u64>;
}

/// What a bound depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Buckets of the cache.
    pub buckets: u64,
    /// Positive dentries of the group that nobody uses.
    pub positives: u64,
    /// Directories with negatives.
    pub directories: u64,
}
