//! The state of a list.
//!
//! All stages share one byte so that a list fits into 64 bytes, and the count of contended adds is
//! stored in the values below `CONTENDED`. A change must keep the order of the values: the code
//! compares with `<` to ask whether a list may be split or is dead.

/// The stage of a list's life, in one byte. Guarded by the list's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct ListState(pub(super) u8);

impl ListState {
    /// In use, and no add found the lock taken since the last sweep. The values between `LIVE` and
    /// `CONTENDED` count the adds that did. At `CONTENDED` the count restarts.
    pub(super) const LIVE: Self = Self(0);
    /// The threshold of that count, at which the list is due to be split. No list is in this state.
    /// Shards cost memory, so a few contended adds cause no split. `list_lru.rs`, `shards.rs` and
    /// docs/DESIGN.md state the number.
    pub(super) const CONTENDED: Self = Self(64);
    /// A sweep found the list empty, and nothing was added since: the next sweep frees it.
    pub(super) const IDLE: Self = Self(65);
    /// In use, with shards beside it.
    pub(super) const SPLIT: Self = Self(66);
    /// A shard, in use.
    pub(super) const SHARD: Self = Self(67);
    /// The list is empty and stays so: its items moved to the parent's list, a sweep freed it, or
    /// the `ListLru` was dropped.
    pub(super) const DEAD: Self = Self(68);
    /// A shard whose items have moved to the list it belongs to; final.
    pub(super) const DEAD_SHARD: Self = Self(69);
}
