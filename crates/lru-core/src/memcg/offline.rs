//! Taking a group offline.
//!
//! A change must keep the order: state to dying, claims removed from the parent's sums, stock
//! drained, lists to the parent, hooks, end recorded in the parent. Each step relies on the ones
//! before it, and a panic of a listener or hook skips no later step.

use super::attached;
use super::error::MemcgError;
use super::group::{Memcg, Tree};
use super::id::MemcgId;
use crate::unwind::AtEnd;

impl Memcg {
    /// Takes the group offline: it cannot be found any more, its name is free at once, and its
    /// lists and the state that [hooks](crate::OfflineHook) keep for it join those of its parent.
    /// Its memory and its id stay until its last handle is gone.
    ///
    /// In this order: the state changes; the group's stock is drained; its lists are reparented;
    /// hooks are called; the tree drops its handle. O(lists of this group) and the hooks' own cost.
    ///
    /// lowwater's `Runtime` keeps groups by name, with a handle on each. Take its groups offline
    /// with `Runtime::end_group`, which also drops that handle; after a direct call of this
    /// function the runtime keeps the group's memory until the name is next looked up.
    ///
    /// # Errors
    ///
    /// [`Root`](MemcgError::Root), [`HasChildren`](MemcgError::HasChildren) also while a child's
    /// own `offline` has not returned, [`AlreadyDying`](MemcgError::AlreadyDying) also while
    /// another thread's call has not returned, [`TreeGone`](MemcgError::TreeGone).
    #[doc(alias = "mem_cgroup_css_offline")]
    pub fn offline(&self) -> Result<(), MemcgError> {
        let parent = self.parent().ok_or(MemcgError::Root)?;
        let tree = self.tree();
        let kept = tree.table().write().begin_offline(self)?;
        // `parent` counts this group as a child until `_end` is dropped, also if a hook panics, so
        // `parent` stays online until then.
        let _end = EndOffline { tree, parent: parent.id() };
        self.forget_protection();
        tree.drain_stock(|other| other == self);
        // Called also if a listener of the lists panics: the hooks hand over state that belongs to
        // the parent from now on.
        let hooks = AtEnd(|| tree.hooks().for_each(|hook| hook.offline(self, parent)));
        attached::reparent(self);
        drop(hooks);
        drop(kept);
        Ok(())
    }
}

/// A guard that, when it is dropped, records in the parent that a child has finished going offline.
struct EndOffline<'a> {
    tree: &'a Tree,
    parent: MemcgId,
}

impl Drop for EndOffline<'_> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        self.tree.table().write().end_offline(self.parent.get());
    }
}
