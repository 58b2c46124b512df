//! Taking an item off, and learning whose list it was on.

use super::ListLru;
use crate::list::{handle_of, Linked};
use crate::Memcg;
use core::ptr;

impl<T: Linked> ListLru<T> {
    /// On whose list an item is; none if on none of these. True for no longer than it takes to ask.
    #[doc(alias = "mem_cgroup_from_obj")]
    pub fn memcg_of(&self, item: &T) -> Option<Memcg> {
        self.at_home(item, |list, _| list.memcg().clone())
    }

    /// As [`del`](Self::del), and says on whose list the item was: the group it was added for, or the ancestor that took that one's
    /// items over. What the item was charged for is counted there.
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
        self.at_home(item, |mut list, links| {
            let memcg = list.memcg().clone();
            // SAFETY: the item is on this list, whose lock we hold.
            let pushed = unsafe { list.unlink(links, ptr::null_mut()) };
            // SAFETY: only a `T`'s links are on these lists, and the list gave it up.
            (unsafe { handle_of::<T>(pushed) }, memcg)
        })
    }
}
