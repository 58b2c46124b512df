//! The groups below a group: lookup by name, its children, the walk over its subtree.
//!
//! A walk takes the lock of the tree's [table](super::table) for each step only, so that it delays
//! no other thread. Groups may come and go meanwhile: [`Descendants`] states which groups a walk
//! then visits. The walk counts itself as a cursor in the slot of its position, which keeps a group
//! that goes offline linked.
//!
//! A change must ensure that no lock is held between two steps, and that each cursor is taken off
//! its slot: by the next step, or by the drop of the walk.

use alloc::vec::Vec;
use core::fmt;
use core::iter::FusedIterator;

use super::group::Memcg;

impl Memcg {
    /// Returns the online child of this name. O(1).
    pub fn child(&self, name: &str) -> Option<Memcg> {
        self.tree().table().read().child(self, name).cloned()
    }

    /// Returns the online children, oldest first. Aborts if there is no memory.
    pub fn children(&self) -> Vec<Memcg> {
        let table = self.tree().table();
        let id = self.id().get();
        let mut children = Vec::new();
        // Memory is not allocated under the lock: repeats if children were created meanwhile for
        // which there is no capacity.
        loop {
            let len = table.read().children_len(id);
            children.reserve(len);
            let table = table.read();
            if table.children_len(id) <= children.capacity() {
                children.extend(table.children(id).cloned());
                return children;
            }
        }
    }

    /// Iterates over this group and all online groups below it, parents first. See [`Descendants`]
    /// for the effect of concurrent changes.
    pub fn descendants(&self) -> Descendants {
        Descendants::new(self)
    }
}

/// The online groups of a subtree, parents before children and older siblings before younger ones,
/// from [`Memcg::descendants`].
///
/// Groups may come and go during the walk. A group that is online from before the first step until
/// after the last is returned exactly once; a group that comes or goes in between is returned once
/// or not at all. The walking thread may take the group returned last offline. A step takes the
/// tree's lock for O(1) on average; between steps the walk holds no lock, but handles on the top
/// group and on the group returned last.
#[doc(alias = "mem_cgroup_iter")]
#[doc(alias = "css_next_descendant_pre")]
pub struct Descendants {
    /// The group at which the walk began.
    top: Memcg,
    /// The group returned last; the walk is counted as a cursor in that group's slot.
    at: Option<Memcg>,
    /// True once all groups have been returned.
    done: bool,
}

impl Descendants {
    fn new(top: &Memcg) -> Self {
        Self { top: top.clone(), at: None, done: false }
    }
}

impl Iterator for Descendants {
    type Item = Memcg;

    fn next(&mut self) -> Option<Memcg> {
        if self.done {
            return None;
        }
        let at = self.at.as_ref().map(|at| at.id().get());
        let next = self.top.tree().table().write().step(at, self.top.id().get());
        self.done = next.is_none();
        // The handle on the previous group is dropped here, after the lock is released.
        self.at.clone_from(&next);
        next
    }
}

impl FusedIterator for Descendants {}

impl Drop for Descendants {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        if let Some(at) = &self.at {
            self.top.tree().table().write().step_off(at.id().get());
        }
    }
}

impl fmt::Debug for Descendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descendants").field("top", &self.top).field("at", &self.at).finish_non_exhaustive()
    }
}
