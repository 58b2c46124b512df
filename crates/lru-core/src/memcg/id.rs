//! Group ids.
//!
//! A structure that is indexed by group id is as long as the highest id in use, so a new group
//! takes the lowest free id. An id becomes free only when the last handle of its group is gone, not
//! when the group goes offline: objects of a dying group still name it by the id, and a lookup of
//! that id returns the nearest online ancestor. Two live groups with one id would be a bug (R10 of
//! docs/INVARIANTS.md).
//!
//! A change must keep both rules: the lowest free id first, and no reuse before the last handle is
//! gone.

use core::fmt;
use lowwater_base::hash::GOLDEN_RATIO;

/// The number of a group: dense, counted from the root's 0, the lowest free number first.
///
/// An id belongs to its group until the last handle of the group is gone; afterwards it may be
/// assigned to a new group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "kmemcg_id")]
#[doc(alias = "mem_cgroup_id")]
pub struct MemcgId(u32);

impl MemcgId {
    /// Returns a hash of the id. Ids are dense, and the groups that use a table may be every n-th
    /// one: consecutive ids and arithmetic sequences spread equally well.
    pub(crate) fn spread(self) -> u16 {
        // Fibonacci hashing.
        (u64::from(self.0).wrapping_mul(GOLDEN_RATIO) >> 48) as u16
    }

    /// The root of every tree.
    pub const ROOT: Self = Self(0);

    /// Returns the id with number `n`, as read from a file or a command. [`MemcgTree::get`] finds
    /// out whether a group has it.
    ///
    /// [`MemcgTree::get`]: crate::MemcgTree::get
    pub const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Returns the number, as it is displayed and as [`new`](Self::new) takes it.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number as a `usize`, to index a table that is as long as the highest id in use.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemcgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
