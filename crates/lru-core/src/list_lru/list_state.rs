//! The state of a list.

/// Where a list stands in its life, in one byte. Guarded by its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct ListState(pub(super) u8);

impl ListState {
    /// In use, and no add had to wait for its lock since the last sweep.
    pub(super) const LIVE: Self = Self(0);
    /// In use, and so many adds had to wait since the last sweep that it is to be split. What is between the two counts them.
    pub(super) const CONTENDED: Self = Self(64);
    /// A sweep found it empty, and since then nothing was added: the next sweep gives it back.
    pub(super) const IDLE: Self = Self(65);
    /// In use, with parts beside it.
    pub(super) const SPLIT: Self = Self(66);
    /// A part, in use.
    pub(super) const PART: Self = Self(67);
    /// Its items are the parent's, for good.
    pub(super) const DEAD: Self = Self(68);
    /// A part, whose items are for good on the list it is a part of.
    pub(super) const DEAD_PART: Self = Self(69);
}
