//! Isolation of a list's oldest items: each visited item leaves the old end of the list, so the
//! next item is always the first one, and no cursor is needed.
//!
//! Caches evict in this way, since an eviction takes a record off or rotates it. A change must
//! ensure that the result is that of a walk with the same decisions, which the tests compare, and
//! that the cursors of walks in progress stay where they are: at a cursor this code falls back to
//! the general walk.

use super::isolate::Isolated;
use super::raw::RawListLru;
use super::ListLru;
use crate::list::{Hook, LinkNode, Linked};
use crate::rcu::pin;
use crate::{Memcg, NodeId};
use core::ops::ControlFlow;

/// The decision about an item, in [`ListLru::isolate_oldest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Move the item to the first private list.
    First,
    /// Move the item to the second private list.
    Second,
    /// Keep the item, as the youngest.
    Rotate,
}

impl<T: Linked> ListLru<T> {
    /// Takes up to `nr_to_walk` of the oldest items off the group's list on `node`: each goes
    /// where `pick` decides. Returns the two private lists.
    ///
    /// The effect is that of a [walk](Self::walk_one) that isolates or rotates every item.
    /// `nr_to_walk` falls by one for each visited item. `pick` runs under the list's lock: it must
    /// be short, must not block, and must not use this `ListLru`. O(items visited).
    ///
    /// # Panics
    ///
    /// If `pick` panics. The item stays on its list, and the items that were isolated before are
    /// dropped.
    ///
    /// ```
    /// use lowwater_lru_core::{linked, Links, ListLru, MemcgTree, NodeId, Pick};
    ///
    /// struct Page(Links, u32);
    /// linked!(impl[] for Page { 0, handle: Box<Page> });
    ///
    /// let (tree, lru) = (MemcgTree::default(), ListLru::<Page>::new());
    /// for uses in [0, 2, 1] {
    ///     lru.add(Box::new(Page(Links::new(), uses)), tree.root(), NodeId::ZERO)?;
    /// }
    /// let [unused, used_once] = lru.isolate_oldest(tree.root(), NodeId::ZERO, &mut 10, |page| match page.1 {
    ///     0 => Pick::First,
    ///     1 => Pick::Second,
    ///     _ => Pick::Rotate,
    /// });
    /// assert_eq!((unused.len(), used_once.len(), lru.count_node(NodeId::ZERO)), (1, 1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "isolate_lru_folios")]
    #[doc(alias = "list_lru_isolate_move")]
    pub fn isolate_oldest(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut pick: impl FnMut(&T) -> Pick,
    ) -> [Isolated<T>; 2] {
        let mut private = [Isolated::new(), Isolated::new()];
        let _never_ended = self.raw.each_share(memcg, node, nr_to_walk, |index, left| {
            self.raw.isolate_oldest_of(memcg, node, index, left, &mut pick, &mut private)
        });
        private
    }
}

impl RawListLru {
    /// As [`ListLru::isolate_oldest`], for one list by `index`: 0 is the group's list on the node,
    /// the others are its shards. Never returns `Break`, as no decision ends the walk.
    #[inline]
    fn isolate_oldest_of<T: Linked>(
        &self,
        memcg: &Memcg,
        node: NodeId,
        index: usize,
        nr_to_walk: &mut u64,
        pick: &mut impl FnMut(&T) -> Pick,
        [first_list, second_list]: &mut [Isolated<T>; 2],
    ) -> ControlFlow<()> {
        let guard = pin();
        let Some(mut list) = self.lock_one(memcg, node, index, &guard) else { return ControlFlow::Continue(()) };
        // Rotated items come up again at the end; `left`, the number of items at the start that are
        // not yet visited, keeps them from being visited twice.
        let mut left = u64::from(list.one().nr_items()).min(*nr_to_walk);
        let mut by = list.with_list(|l, _| l.first());
        // SAFETY: `by` is none, or refers to links on this list, and we hold the list's lock.
        let mut oldest = unsafe { T::LAYOUT.find(by) };
        while let (Some(at), true) = (oldest, left > 0) {
            // SAFETY: the links are on this list, and we hold the list's lock, so they are live.
            if unsafe { at.as_ref() }.is_cursor() {
                // The cursor of a walk that has released the lock: it stays where it is. The
                // general walk visits the remaining `left` items: they precede those rotated here.
                drop(list);
                let (before, mut removed) = (left, 0);
                let flow = self.walk_list(memcg, node, index, &mut left, &mut removed, |it| match pick(it.item()) {
                    Pick::First => it.isolate(first_list),
                    Pick::Second => it.isolate(second_list),
                    Pick::Rotate => it.rotate(),
                });
                *nr_to_walk -= before - left;
                return flow;
            }
            // SAFETY: only links of a `T` are added to a `ListLru<T>`.
            let item = unsafe { T::from_links(at) };
            // SAFETY: the item is on this list, and we hold the list's lock, so it is live.
            let picked = pick(unsafe { item.as_ref() });
            left -= 1;
            *nr_to_walk -= 1;
            let to = match picked {
                Pick::First => &mut *first_list,
                Pick::Second => &mut *second_list,
                Pick::Rotate => {
                    // SAFETY: the item is on this list, and we hold the list's lock.
                    unsafe { list.rotate(at) };
                    by = list.with_list(|l, _| l.first());
                    // SAFETY: `by` refers to links on this list, and we hold the list's lock.
                    oldest = unsafe { T::LAYOUT.find(by) };
                    continue;
                }
            };
            // SAFETY: the item is the first on this list, whose lock we hold; the lists of a
            // `ListLru<T>` have the layout of `T`.
            let (next, next_at) = unsafe { list.unlink_first(T::LAYOUT, at, Hook::PRIVATE) };
            // SAFETY: the item was just unlinked and marked private, and `by` is the reference by
            // which it was pushed.
            unsafe { to.push_links(LinkNode { at, by }) };
            (by, oldest) = (next, next_at);
        }
        // SAFETY: `by` is none, or refers to links on this list, and we hold the list's lock.
        list.with_list(|l, layout| unsafe { l.expect(layout, by) });
        ControlFlow::Continue(())
    }
}
