//! Moving an item to the young end, for LRU orders that move an item on every use.
//!
//! It takes the list's lock for each use, which is why caches mark a use by a bit in the item and
//! let the walk rotate the marked items. A change must ensure that an isolated item is left alone.

use super::ListLru;
use crate::list::Linked;
use crate::rcu::pin;

impl<T: Linked> ListLru<T> {
    /// Makes an item the youngest of its list. Returns false if it is on none of these lists:
    /// removed, or isolated by a walk. O(1), with the list's lock: most users only mark a use, and
    /// [rotate](super::Isolate::rotate) marked items in the walk.
    ///
    /// ```
    /// use lowwater_lru_core::{linked, Isolated, Links, ListLru, MemcgTree, NodeId};
    /// use std::sync::Arc;
    ///
    /// struct Page(u32, Links);
    /// linked!(impl[] for Page { 1, handle: Arc<Page> });
    ///
    /// let tree = MemcgTree::default();
    /// let lru = ListLru::<Page>::new();
    /// let pages: Vec<_> = (0..3).map(|n| Arc::new(Page(n, Links::new()))).collect();
    /// for page in &pages {
    ///     lru.add(page.clone(), tree.root(), NodeId::ZERO)?;
    /// }
    /// assert!(lru.promote(&pages[0]));
    ///
    /// let mut old = Isolated::new();
    /// lru.walk_one(tree.root(), NodeId::ZERO, &mut 3, |it| it.isolate(&mut old));
    /// assert_eq!(old.map(|page| page.0).collect::<Vec<_>>(), [1, 2, 0]);
    /// assert!(!lru.promote(&pages[0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "mark_page_accessed")]
    pub fn promote(&self, item: &T) -> bool {
        // SAFETY: `at_home` locked the list that the item is on.
        let promoted = self.at_home(item, &pin(), |mut list, links| unsafe { list.rotate(links) });
        promoted.is_some()
    }
}
