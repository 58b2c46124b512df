//! The way up from a group to the root.
//!
//! A loop here visits at most `DEPTH_MAX + 1` groups, because `create` bounds the depth and a
//! group's parent never changes. Nothing here may take a lock: `is_descendant_of` runs under the
//! lock of a stock slot.

use alloc::string::String;
use core::fmt;

use lowwater_base::fallible::abort;

use super::group::Memcg;

impl Memcg {
    /// Returns the names from the root down: `/` for the root, `/a/b` for others. O(square of the
    /// depth). Aborts if there is no memory.
    pub fn path(&self) -> String {
        self.try_path().unwrap_or_else(|| abort::<String>())
    }

    /// As [`path`](Self::path), but returns `None` if there is no memory: for errors, of which the
    /// cause may be just that.
    #[doc(hidden)]
    pub fn try_path(&self) -> Option<String> {
        let mut path = String::new();
        let bytes = self.names().map(|name| 1 + name.len()).sum();
        path.try_reserve_exact(bytes).ok()?;
        for name in self.names() {
            path.push('/');
            path.push_str(name);
        }
        Some(path)
    }

    /// Iterates over the names of the path, from the root down; one empty name for the root.
    fn names(&self) -> impl Iterator<Item = &str> {
        // The root's own name is only in its own path.
        let levels = self.depth().max(1);
        (0..levels).rev().filter_map(|level| self.ancestry().nth(level)).map(Memcg::name)
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
        f.write_str("Memcg(\"")?;
        self.names().try_for_each(|name| write!(f, "/{}", name.escape_debug()))?;
        f.write_str("\")")
    }
}
