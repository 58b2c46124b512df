//! Finding the group that owns the list an item is on.
//!
//! An item stores only the list it was added to (its home). If that list is dead, the group is that
//! of the list at which the items arrived. A change must read the group under the lock of that
//! list, since afterwards the items may move on.

use super::ListLru;
use crate::list::{handle_of, Linked};
use crate::rcu::{pin, Guard};
use crate::Memcg;
use core::ptr;

impl<T: Linked> ListLru<T> {
    /// Returns the group on whose list an item is; `None` if it is on none of these lists. The
    /// result may be outdated when it is returned.
    #[doc(alias = "mem_cgroup_from_obj")]
    pub fn memcg_of(&self, item: &T) -> Option<Memcg> {
        self.at_home(item, &pin(), |list, _| list.memcg().clone())
    }

    /// Returns whether an item is on the list of this group, which [`memcg_of`](Self::memcg_of)
    /// would return. Clones no handle.
    #[doc(hidden)]
    pub fn is_on_list_of(&self, item: &T, memcg: &Memcg, guard: &Guard) -> bool {
        self.at_home(item, guard, |list, _| list.memcg() == memcg).unwrap_or(false)
    }

    /// As [`del`](Self::del), and also returns the group on whose list the item was: the group it
    /// was added for, or the ancestor that took over that group's items. The item's charge is
    /// counted in that group.
    ///
    /// ```
    /// use lowwater_lru_core::{linked, Links, ListLru, MemcgTree, NodeId};
    /// use std::sync::Arc;
    ///
    /// struct Page(Links);
    /// linked!(impl[] for Page { 0, handle: Arc<Page> });
    ///
    /// let tree = MemcgTree::default();
    /// let tenant = tree.root().create("tenant")?;
    /// let (lru, page) = (ListLru::<Page>::new(), Arc::new(Page(Links::new())));
    /// lru.add(page.clone(), &tenant, NodeId::ZERO)?;
    /// tenant.offline()?;
    /// let (_, whose) = lru.del_with_memcg(&page).unwrap();
    /// assert_eq!(&whose, tree.root());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn del_with_memcg(&self, item: &T) -> Option<(T::Handle, Memcg)> {
        self.at_home(item, &pin(), |mut list, links| {
            let memcg = list.memcg().clone();
            // SAFETY: `at_home` locked the list that the item is on.
            let pushed = unsafe { list.unlink(links, ptr::null_mut()) };
            // SAFETY: only links of a `T` are on these lists, and `unlink` gave up the list's
            // ownership.
            (unsafe { handle_of::<T>(pushed) }, memcg)
        })
    }
}
