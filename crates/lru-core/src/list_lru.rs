//! LRU lists per group and per node, that exist only while they are used.
//!
//! A [`ListLru`] is one kind of object's lists: all inodes of a mount, all entries of a cache. It holds a list of its own for each
//! (group, node) of which an object was ever added, 64 bytes and a slot each, and nothing at all for any other.
//!
//! ```text
//!     ABSENT --first add, or prepare--> LIVE(n) --group goes offline--> DEAD --last reader leaves--> freed
//!                                        ^   |                          ^ |
//!                                        add/del   LIVE(0) --sweep------+ +-- items: to the parent's list
//! ```
//!
//! * Adding and removing take one lock, that of the (group, node) list, and allocate nothing once the list is there.
//! * The first add makes the list, and those of the group's ancestors before it, outside every lock; [`ListLru::prepare`] does it
//!   ahead for callers that cannot.
//! * An item knows its list. So removing needs no group and cannot name the wrong one.
//! * A list for which threads contend is split, by itself, and joined again when it is quiet; see below.
//! * A group's end moves its lists to its parent in O(lists of that group), each whole, however long it is.
//! * Groups of several trees may use one `ListLru`. Where their ids are the same, finding a list
//!   takes a step more for each tree.
//!
//! # A list that is split
//!
//! When adds to one (group, node) found its lock taken 64 times between two [sweeps](sweep()), it gets parts beside it, at most as
//! many as processors (and 32), of 128 bytes each. Adds go to the part of their processor; removing finds an item where it is. A
//! sweep joins the parts again when all but the busiest were little used since the last, and the group's end does in any case.
//! A split needs memory. Where there is none, the list stays as it is.
//!
//! The counts are sums, and the promises are the same but for the order of a walk: **oldest first on each, and round and round from
//! one to the next.** A walk of all items shows those of one after those of another. A walk of some shows of each its share: as many
//! of a hundred as it holds of a hundred, so that what is shown is about what is oldest. The next one begins with the one behind that at
//! which the last ended. When parts are joined, what they hold goes one after the other behind what was there before the split.
//!
//! # How this differs from the kernel's `list_lru`
//!
//! 1. State per (group, node), not per group with all its nodes.
//! 2. A group's lists are chained on the group: offline does not visit lists that the group never used.
//! 3. `del` takes no group and no node; the kernel corrupts a list when given the wrong ones, this cannot be.
//! 4. The callback's verdict is typed (see [`walk`]): returning with the lock in the wrong state does not compile.
//! 5. Listeners hear of 0 -> 1 under the list's lock, so never about a group whose offline is over.
//! 6. A contended list is split; in the kernel it has one lock, whatever happens.

mod aliasable_box;
#[cfg(any(test, feature = "baseline"))]
pub mod baseline;
mod batch;
mod chain;
mod chain_links;
mod cursor;
mod isolate;
mod key;
mod list_lru_one;
mod list_state;
mod lists_head;
mod locked;
mod occupancy;
mod owner;
mod prepared;
mod promote;
mod raw;
mod refusable;
mod replace;
mod shards;
mod sweep;
mod table;
pub mod walk;

#[cfg(test)]
mod tests;

pub use isolate::Isolated;
pub use occupancy::Occupancy;
pub use prepared::Prepared;
pub use sweep::{sweep, Swept};
pub use walk::{Isolate, LruStatus, Unlocked};

use crate::list::{handle_of, Handle, Hook, Linked};
use crate::rcu::pin;
use crate::sync::Arc;
use crate::{ByteSize, Memcg, NodeId};
use aliasable_box::AliasableBox;
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use locked::LockedList;
use raw::{RawListLru, Refused};
use refusable::try_box;

/// The LRU lists of one kind of object.
///
/// ```
/// use lowwater_lru_core::{linked, Isolated, Links, ListLru, MemcgTree, NodeId};
/// use std::sync::Arc;
///
/// struct Inode {
///     links: Links,
///     number: u64,
/// }
/// linked!(impl[] for Inode { links, handle: Arc<Inode> });
///
/// let tree = MemcgTree::default();
/// let tenant = tree.root().create("tenant")?;
/// let lru = ListLru::<Inode>::new();
///
/// let inode = Arc::new(Inode { links: Links::new(), number: 7 });
/// lru.add(inode.clone(), &tenant, NodeId::ZERO)?;
/// assert_eq!(lru.count_one(&tenant, NodeId::ZERO), 1);
///
/// let mut unused = Isolated::new();
/// lru.walk_one(&tenant, NodeId::ZERO, &mut 100, |it| match it.item().number {
///     7 => it.isolate(&mut unused),
///     _ => it.rotate(),
/// });
/// assert_eq!(unused.pop().unwrap().number, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "list_lru")]
pub struct ListLru<T: Linked> {
    // The lists point back to it: it may not move.
    raw: AliasableBox<RawListLru>,
    items: PhantomData<T::Handle>,
}

// SAFETY: the lists own their items by handles, which may be sent; everything else is behind locks and atomics.
unsafe impl<T: Linked> Send for ListLru<T> where T::Handle: Send {}
// SAFETY: as for Send. What is shared through `&ListLru` are items under a lock, one at a time, and a handle which is `Send`
// allows what it gives access to from any thread.
unsafe impl<T: Linked> Sync for ListLru<T> where T::Handle: Send {}

/// An item was not added; it is given back.
#[derive(thiserror::Error)]
pub enum AddError<H> {
    /// It is on a list already, perhaps on this one. `add` is idempotent for *a* list, not for *this* list.
    #[error("the item is on a list already")]
    Linked(H),
    /// There is no memory for the group's list, nor is there a list of one of its ancestors.
    #[error("no memory for the list of the item's group; `prepare` it where that can be dealt with")]
    NoMemory(H),
    /// The list holds 2^31 - 1 items.
    #[error("the list of the item's group on this node is full (2^31 - 1 items)")]
    Full(H),
}

impl<H> AddError<H> {
    /// The item.
    pub fn into_handle(self) -> H {
        match self {
            Self::Linked(handle) | Self::NoMemory(handle) | Self::Full(handle) => handle,
        }
    }
}

impl<H> fmt::Debug for AddError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linked(_) => "Linked",
            Self::NoMemory(_) => "NoMemory",
            Self::Full(_) => "Full",
        })
    }
}

/// There is no memory for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for the list of this group on this node")]
pub struct AllocError;

impl<T: Linked> ListLru<T> {
    /// Lists that nobody listens to.
    pub fn new() -> Self {
        Self { raw: Box::new(RawListLru::new(None, T::LAYOUT)).into(), items: PhantomData }
    }

    /// As [`new`](Self::new), for who can do without.
    ///
    /// # Errors
    ///
    /// [`AllocError`] without memory.
    pub fn try_new() -> Result<Self, AllocError> {
        let raw = try_box(RawListLru::new(None, T::LAYOUT)).ok_or(AllocError)?;
        Ok(Self { raw: raw.into(), items: PhantomData })
    }

    /// As [`with_occupancy`](Self::with_occupancy), for who can do without.
    ///
    /// # Errors
    ///
    /// [`AllocError`] without memory.
    pub fn try_with_occupancy(occupancy: Arc<dyn Occupancy>) -> Result<Self, AllocError> {
        let raw = try_box(RawListLru::new(Some(occupancy), T::LAYOUT)).ok_or(AllocError)?;
        Ok(Self { raw: raw.into(), items: PhantomData })
    }

    /// Lists that tell `occupancy` when one of them goes from empty to not empty.
    pub fn with_occupancy(occupancy: Arc<dyn Occupancy>) -> Self {
        Self { raw: Box::new(RawListLru::new(Some(occupancy), T::LAYOUT)).into(), items: PhantomData }
    }

    /// Adds an item as the youngest of its group on `node`. The list owns it until it is removed.
    ///
    /// If the group is dying, or there is no memory for its list, the nearest ancestor that has one takes the item. O(1); the first
    /// time for a (group, node) O(depth of the group). Allocates then, and when it splits a list for which threads contend
    /// ([module](self)), which it does holding no lock, and does without where it is refused.
    ///
    /// # Errors
    ///
    /// The item comes back in [`AddError`] when it is on a list already, and when no list can be had. Of several threads that add
    /// the same item (clones of an `Arc`), exactly one succeeds (L4).
    #[doc(alias = "list_lru_add")]
    pub fn add(&self, item: T::Handle, memcg: &Memcg, node: NodeId) -> Result<(), AddError<T::Handle>> {
        let object = item.into_raw();
        // SAFETY: a handle gives a pointer to an object.
        let links = unsafe { T::links(object) };
        // SAFETY: they are a `T`'s, by the pointer that its handle was turned into.
        let links = unsafe { T::LAYOUT.node(links) };
        let added = if T::Handle::UNIQUE {
            self.raw.add::<true>(links, memcg, node)
        } else {
            self.raw.add::<false>(links, memcg, node)
        };
        added.map_err(|refused| {
            // SAFETY: it was turned into this pointer above, and the list did not take it.
            let item = unsafe { T::Handle::from_raw(object) };
            match refused {
                Refused::Linked => AddError::Linked(item),
                Refused::NoMemory => AddError::NoMemory(item),
                Refused::Full => AddError::Full(item),
            }
        })
    }

    /// Removes an item, if it is on one of these lists, and returns the handle the list had. O(1).
    ///
    /// `None` when the item is on no list, on another `ListLru`'s, or isolated by a walk: whoever isolated it owns it now. Of
    /// several threads that remove the same item, exactly one gets the handle (L4).
    #[doc(alias = "list_lru_del")]
    pub fn del(&self, item: &T) -> Option<T::Handle> {
        // SAFETY: it is a reference to an object.
        let links = unsafe { T::links(NonNull::from(item)) };
        // SAFETY: the links are a part of `item`, which is borrowed.
        let pushed = unsafe { self.raw.del(links) }?;
        // SAFETY: only a `T`'s links are on these lists, and the list gave it up.
        Some(unsafe { handle_of::<T>(pushed) })
    }

    /// How many items the group's own list holds on `node`. O(1) (O(parts) when it is split), without a lock; 0 while it has no list, and once it is dying
    /// and its items are its parent's (L2).
    #[doc(alias = "list_lru_count_one")]
    pub fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.raw.count_one(memcg, node)
    }

    /// How many items of all groups there are on `node`: never below what was there throughout (L3,
    /// R11), though an item may be counted more than once while its group ends or its list's parts
    /// are joined. O(groups that have a list here), without a lock; again for each such end
    /// meanwhile.
    #[doc(alias = "list_lru_count_node")]
    pub fn count_node(&self, node: NodeId) -> u64 {
        self.raw.count_node(node)
    }

    /// Walks the group's list on `node`, oldest first, and does with each item what `callback` says ([`walk`] has the table).
    /// Returns how many were removed. A list that is split is walked part by part ([module](self)).
    ///
    /// At most `nr_to_walk` items are shown, which falls by one for each, removed or not: it is scanned, not freed (L11). An item
    /// is not shown twice unless the callback asks for it; a walk whose callback gave the lock back goes on where it was. The callback runs under the list's lock: it must be short, must not
    /// block, and must not use this `ListLru`, unless it gives the lock back first.
    #[doc(alias = "list_lru_walk_one")]
    pub fn walk_one(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> u64 {
        self.raw.walk_one(memcg, node, nr_to_walk, callback)
    }

    /// Walks the lists of all groups on `node`, in no particular order of groups. Returns how many items were removed.
    ///
    /// Allocates a list of the groups, without a lock; where memory does not suffice, those of them are walked for which it does.
    /// `nr_to_walk` is shared among them, and the rules of [`walk_one`](Self::walk_one) hold.
    #[doc(alias = "list_lru_walk_node")]
    pub fn walk_node(
        &self,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> u64 {
        let groups = self.raw.groups_on(node);
        groups.iter().map(|memcg| self.raw.walk_one(memcg, node, nr_to_walk, &mut callback)).sum()
    }

    /// Does something with an item's links and the list on which it is, locked; `None` if that is none of these.
    fn at_home<R>(&self, item: &T, f: impl FnOnce(LockedList<'_>, NonNull<Hook>) -> R) -> Option<R> {
        // SAFETY: it is a reference to an object.
        let links = unsafe { T::links(NonNull::from(item)) };
        let guard = pin();
        // SAFETY: the links are a part of `item`, which is borrowed.
        let list = self.raw.lock_home(unsafe { links.as_ref() }, None, &guard)?;
        Some(f(list, links))
    }

    /// What these lists cost beyond the items: this structure, its table, 64 bytes for each (group, node), and parts of split ones.
    /// O(1); O(lists) while one is split.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new((size_of::<Self>() + size_of::<RawListLru>() + self.raw.bytes()) as u64)
    }

    /// How many (group, node) lists exist; a split one is one.
    pub fn pairs(&self) -> usize {
        self.raw.pairs()
    }

    /// Checks the structure: counts, links, table, ancestors. Takes every lock in turn; for tests.
    ///
    /// # Panics
    ///
    /// When something is wrong, with a sentence that says what should hold.
    pub fn assert_valid(&self) {
        self.raw.assert_valid();
    }
}

impl<T: Linked> Default for ListLru<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for ListLru<T> {
    /// Drops the lists and what is on them (the kernel's `list_lru_destroy` leaks it; L20). O(lists + items).
    ///
    /// An item whose own drop panics keeps no other item: the first panic goes on when all are
    /// dropped, and none does while the thread unwinds already (without the feature `std` a second
    /// panic aborts).
    #[doc(alias = "list_lru_destroy")]
    fn drop(&mut self) {
        let mut items = Isolated::<T>::new();
        self.raw.drain(|item| {
            // SAFETY: only a `T`'s links are on these lists, and `drain` gave the item up, marked
            // private.
            unsafe { items.push_links(item) };
        });
        // Code of the items runs last, when no group leads here any more: a drop may panic.
        drop(items);
    }
}

impl<T: Linked> fmt::Debug for ListLru<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListLru").field("pairs", &self.pairs()).finish_non_exhaustive()
    }
}
