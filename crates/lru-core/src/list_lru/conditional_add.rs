//! An addition that is undone if the item was given up meanwhile.
//!
//! A thread that gives an item up (a cache: takes it out of its index) removes it from its list; if
//! it finds the item isolated, it leaves the item's handle to the thread that has isolated it. When
//! that thread puts the item back, one of the two must get the handle: the condition is checked
//! after the item names its list, and before another thread can take it off. A change must keep
//! that order.

use super::{AddError, ListLru};
use crate::list::{handle_of, Handle, Linked};
use crate::rcu::Guard;
use crate::{Memcg, NodeId};

impl<T: Linked> ListLru<T> {
    /// As [`add_pinned`](Self::add_pinned), but takes the item off again, and returns its handle,
    /// if `stays` returns false. `stays` is called once the item is on its list, under the list's
    /// lock: it must use no list.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    #[doc(hidden)]
    pub fn add_if(
        &self,
        item: T::Handle,
        memcg: &Memcg,
        node: NodeId,
        guard: &Guard,
        stays: impl FnOnce(&T) -> bool,
    ) -> Result<Option<T::Handle>, AddError<T::Handle>> {
        let object = item.into_raw();
        // SAFETY: `into_raw` returned a pointer to a live object, which we own.
        let links = unsafe { T::links(object) };
        // SAFETY: the links are those of a `T`, and derive from the pointer that `into_raw`
        // returned.
        let links = unsafe { T::LAYOUT.node(links) };
        // SAFETY: the list owns the object, and its lock is held, so the object is live.
        let stays = || stays(unsafe { object.as_ref() });
        let added = if T::Handle::UNIQUE {
            // SAFETY: we own the object, and these are lists of `T`.
            unsafe { self.raw.add_if::<true>(links, (memcg, node), guard, stays) }
        } else {
            // SAFETY: we own the object, and these are lists of `T`.
            unsafe { self.raw.add_if::<false>(links, (memcg, node), guard, stays) }
        };
        match added {
            // SAFETY: only links of a `T` are on these lists, and the list has given up its
            // ownership of this one.
            Ok(taken) => Ok(taken.map(|pushed| unsafe { handle_of::<T>(pushed) })),
            // SAFETY: `into_raw` returned this pointer above, and the list did not take ownership.
            Err(refused) => Err(AddError::of(refused, unsafe { T::Handle::from_raw(object) })),
        }
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use crate::rcu::pin;
    use crate::{linked, Links, MemcgTree};
    use alloc::sync::Arc;

    struct Page(u32, Links);
    linked!(impl[] for Page { 1, handle: Arc<Page> });

    #[test]
    fn an_item_whose_condition_fails_comes_back() {
        let (tree, lru, guard) = (MemcgTree::default(), ListLru::<Page>::new(), pin());
        let page = Arc::new(Page(7, Links::new()));
        let add = |stays| lru.add_if(page.clone(), tree.root(), NodeId::ZERO, &guard, |page| page.0 == 7 && stays);
        let taken = add(false).unwrap().expect("the condition fails");
        assert!(Arc::ptr_eq(&taken, &page));
        assert_eq!(lru.count_one(tree.root(), NodeId::ZERO), 0);
        assert!(add(true).unwrap().is_none());
        assert_eq!(lru.count_one(tree.root(), NodeId::ZERO), 1);
        assert!(matches!(add(true), Err(AddError::Linked(_))));
        lru.assert_valid();
        assert!(lru.del(&page).is_some());
    }
}
