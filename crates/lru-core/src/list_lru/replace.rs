//! Replacing an item by another object in place.
//!
//! A cache replaces an item to overwrite a value without a change of its age. A removal and an
//! addition would make the new object the youngest, and might call the listener (the list's
//! `Occupancy`). A change must ensure that the object is returned to the caller if it was not put
//! on a list.

use super::ListLru;
use crate::list::{handle_of, Handle, Linked};
use crate::rcu::{pin, Guard};

impl<T: Linked> ListLru<T> {
    /// Puts an object in an item's place, with the item's age, and returns the item's handle. The
    /// list's count does not change, so the listener is not called. O(1), allocates nothing.
    ///
    /// # Errors
    ///
    /// The object, if the item is on none of these lists (a walk may have isolated it), or if the
    /// object is on a list itself.
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
        self.replace_pinned(item, by, &pin())
    }

    /// As [`replace`](Self::replace), for a caller that is in the read side.
    ///
    /// # Errors
    ///
    /// As for [`replace`](Self::replace).
    #[doc(hidden)]
    pub fn replace_pinned(&self, item: &T, by: T::Handle, guard: &Guard) -> Result<T::Handle, T::Handle> {
        let object = by.into_raw();
        // SAFETY: `into_raw` returned a pointer to a live object, which we own.
        let links = unsafe { T::links(object) };
        // SAFETY: the links are those of a `T`, and derive from the pointer that `into_raw`
        // returned.
        let node = unsafe { T::LAYOUT.node(links) };
        let replaced = self.at_home(item, guard, |mut list, links| {
            // SAFETY: clause 1: `at_home` locked the list that the item is on. Clause 2:
            // `by.into_raw()` above gave up the handle. Clause 3: if handles are `UNIQUE`, that
            // handle was the only way to the object. Clause 4: this is a `ListLru<T>`.
            unsafe { list.replace(T::LAYOUT, links, node, T::Handle::UNIQUE) }
        });
        match replaced.flatten() {
            // SAFETY: only links of a `T` are on these lists, and `replace` gave up the list's
            // ownership of this one.
            Some(pushed) => Ok(unsafe { handle_of::<T>(pushed) }),
            // SAFETY: `into_raw` returned this pointer above, and the list did not take ownership.
            None => Err(unsafe { T::Handle::from_raw(object) }),
        }
    }
}
