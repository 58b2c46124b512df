//! Creation of groups.
//!
//! The group is allocated between two holds of the table's lock, so a name that was free may be
//! taken when the group is linked; then the new group is dropped and the call fails.
//!
//! A change must ensure that no group is allocated and no handle dropped under the table's lock:
//! the drop of a group's last handle takes that lock. Only the tables themselves grow under it.

use super::error::{MemcgError, DEPTH_MAX, NAME_MAX};
use super::group::{Memcg, Tree};
use super::id::MemcgId;
use crate::fallible::{try_str, TryArc};

impl Memcg {
    /// Creates a child. It exists until it is [taken offline](Self::offline), whether or not the
    /// handle is kept.
    ///
    /// O(1). Allocates the group outside of the tree's lock; the tree's tables may grow under it.
    ///
    /// # Errors
    ///
    /// [`BadName`](MemcgError::BadName) unless `name` is 1 to [`NAME_MAX`](Self::NAME_MAX) bytes
    /// without `/`, [`NameTaken`](MemcgError::NameTaken), [`Dying`](MemcgError::Dying) if this
    /// group is, [`TooDeep`](MemcgError::TooDeep), [`OutOfIds`](MemcgError::OutOfIds),
    /// [`NoMemory`](MemcgError::NoMemory), [`TreeGone`](MemcgError::TreeGone).
    #[doc(alias = "mem_cgroup_css_alloc")]
    pub fn create(&self, name: &str) -> Result<Memcg, MemcgError> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains('/') {
            return Err(MemcgError::BadName);
        }
        if self.depth() >= DEPTH_MAX {
            return Err(MemcgError::TooDeep);
        }
        Tree::insert(self.tree(), Some(self), name)
    }
}

impl Tree {
    /// Creates a group below `parent`; without a parent, the root.
    pub(super) fn insert(this: &TryArc<Self>, parent: Option<&Memcg>, name: &str) -> Result<Memcg, MemcgError> {
        let id = this.table().write().reserve(parent, name)?;
        // The group is allocated without the lock.
        let Some(own_name) = try_str(name) else {
            this.release(MemcgId::new(id), name);
            return Err(MemcgError::NoMemory);
        };
        // From here on the group's drop releases the id.
        let memcg = Memcg::try_new(this, parent, MemcgId::new(id), own_name)?;
        let linked = this.table().write().link(&memcg);
        linked.map(|()| memcg)
    }
}
