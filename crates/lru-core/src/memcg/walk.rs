//! The walk over a subtree.

use core::fmt;
use core::iter::FusedIterator;

use crate::memcg::Memcg;

/// The online groups of a subtree, parents before children and older siblings before younger ones, from
/// [`Memcg::descendants`].
///
/// Groups may come and go meanwhile. A group that is online from before the first step until after the last is seen exactly
/// once; one that comes or goes in between is seen once or not at all. The group last seen may itself be taken offline by
/// the one who walks. A step takes the tree's lock for O(1) on average; between steps nothing is held but one handle.
#[doc(alias = "mem_cgroup_iter")]
#[doc(alias = "css_next_descendant_pre")]
pub struct Descendants {
    top: Memcg,
    /// Where the walk stands; counted as a cursor in that group's slot.
    at: Option<Memcg>,
    done: bool,
}

impl Descendants {
    pub(super) fn new(top: &Memcg) -> Self {
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
        let next = self.top.core().tree.table().write().step(at, self.top.id().get());
        self.done = next.is_none();
        // The handle on the last group is dropped here, without the lock.
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
            self.top.core().tree.table().write().step_off(at.id().get());
        }
    }
}

impl fmt::Debug for Descendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descendants").field("top", &self.top).field("at", &self.at).finish_non_exhaustive()
    }
}
