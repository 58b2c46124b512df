//! Another object in an item's place.

use super::ListLru;
use crate::list::{handle_of, Handle, Linked};

impl<T: Linked> ListLru<T> {
    /// Puts an object where an item is, as old as that one, and returns the item's handle. What the lists count does not change, so nobody
    /// is told. O(1), and needs no memory.
    ///
    /// # Errors
    ///
    /// The object, if the item is on none of these lists (it may be isolated by a walk), or the object is on a list itself.
    ///
    /// ```
    /// use lowwater_lru_core::{linked, Isolated, Links, ListLru, MemcgTree, NodeId};
    /// use std::sync::Arc;
    ///
    /// struct Page(Links, u32);
    /// linked!(impl[] for Page { 0, handle: Arc<Page> });
    /// let page = |n| Arc::new(Page(Links::new(), n));
    ///
    /// let tree = MemcgTree::default();
    /// let (lru, pages) = (ListLru::<Page>::new(), [page(1), page(2)]);
    /// for page in &pages {
    ///     lru.add(page.clone(), tree.root(), NodeId::ZERO)?;
    /// }
    /// let old = lru.replace(&pages[0], page(7)).ok().unwrap();
    /// assert_eq!(old.1, 1);
    /// assert!(lru.replace(&old, page(8)).is_err());
    ///
    /// let mut all = Isolated::new();
    /// lru.walk_one(tree.root(), NodeId::ZERO, &mut 9, |it| it.isolate(&mut all));
    /// assert_eq!(all.map(|page| page.1).collect::<Vec<_>>(), [7, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "list_replace")]
    pub fn replace(&self, item: &T, by: T::Handle) -> Result<T::Handle, T::Handle> {
        let object = by.into_raw();
        // SAFETY: a handle gives a pointer to an object.
        let links = unsafe { T::links(object) };
        // SAFETY: they are a `T`'s, by the pointer that its handle was turned into.
        let node = unsafe { T::LAYOUT.node(links) };
        let replaced = self.at_home(item, |mut list, links| {
            // SAFETY: the item is on this list, whose lock we hold, and the object was the caller's, who gave it up above.
            unsafe { list.replace(links, node, T::Handle::UNIQUE) }
        });
        match replaced.flatten() {
            // SAFETY: only a `T`'s links are on these lists, and the list gave it up.
            Some(pushed) => Ok(unsafe { handle_of::<T>(pushed) }),
            // SAFETY: it was turned into this pointer above, and the list did not take it.
            None => Err(unsafe { T::Handle::from_raw(object) }),
        }
    }
}
