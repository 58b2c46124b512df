//! Batches: many items are added or removed under one lock acquisition. Added items come from an
//! [`Isolated`] and removed items go to one, so nothing is allocated.
//!
//! The lock is released after every `BATCH` items, so that a batch of any length delays other
//! threads by a bounded time. A change must ensure that an item that was not added stays in the
//! caller's `Isolated`: no item is lost on an error.

use super::isolate::Isolated;
use super::locked::LockedList;
use super::raw::Refused;
use super::{AllocError, ListLru};
use crate::list::{Hook, LinkNode, Linked};
use crate::rcu::pin;
use crate::{Memcg, NodeId};
use core::ptr::NonNull;

/// The number of items that are moved per lock acquisition, so that other threads do not wait long.
/// The documentation of [`add_batch`](ListLru::add_batch) repeats it.
const BATCH: usize = 64;

impl<T: Linked> ListLru<T> {
    /// Adds all of `items` as the youngest of their group on `node`, in order, and returns their
    /// number. As [`add`](Self::add), but takes the list's lock once for every 64 items.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if no list could be created or found, or the list is full; the items that
    /// were not added stay in `items`.
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
        while items.first().is_some() {
            let guard = pin();
            let mut list = match self.raw.lock_to_add(None, memcg, node, false, &guard) {
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

    /// Removes those of `items` that are on a list of this `ListLru`, appends them to `to`, and
    /// returns their number. As [`del`](Self::del), but consecutive items of the same list share
    /// one lock acquisition.
    ///
    /// No lock is held while the next item is taken from `items`.
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
                // SAFETY: a reference is a pointer to a live object.
                batch[len] = Some(unsafe { T::links(NonNull::from(item)) });
                len += 1;
            }
            // SAFETY: the links are parts of items that are borrowed for `'i`, so the objects are
            // live.
            removed += unsafe { self.del_links(batch.into_iter().flatten(), to) };
            if len < BATCH {
                return removed;
            }
        }
    }

    /// Removes a batch of items by their links; see [`del_batch`](Self::del_batch).
    ///
    /// # Safety
    ///
    /// The links are those of live objects.
    unsafe fn del_links(&self, batch: impl Iterator<Item = NonNull<Hook>>, to: &mut Isolated<T>) -> u64 {
        let guard = pin();
        let mut held: Option<LockedList<'_>> = None;
        let mut removed = 0;
        for links in batch {
            // SAFETY: the object is live (this function's clause).
            held = self.raw.lock_home(unsafe { links.as_ref() }, held.take(), &guard);
            let Some(list) = &mut held else { continue };
            // SAFETY: `lock_home` returned the list that the item is on, and we hold its lock.
            let by = unsafe { list.unlink(links, Hook::PRIVATE) };
            // SAFETY: the item was just unlinked and marked private, and `by` is the reference by
            // which it was pushed.
            unsafe { to.push_links(LinkNode { at: links, by }) };
            removed += 1;
        }
        removed
    }
}
