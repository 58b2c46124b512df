//! The walk: oldest first, and the callback answers for each item, and for the lock.
//!
//! In the kernel six return codes say what became of the item, and three of them also promise that the callback gave the lock
//! back; a wrong promise corrupts a list. Here the lock is a value. The callback gets it inside an [`Isolate`] and can only
//! produce the [`LruStatus`] that fits what it did with it:
//!
//! | kernel | here | the lock |
//! |---|---|---|
//! | `LRU_REMOVED` | [`it.isolate(&mut private)`](Isolate::isolate) | kept |
//! | `LRU_ROTATE` | [`it.rotate()`](Isolate::rotate) | kept |
//! | `LRU_SKIP` | [`it.skip()`](Isolate::skip) | kept |
//! | `LRU_RETRY` | [`it.unlock().retry()`](Unlocked::retry) | given back |
//! | `LRU_REMOVED_RETRY` | [`it.remove()`](Isolate::remove), then `.retry()` | given back |
//! | `LRU_STOP` | [`it.unlock().stop()`](Unlocked::stop) | given back |
//!
//! A walk of a list that is split goes round: the list and its parts, each once, each oldest first, and of each its share of what
//! is to be shown. No part ends meanwhile but by the group's death, which ends the walk.
//!
//! A verdict is bound to its call by a lifetime, so that none can be kept for later:
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

/// Ties a value to one call of the callback: neither shorter nor longer will do.
type Call<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// An item under its list's lock: the right, and the duty, to say what becomes of it. Leaked, it keeps that lock, as any lock's guard does:
/// who comes to the list after that waits for ever.
#[must_use = "the walk needs a verdict"]
pub struct Isolate<'a, T: Linked> {
    list: LockedList<'a>,
    links: NonNull<Hook>,
    cursor: &'a Cursor,
    item: PhantomData<&'a T>,
    call: Call<'a>,
}

/// What became of an item and of the lock; made by [`Isolate`] and [`Unlocked`].
#[must_use = "the walk needs a verdict"]
#[doc(alias = "lru_status")]
pub struct LruStatus<'a> {
    removed: bool,
    then: Then<'a>,
    call: Call<'a>,
}

enum Then<'a> {
    /// The lock is held; go on with the next item.
    GoOn(LockedList<'a>),
    /// The lock was given back: take it again and go on with the same item, or what comes after it.
    Retry,
    /// The lock was given back: end the walk.
    Stop,
}

/// Proof that the callback gave the lock back.
#[must_use = "the walk needs a verdict"]
pub struct Unlocked<'a> {
    removed: bool,
    call: Call<'a>,
}

impl<'a, T: Linked> Isolate<'a, T> {
    /// The item. The lock of its list is held: the usual order is the item's own lock first, so only *try* that one here.
    pub fn item(&self) -> &T {
        // SAFETY: these are the links of a `T` (only such are added to a `ListLru<T>`).
        let object = unsafe { T::from_links(self.links) };
        // SAFETY: the item is on the list, whose lock we hold, so it lives while `self` is borrowed.
        unsafe { object.as_ref() }
    }

    /// Takes the item off, onto a private list, to be freed when the lock is not held any more. It counts as removed.
    #[doc(alias = "LRU_REMOVED")]
    pub fn isolate(mut self, to: &mut Isolated<T>) -> LruStatus<'a> {
        // SAFETY: the item is on this list, whose lock we hold.
        let by = unsafe { self.list.unlink(self.links, Hook::PRIVATE) };
        // SAFETY: it was just unlinked and marked private, and is named as it was pushed.
        unsafe { to.push_links(LinkNode { at: self.links, by }) };
        LruStatus { removed: true, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Leaves the item, as the youngest.
    #[doc(alias = "LRU_ROTATE")]
    pub fn rotate(mut self) -> LruStatus<'a> {
        // SAFETY: the item is on this list, whose lock we hold.
        unsafe { self.list.rotate(self.links) };
        LruStatus { removed: false, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Leaves the item where it is.
    #[doc(alias = "LRU_SKIP")]
    pub fn skip(self) -> LruStatus<'a> {
        LruStatus { removed: false, then: Then::GoOn(self.list), call: PhantomData }
    }

    /// Gives the lock back and leaves the item, which may be gone at once.
    pub fn unlock(mut self) -> Unlocked<'a> {
        // SAFETY: the item is on this list; the walk's frame keeps the cursor, and it outlives this call.
        unsafe { self.cursor.leave_before(self.links, &mut self.list) };
        Unlocked { removed: false, call: PhantomData }
    }

    /// Takes the item off and gives the lock back.
    #[doc(alias = "LRU_REMOVED_RETRY")]
    pub fn remove(mut self) -> (T::Handle, Unlocked<'a>) {
        // SAFETY: the item is on this list; the walk's frame keeps the cursor, and it outlives this call.
        unsafe { self.cursor.leave_before(self.links, &mut self.list) };
        // SAFETY: the item is on this list, whose lock we hold.
        let pushed = unsafe { self.list.unlink(self.links, core::ptr::null_mut()) };
        // SAFETY: these are the links of a `T`, and the list gave it up.
        let handle = unsafe { handle_of::<T>(pushed) };
        (handle, Unlocked { removed: true, call: PhantomData })
    }
}

impl<T: Linked<Handle = Arc<T>>> Isolate<'_, T> {
    /// A handle of one's own, to use the item after the lock is given back.
    pub fn arc(&self) -> Arc<T> {
        // SAFETY: these are the links of a `T`.
        let object = unsafe { T::from_links(self.links) };
        // SAFETY: the list owns one reference, which stays its own: this one is never dropped.
        let lists = ManuallyDrop::new(unsafe { Arc::from_raw(object.as_ptr()) });
        Arc::clone(&lists)
    }
}

impl<'a> Unlocked<'a> {
    /// Go on: take the lock again and show the same item, or if it is gone, the one after it. Not what was shown before. What
    /// was counted stays counted, so this ends (L12). If the group died meanwhile, the walk is over (R7).
    #[doc(alias = "LRU_RETRY")]
    pub fn retry(self) -> LruStatus<'a> {
        LruStatus { removed: self.removed, then: Then::Retry, call: PhantomData }
    }

    /// End the walk.
    #[doc(alias = "LRU_STOP")]
    pub fn stop(self) -> LruStatus<'a> {
        LruStatus { removed: self.removed, then: Then::Stop, call: PhantomData }
    }
}

impl RawListLru {
    /// See [`ListLru::walk_one`](super::ListLru::walk_one).
    pub(super) fn walk_one<T: Linked>(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> u64 {
        let mut removed = 0;
        let Some(mut round) = WalkRound::begin(self, memcg, node) else {
            let _end = self.walk_list(memcg, node, 0, nr_to_walk, &mut removed, &mut callback);
            return removed;
        };
        let whole = *nr_to_walk;
        for _ in 0..round.lists {
            let (index, items) = round.turn();
            let share = match whole >= round.items {
                true => *nr_to_walk,
                // No more than `whole`, which is less than the items there are; rounded up, so that all shares are enough.
                false => (u128::from(whole) * u128::from(items)).div_ceil(u128::from(round.items)) as u64,
            };
            let given = share.min(*nr_to_walk);
            let mut left = given;
            let end = self.walk_list(memcg, node, index, &mut left, &mut removed, &mut callback);
            *nr_to_walk -= given - left;
            if end.is_break() || *nr_to_walk == 0 {
                break;
            }
        }
        removed
    }

    /// Walks one list: that of the group on the node, or by its number one of its parts. `Break`: a verdict ended the walk.
    fn walk_list<T: Linked>(
        &self,
        memcg: &Memcg,
        node: NodeId,
        index: usize,
        nr_to_walk: &mut u64,
        removed: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> ControlFlow<()> {
        let cursor = Cursor::new(T::LAYOUT);
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
            // Rotated items come round again; that they are not shown twice is what `left` counts.
            // SAFETY: it is none, or on the list, whose lock we hold.
            while let (Some(links), true, true) = (unsafe { T::LAYOUT.find(next) }, left > 0, *nr_to_walk > 0) {
                // SAFETY: as above.
                next = unsafe { T::LAYOUT.next(links) };
                // SAFETY: as above.
                if unsafe { links.as_ref() }.is_mark() {
                    continue; // Another walk's.
                }
                left -= 1;
                *nr_to_walk -= 1;
                let verdict = callback(Isolate { list, links, cursor: &cursor, item: PhantomData, call: PhantomData });
                *removed += u64::from(verdict.removed);
                match verdict.then {
                    Then::GoOn(held) => list = held,
                    Then::Retry => {
                        // The same item again, if it is still there.
                        begun = Some(left + u32::from(!verdict.removed));
                        continue 'relock;
                    }
                    Then::Stop => return ControlFlow::Break(()),
                }
            }
            // SAFETY: it is none, or on the list, whose lock we hold.
            list.with_list(|l, shape| unsafe { l.expect(shape, next) });
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
