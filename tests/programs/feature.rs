//! Switches for the features of programs. All are on, except for those in
//! `LOWWATER_PROGRAMS_WITHOUT`, separated by commas.
//!
//! So programs can avoid a known defect while others are searched for.
//!
//! A switch that is added must be added to `ALL`, at the place of its number.

/// One switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Guards kept in thread-locals, which may outlive those of the library.
    GuardsInThreadLocals,
    /// Leaked guards.
    LeakedGuards,
    /// Hash chains, with readers that outlive the table.
    Chains,
    /// Panics in the `Drop` of list items.
    ItemDropPanics,
    /// Groups of two trees in one `ListLru`.
    TwoTrees,
    /// A `Drop` of a key or value that uses caches.
    DropsUseCaches,
    /// Listeners that drop handles on caches.
    ListenersDropHandles,
    /// Hashers with changing results ([`Hashing::Lying`](crate::key::Hashing::Lying)).
    LyingHashers,
    /// Panics in the `Drop` of state that closures capture.
    CapturePanics,
    /// Panics in other callbacks.
    Panics,
    /// Callbacks that run steps.
    Reentry,
    /// Handles on caches in thread-locals.
    HandlesInThreadLocals,
    /// Foreign shrinkers.
    Shrinkers,
    /// Further threads that run steps beside the first.
    Threads,
    /// Times to live and to idle.
    Times,
    /// Panics under a list's lock: in the callback of a walk, and in `Occupancy`.
    PanicsUnderLocks,
    /// Lowered budgets and limits, reclaim.
    Pressure,
    /// Groups that end.
    GroupsEnd,
    /// An `ExtendibleIndex` and its slab, used directly.
    Index,
}

use Feature::*;

/// All, in the order of their bits.
pub const ALL: [Feature; 19] = [
    GuardsInThreadLocals,
    LeakedGuards,
    Chains,
    ItemDropPanics,
    TwoTrees,
    DropsUseCaches,
    ListenersDropHandles,
    LyingHashers,
    CapturePanics,
    Panics,
    Reentry,
    HandlesInThreadLocals,
    Shrinkers,
    Threads,
    Times,
    PanicsUnderLocks,
    Pressure,
    GroupsEnd,
    Index,
];

/// A set of switches.
#[derive(Clone, Copy, Debug)]
pub struct Features(u32);

impl Features {
    /// Returns the switches that the environment leaves on.
    pub fn from_env() -> Self {
        let without = std::env::var("LOWWATER_PROGRAMS_WITHOUT").unwrap_or_default();
        let names: Vec<_> = without.split(',').filter(|name| !name.is_empty()).collect();
        let known = |name: &&str| ALL.iter().any(|feature| format!("{feature:?}") == **name);
        assert!(names.iter().all(known), "unknown feature in {names:?}; there are {ALL:?}");
        let on = |feature: &&Feature| !names.contains(&format!("{feature:?}").as_str());
        Self(ALL.iter().filter(on).fold(0, |bits, &feature| bits | 1 << feature as u32))
    }

    /// Returns the switches that are also in the mask.
    pub fn and(self, mask: u32) -> Self {
        Self(self.0 & mask)
    }

    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u32 != 0
    }
}
