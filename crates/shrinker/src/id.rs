//! Shrinker ids: small and dense, the lowest free one first
//! ([`IdPool`](lowwater_base::id_pool::IdPool)).
//!
//! An id is a bit position in every group's map, so it must stay small however many shrinkers have
//! been registered and dropped.
//!
//! Numbers such as S17 are those of docs/INVARIANTS.md.

use core::fmt;

/// A shrinker's number, and its bit in the map. Reused after the registration has ended; the next
/// owner starts without bits and debts (`docs/INVARIANTS.md`, S17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "shrinker_id")]
pub struct ShrinkerId(u32);

impl ShrinkerId {
    pub(crate) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Returns the number, as in the debugfs name `<name>-<id>`. A later shrinker may have the same
    /// one, after this registration has ended.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ShrinkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
