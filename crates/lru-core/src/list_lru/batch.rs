//! Many items at once: one lock for a batch of them, and nothing allocated, since they are handed over as an [`Isolated`].

use super::isolate::Isolated;
use super::locked::LockedList;
use super::raw::Refused;
use super::{AllocError, ListLru};
use crate::list::{Hook, LinkNode, Linked};
use crate::rcu::pin;
use crate::{Memcg, NodeId};
use core::ptr::NonNull;

/// Items that are moved under one hold of a lock, so that others are not kept waiting for long.
const BATCH: usize = 64;

impl<T: Linked> ListLru<T> {
    /// Adds all of `items` as the youngest of their group on `node`, in order, and says how many those were. As
    /// [`add`](Self::add), but it takes the list's lock once for many.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when no list can be had, or it is full; what was not added stays in `items`.
    ///
    /// ```
    /// use lowwater_lru_core::{linked, Isolated, Links, ListLru, MemcgTree, NodeId};
    ///
    /// struct Page(Links);
    /// linked!(impl[] for Page { 0, handle: Box<Page> });
    ///
    /// let tree = MemcgTree::default();
    /// let lru = ListLru::<Page>::new();
    /// let mut pages: Isolated<Page> = (0..100).map(|_| Box::new(Page(Links::new()))).collect();
    /// assert_eq!(lru.add_batch(&mut pages, tree.root(), NodeId::ZERO), Ok(100));
    /// assert!(pages.is_empty());
    /// ```
    pub fn add_batch(&self, items: &mut Isolated<T>, memcg: &Memcg, node: NodeId) -> Result<u64, AllocError> {
        let mut added = 0;
        while let Some(oldest) = items.first() {
            let guard = pin();
            // SAFETY: the items are ours, so they are live.
            let object = unsafe { oldest.at.as_ref() };
            let mut list = match self.raw.lock_to_add(object, memcg, node, false, &guard) {
                Ok(list) => list,
                Err(Refused::Linked | Refused::NoMemory | Refused::Full) => return Err(AllocError),
            };
            for _ in 0..BATCH {
                let Some(links) = items.first() else { break };
                if !self.raw.add_private(&mut list, links, || items.pop_links()) {
                    return Err(AllocError);
                }
                added += 1;
            }
        }
        Ok(added)
    }

    /// Removes those of `items` that are on one of these lists, and adds them to `to`. Says how many those were. As
    /// [`del`](Self::del), but it takes the lock once for many that are on the same list one after the other.
    ///
    /// No lock is held while `items` gives the next.
    pub fn del_batch<'i>(&self, items: impl IntoIterator<Item = &'i T>, to: &mut Isolated<T>) -> u64
    where
        T: 'i,
    {
        let mut items = items.into_iter();
        let mut removed = 0;
        loop {
            let mut batch: [Option<NonNull<Hook>>; BATCH] = [None; BATCH];
            let mut len = 0;
            for item in items.by_ref().take(BATCH) {
                // SAFETY: it is a reference to an object.
                batch[len] = Some(unsafe { T::links(NonNull::from(item)) });
                len += 1;
            }
            // SAFETY: they are parts of items that are borrowed.
            removed += unsafe { self.del_links(batch.into_iter().flatten(), to) };
            if len < BATCH {
                return removed;
            }
        }
    }

    /// # Safety
    ///
    /// The links are those of objects that are live.
    unsafe fn del_links(&self, batch: impl Iterator<Item = NonNull<Hook>>, to: &mut Isolated<T>) -> u64 {
        let guard = pin();
        let mut held: Option<LockedList<'_>> = None;
        let mut removed = 0;
        for links in batch {
            // SAFETY: live, says the caller.
            held = self.raw.lock_home(unsafe { links.as_ref() }, held.take(), &guard);
            let Some(list) = &mut held else { continue };
            // SAFETY: it is on this list, whose lock we hold.
            let by = unsafe { list.unlink(links, Hook::PRIVATE) };
            // SAFETY: it was just unlinked and marked private, and is named as it was pushed.
            unsafe { to.push_links(LinkNode { at: links, by }) };
            removed += 1;
        }
        removed
    }
}
