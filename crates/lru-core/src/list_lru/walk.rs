//! The walk over a list, oldest item first; the callback decides about each item and about the
//! lock.
//!
//! In the kernel, six return codes state what the callback did with the item, and three of them
//! also state that it released the lock; a wrong return code corrupts a list. Here the lock is a
//! value: the callback gets it inside an [`Isolate`], and can produce only the [`LruStatus`] that
//! matches its actions:
//!
//! | kernel | here | the lock |
//! |---|---|---|
//! | `LRU_REMOVED` | [`it.isolate(&mut private)`](Isolate::isolate) | kept |
//! | `LRU_ROTATE` | [`it.rotate()`](Isolate::rotate) | kept |
//! | `LRU_SKIP` | [`it.skip()`](Isolate::skip) | kept |
//! | `LRU_RETRY` | [`it.unlock().retry()`](Unlocked::retry) | released |
//! | `LRU_REMOVED_RETRY` | [`it.remove()`](Isolate::remove), then `.retry()` | released |
//! | `LRU_STOP` | [`it.unlock().stop()`](Unlocked::stop) | released |
//!
//! A walk over a split list visits the list and its shards once each (once more if it found no
//! item), oldest item first, and of each a share in proportion to its length: over many walks
//! exactly so (`shards/shares.rs`). The shards are not joined meanwhile, unless the group dies,
//! which ends the walk.
//!
//! A verdict (an [`LruStatus`]) is bound to its callback invocation by a lifetime, so that it
//! cannot be kept for later:
//!
//! ```compile_fail
//! # use lowwater_lru_core::{linked, Links, ListLru, Memcg, NodeId};
//! # struct Item { links: Links }
//! # linked!(impl[] for Item { links, handle: Box<Item> });
//! # fn f(lru: &ListLru<Item>, memcg: &Memcg) {
//! let mut kept = None;
//! lru.walk_one(memcg, NodeId::ZERO, &mut 10, |it| {
//!     let verdict = it.skip();
//!     kept.replace(verdict).unwrap() // error: the verdict does not live long enough
//! });
//! # }
//! ```
//!
//! Numbers such as R7 are those of docs/INVARIANTS.md.
//
// A change must ensure that an item is visited again only after a retry: on that item, or on one
// during which others left the list (L13); that a walk ends even if the callback only asks for
// retries (L12); and that no verdict can state another lock state than the real one.

use super::cursor::Cursor;
use super::isolate::Isolated;
use super::locked::LockedList;
use super::raw::{RawListLru, WalkRound};
use crate::list::{handle_of, Hook, LinkNode, Linked};
use crate::rcu::pin;
use crate::sync::Arc;
use crate::{Memcg, NodeId};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::ControlFlow;
use core::ptr::NonNull;

/// Ties a value to one invocation of the callback: invariant in `'a`, so neither a shorter nor a
/// longer lifetime fits.
type Call<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// An item under its list's lock, on which the callback must decide. If the value is leaked, the
/// lock stays taken, as with any lock guard, and all later operations on the list block for ever.
///
/// The type is invariant in `T`, so that the item does not become one of a supertype, whose links
/// may be another field. A reference may:
///
/// ```
/// # use core::marker::PhantomData;
/// # use lowwater_lru_core::{linked, Isolate, Links};
/// # struct Item<F> {
/// #     links: Links,
/// #     other_links: Links,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # linked!(impl[] for Item<Any> { links, handle: Box<Item<Any>> });
/// # linked!(impl[] for Item<One> { other_links, handle: Box<Item<One>> });
/// fn shorten(any: &Item<Any>) -> &Item<One> {
///     any
/// }
/// fn keep<'a>(any: Isolate<'a, Item<Any>>) -> Isolate<'a, Item<Any>> {
///     any
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use core::marker::PhantomData;
/// # use lowwater_lru_core::{linked, Isolate, Links};
/// # struct Item<F> {
/// #     links: Links,
/// #     other_links: Links,
/// #     function: PhantomData<F>,
/// # }
/// # type Any = for<'a> fn(&'a u8);
/// # type One = fn(&'static u8);
/// # linked!(impl[] for Item<Any> { links, handle: Box<Item<Any>> });
/// # linked!(impl[] for Item<One> { other_links, handle: Box<Item<One>> });
/// fn shorten<'a>(any: Isolate<'a, Item<Any>>) -> Isolate<'a, Item<One>> {
///     any // error: one type is more general than the other
/// }
/// ```
#[must_use = "the walk needs a verdict"]
pub struct Isolate<'a, T: Linked> {
    list: LockedList<'a>,
    links: NonNull<Hook>,
    cursor: &'a Cursor,
    item: PhantomData<&'a T>,
    invariant: PhantomData<fn(T) -> T>,
    call: Call<'a>,
}

/// The verdict on an item and the state of the lock; created by [`Isolate`] and [`Unlocked`].
#[must_use = "the walk needs a verdict"]
#[doc(alias = "lru_status")]
pub struct LruStatus<'a> {
    removed: bool,
    then: Then<'a>,
    call: Call<'a>,
}

enum Then<'a> {
    /// The lock is held: continue with the next item.
    GoOn(LockedList<'a>),
    /// The lock was released: take it again and continue with the same item or, if that is gone,
    /// the one after it.
    Retry,
    /// The lock was released: end the walk.
    Stop,
}

/// Proof that the callback released the lock; becomes a verdict. The callback is still in the read
/// side ([`ListLru::walk_one`](super::ListLru::walk_one)).
#[must_use = "the walk needs a verdict"]
pub struct Unlocked<'a> {
    removed: bool,
    call: Call<'a>,
}

impl<'a, T: Linked> Isolate<'a, T> {
    /// Returns the item. The lock of its list is held, and the usual lock order is the item's own
    /// lock first, so the callback may only *try* the item's lock.
    pub fn item(&self) -> &T {
        // SAFETY: only links of a `T` are added to a `ListLru<T>`.
        let object = unsafe { T::from_links(self.links) };
        // SAFETY: the item is on the list, and we hold the list's lock, so it is live while `self`
        // is borrowed.
        unsafe { object.as_ref() }
    }

    /// Moves the item to a private list, to be freed after the lock is released. The item counts as
    /// removed.
    #[doc(alias = "LRU_REMOVED")]
    pub fn isolate(mut self, to: &mut Isolated<T>) -> LruStatus<'a> {
        // SAFETY: the item is on this list, and we hold the list's lock.
        let by = unsafe { self.list.unlink(self.links, Hook::PRIVATE) };
        // SAFETY: the item was just unlinked and marked private, and `by` is the reference by which
        // it was pushed.
        unsafe { to.push_links(LinkNode { at: self.links, by }) };
        LruStatus { removed: true, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Keeps the item, as the youngest.
    #[doc(alias = "LRU_ROTATE")]
    pub fn rotate(mut self) -> LruStatus<'a> {
        // SAFETY: the item is on this list, and we hold the list's lock.
        unsafe { self.list.rotate(self.links) };
        LruStatus { removed: false, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Keeps the item where it is.
    #[doc(alias = "LRU_SKIP")]
    pub fn skip(self) -> LruStatus<'a> {
        LruStatus { removed: false, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Releases the lock and keeps the item, which another thread may remove and free at once.
    pub fn unlock(mut self) -> Unlocked<'a> {
        // SAFETY: the item is on this list; the cursor is a local of the walk's frame, which
        // outlives this call and drops the cursor.
        unsafe { self.cursor.leave_before(self.links, &mut self.list) };
        Unlocked { removed: false, call: PhantomData }
    }

    /// Removes the item and releases the lock.
    #[doc(alias = "LRU_REMOVED_RETRY")]
    pub fn remove(mut self) -> (T::Handle, Unlocked<'a>) {
        // SAFETY: the item is on this list; the cursor is a local of the walk's frame, which
        // outlives this call and drops the cursor.
        unsafe { self.cursor.leave_before(self.links, &mut self.list) };
        // SAFETY: the item is on this list, and we hold the list's lock.
        let pushed = unsafe { self.list.unlink(self.links, core::ptr::null_mut()) };
        // SAFETY: the links are those of a `T`, and `unlink` gave up the list's ownership.
        let handle = unsafe { handle_of::<T>(pushed) };
        (handle, Unlocked { removed: true, call: PhantomData })
    }
}

impl<T: Linked<Handle = Arc<T>>> Isolate<'_, T> {
    /// Returns a new handle on the item, to use it after the lock is released.
    pub fn arc(&self) -> Arc<T> {
        // SAFETY: only links of a `T` are added to a `ListLru<T>`.
        let object = unsafe { T::from_links(self.links) };
        // SAFETY: the list owns one reference to the live item. `ManuallyDrop` keeps this `Arc`,
        // which represents the list's reference, from dropping it.
        let lists = ManuallyDrop::new(unsafe { Arc::from_raw(object.as_ptr()) });
        Arc::clone(&lists)
    }
}

impl<'a> Unlocked<'a> {
    /// Continues the walk: takes the lock again and visits the same item, or if that is gone, the
    /// one after it; no other item that was visited before, unless items that the walk had yet to
    /// visit were removed meanwhile: then an item that it has rotated may be visited again. Each
    /// visit counts against `nr_to_walk`, so the walk ends (`docs/INVARIANTS.md`, L12). The walk is
    /// over if the group died meanwhile (R7), or if there was no memory for the walk's cursor.
    #[doc(alias = "LRU_RETRY")]
    pub fn retry(self) -> LruStatus<'a> {
        LruStatus { removed: self.removed, then: Then::Retry, call: PhantomData }
    }

    /// Ends the walk.
    #[doc(alias = "LRU_STOP")]
    pub fn stop(self) -> LruStatus<'a> {
        LruStatus { removed: self.removed, then: Then::Stop, call: PhantomData }
    }
}

impl RawListLru {
    /// See [`ListLru::walk_one`](super::ListLru::walk_one). Adds the number of removed items to
    /// `removed`. `Break`: a verdict ended the walk.
    pub(super) fn walk_one<T: Linked>(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        removed: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> ControlFlow<()> {
        self.each_share(memcg, node, nr_to_walk, |index, left| {
            self.walk_list(memcg, node, index, left, removed, &mut callback)
        })
    }

    /// Calls `visit` with the number of each list of a group on a node, and its share of
    /// `nr_to_walk`, from which `visit` subtracts the visited items. `visit` ends the walk by
    /// `Break`, which is then the result.
    #[inline]
    pub(super) fn each_share(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut visit: impl FnMut(usize, &mut u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if *nr_to_walk == 0 {
            return ControlFlow::Continue(());
        }
        let (nr, mut is_again) = (*nr_to_walk, false);
        loop {
            let Some(mut round) = WalkRound::begin(self, memcg, node, nr) else { return visit(0, nr_to_walk) };
            for _ in 0..round.lists {
                let (index, share) = round.turn();
                let given = share.min(*nr_to_walk);
                if given == 0 {
                    continue;
                }
                let mut left = given;
                let end = visit(index, &mut left);
                *nr_to_walk -= given - left;
                if end.is_break() || *nr_to_walk == 0 {
                    return end;
                }
            }
            // Other threads may have emptied the lists that had a share: the others have one in
            // another round.
            if is_again || *nr_to_walk < nr || self.count_one(memcg, node, &pin()) == 0 {
                return ControlFlow::Continue(());
            }
            is_again = true;
        }
    }

    /// Walks one list by number: 0 is the group's list on the node, the others are its shards.
    /// `Break`: a verdict ended the walk.
    pub(super) fn walk_list<T: Linked>(
        &self,
        memcg: &Memcg,
        node: NodeId,
        index: usize,
        nr_to_walk: &mut u64,
        removed: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> ControlFlow<()> {
        let cursor = Cursor::new(T::LAYOUT);
        // The value of `left` at the last retry; `None` before the first.
        let mut begun = None;
        'relock: while *nr_to_walk > 0 {
            let guard = pin();
            let (mut list, mut next, mut left) = match begun {
                None => {
                    let Some(mut list) = self.lock_one(memcg, node, index, &guard) else { break };
                    let (first, all) = (list.with_list(|l, _| l.first()), list.one().nr_items());
                    (list, first, all)
                }
                Some(left) => {
                    let Some((list, next)) = cursor.take_back(&guard) else { break };
                    (list, next, left)
                }
            };
            // Rotated items come up again at the end; `left`, the number of items at the start that
            // are not yet visited, keeps them from being visited twice.
            // SAFETY: `next` is none, or refers to links on this list, and we hold the list's lock.
            while let (Some(links), true, true) = (unsafe { T::LAYOUT.find(next) }, left > 0, *nr_to_walk > 0) {
                // SAFETY: the links are on this list, and we hold the list's lock.
                next = unsafe { T::LAYOUT.next(links) };
                // SAFETY: the links are on this list, and we hold the list's lock, so they are
                // live.
                if unsafe { links.as_ref() }.is_cursor() {
                    continue; // Another walk's cursor.
                }
                left -= 1;
                *nr_to_walk -= 1;
                let verdict = callback(Isolate {
                    list,
                    links,
                    cursor: &cursor,
                    item: PhantomData,
                    invariant: PhantomData,
                    call: PhantomData,
                });
                *removed += u64::from(verdict.removed);
                match verdict.then {
                    Then::GoOn(held) => list = held,
                    Then::Retry => {
                        // The same item again, if it is still there: it is not counted as visited.
                        begun = Some(left + u32::from(!verdict.removed));
                        continue 'relock;
                    }
                    Then::Stop => return ControlFlow::Break(()),
                }
            }
            // The next walk begins at `next`, which is prefetched.
            // SAFETY: `next` is none, or refers to links on this list, and we hold the list's lock.
            list.with_list(|l, layout| unsafe { l.expect(layout, next) });
            break;
        }
        ControlFlow::Continue(())
    }
}

impl<T: Linked> fmt::Debug for Isolate<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolate").finish_non_exhaustive()
    }
}

impl fmt::Debug for LruStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LruStatus").field("removed", &self.removed).finish_non_exhaustive()
    }
}

impl fmt::Debug for Unlocked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unlocked").field("removed", &self.removed).finish()
    }
}
