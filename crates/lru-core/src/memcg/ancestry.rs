//! The way up from a group to the root.
//!
//! A loop here visits at most `DEPTH_MAX + 1` groups, because `create` bounds the depth and a
//! group's parent never changes. Nothing here may take a lock: `is_descendant_of` runs under the
//! lock of a stock slot.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::group::Memcg;

impl Memcg {
    /// Returns the names from the root down: `/` for the root, `/a/b` for others.
    pub fn path(&self) -> String {
        let mut names: Vec<&str> = self.ancestry().map(Memcg::name).collect();
        if names.len() == 1 {
            names.push("");
        }
        names.reverse();
        names.join("/")
    }

    /// Returns this group if it is online, or else the nearest ancestor that is. O(depth) for a
    /// dying group.
    #[doc(alias = "parent_mem_cgroup")]
    pub fn nearest_online(&self) -> Memcg {
        // The root is always online.
        self.ancestry().find(|memcg| memcg.is_online()).unwrap_or(self).clone()
    }

    /// Returns whether this group is `other` or below it. O(difference of depths).
    #[doc(alias = "mem_cgroup_is_descendant")]
    pub fn is_descendant_of(&self, other: &Memcg) -> bool {
        let levels = self.depth().checked_sub(other.depth());
        levels.is_some_and(|levels| self.ancestry().nth(levels) == Some(other))
    }

    /// Iterates over this group, its parent, and so on to the root: `DEPTH_MAX + 1` groups at most.
    pub(super) fn ancestry(&self) -> impl Iterator<Item = &Memcg> {
        core::iter::successors(Some(self), |memcg| memcg.parent())
    }
}

impl fmt::Debug for Memcg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memcg").field(&self.path()).finish()
    }
}
