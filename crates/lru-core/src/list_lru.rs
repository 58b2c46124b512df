//! LRU lists per group and per node that exist only while they are used.
//!
//! A [`ListLru`] holds the lists of one kind of object: all inodes of a mount, all entries of a
//! cache. It has one list for each (group, node) to which an object was ever added, at 64 bytes and
//! one table slot each, and nothing for any other pair.
//!
//! ```text
//!     ABSENT --first add, or prepare--> LIVE(n) --group goes offline--> DEAD --last reader leaves--> freed
//!                                        ^   |                          ^ |
//!                                        add/del   LIVE(0) --sweep------+ +-- items: to the parent's list
//! ```
//!
//! * Adding and removing take one lock, that of the (group, node) list, and allocate nothing once
//!   the list exists.
//! * The first add creates the list, and before it those of the group's ancestors, outside all
//!   locks. [`ListLru::prepare`] creates it ahead of time, for callers that cannot allocate later.
//! * An item stores a pointer to its list. So removal takes no group and cannot hit the wrong list.
//! * A contended list is split into shards automatically, and joined again when contention ends
//!   (see below).
//! * When a group goes offline, its lists are spliced into its parent's, in O(lists of the group),
//!   whatever their length.
//! * Groups of several trees may share one `ListLru`. Where groups of different trees have the same
//!   id, a lookup takes one more step for each of those trees.
//!
//! # A list that is split
//!
//! When adds to one (group, node) list found its lock taken 64 times between two [sweeps](sweep()),
//! the list gets shards beside it, of 128 bytes each: one for each processor on which the process
//! may run, rounded up to a power of two, from 2 to 32 (2 if their number is unknown, as without
//! `std` and embedder). A thread adds to one shard, selected by its processor, until it finds that
//! shard locked; a removal finds the item on whichever shard holds it. A sweep joins the shards
//! when all but the busiest were little used since the last sweep; the group's offline always joins
//! them. A split needs memory; without memory the list stays unsplit.
//!
//! Counts are sums over the shards. All guarantees are those of an unsplit list except the order of
//! a walk, which is **oldest first on each shard, and round robin over the shards.** A walk of all
//! items visits shard after shard. A shorter walk visits of each shard a share proportional to the
//! shard's length, so that the visited items are about the oldest. The next walk begins at the
//! shard after the one at which the last walk ended. Joining appends the shards' items, shard after
//! shard, behind those of the original list; those of the busiest shard come last.
//!
//! # How this differs from the kernel's `list_lru`
//!
//! 1. State is per (group, node), not per group with all its nodes.
//! 2. A group's lists are chained on the group: offline does not visit lists that the group never
//!    used.
//! 3. `del` takes no group and no node. The kernel corrupts a list when it is given the wrong ones;
//!    this error cannot occur here.
//! 4. The callback's verdict is typed (see [`walk`]): returning with the lock in the wrong state
//!    does not compile.
//! 5. Listeners are called on the transition 0 -> 1 under the list's lock, so never for a group
//!    whose offline has finished.
//! 6. A contended list is split; in the kernel a list always has one lock.
//!
//! Numbers such as L4 are those of docs/INVARIANTS.md.
//
// A change must ensure that an item is on at most one list (L5), that a list which holds items has
// notified its listener (L10), and that this module allocates nothing under a list's lock: a
// listener may.

mod aliasable_box;
#[cfg(any(test, feature = "baseline"))]
pub mod baseline;
mod batch;
mod chain;
mod chain_links;
mod conditional_add;
mod cursor;
mod isolate;
mod key;
mod list_lru_one;
mod list_state;
mod lists_head;
mod locked;
mod occupancy;
mod oldest;
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
pub use oldest::Pick;
pub use prepared::Prepared;
pub use sweep::{sweep, Swept};
pub use walk::{Isolate, LruStatus, Unlocked};

use crate::list::{handle_of, Handle, Hook, Linked};
use crate::rcu::{pin, Guard};
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
///
/// The drop of the lists drops their items' handles, so a type that holds a `ListLru<T>` repeats
/// the bound `T: Linked`.
#[doc(alias = "list_lru")]
pub struct ListLru<T: Linked> {
    // Boxed, so that its address is fixed: the lists hold pointers to this structure.
    raw: AliasableBox<RawListLru>,
    items: PhantomData<T::Handle>,
}

// SAFETY: the lists own their items by handles, and `T::Handle: Send` lets these move to another
// thread. All other state is behind locks and atomics.
unsafe impl<T: Linked> Send for ListLru<T> where T::Handle: Send {}
// SAFETY: `&ListLru` gives access to items one at a time, under a list's lock, so never to one item
// from two threads at once; this is as if the handle moved between threads, which `T::Handle: Send`
// permits. All other state is behind locks and atomics.
unsafe impl<T: Linked> Sync for ListLru<T> where T::Handle: Send {}

/// An item that could not be added; each variant returns the item.
#[derive(thiserror::Error)]
pub enum AddError<H> {
    /// The item is on a list already, perhaps on this one. `add` is idempotent for *a* list, not
    /// for *this* list.
    #[error("the item is on a list already")]
    Linked(H),
    /// There is no memory for the group's list, and no ancestor has a list on the node.
    #[error("no memory for the list of the item's group: call `prepare` where the error can be handled")]
    NoMemory(H),
    /// The list holds 2^31 - 1 items, the maximum.
    #[error("the list of the item's group on this node is full (2^31 - 1 items)")]
    Full(H),
}

impl<H> AddError<H> {
    fn of(refused: Refused, item: H) -> Self {
        match refused {
            Refused::Linked => Self::Linked(item),
            Refused::NoMemory => Self::NoMemory(item),
            Refused::Full => Self::Full(item),
        }
    }

    /// Returns the handle of the item that was not added, whatever the reason.
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

/// An allocation failure: there is no memory for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for the list of this group on this node")]
pub struct AllocError;

impl<T: Linked> ListLru<T> {
    /// Creates an empty set of lists without a listener ([`Occupancy`]). Aborts when there is no
    /// memory; see [`try_new`](Self::try_new).
    pub fn new() -> Self {
        Self { raw: Box::new(RawListLru::new(None, T::LAYOUT)).into(), items: PhantomData }
    }

    /// As [`new`](Self::new), but returns an error when there is no memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory.
    pub fn try_new() -> Result<Self, AllocError> {
        let raw = try_box(RawListLru::new(None, T::LAYOUT)).ok_or(AllocError)?;
        Ok(Self { raw: raw.into(), items: PhantomData })
    }

    /// As [`with_occupancy`](Self::with_occupancy), but returns an error when there is no memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory.
    pub fn try_with_occupancy(occupancy: Arc<dyn Occupancy>) -> Result<Self, AllocError> {
        let raw = try_box(RawListLru::new(Some(occupancy), T::LAYOUT)).ok_or(AllocError)?;
        Ok(Self { raw: raw.into(), items: PhantomData })
    }

    /// Creates an empty set of lists that calls `occupancy` when a list goes from empty to
    /// non-empty.
    pub fn with_occupancy(occupancy: Arc<dyn Occupancy>) -> Self {
        Self { raw: Box::new(RawListLru::new(Some(occupancy), T::LAYOUT)).into(), items: PhantomData }
    }

    /// Adds an item as the youngest of its group on `node`. The list owns the item until it is
    /// removed.
    ///
    /// If the group is dying, or there is no memory for its list, the item goes to the list of the
    /// nearest ancestor that has one. O(1); the first add to a (group, node) is O(depth of the
    /// group) and allocates. A split of a contended list ([module](self)) allocates, too: without
    /// holding a lock, and if the allocation fails the list stays unsplit.
    ///
    /// # Errors
    ///
    /// [`AddError`], which contains the item, if the item is on a list already, if no list could be
    /// created or found, or if the list is full. Of several threads that add the same item (clones
    /// of an `Arc`), exactly one succeeds (`docs/INVARIANTS.md`, L4).
    #[doc(alias = "list_lru_add")]
    pub fn add(&self, item: T::Handle, memcg: &Memcg, node: NodeId) -> Result<(), AddError<T::Handle>> {
        self.add_pinned(item, memcg, node, &pin())
    }

    /// As [`add`](Self::add), for a caller that is in the read side.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    #[doc(hidden)]
    pub fn add_pinned(
        &self,
        item: T::Handle,
        memcg: &Memcg,
        node: NodeId,
        guard: &Guard,
    ) -> Result<(), AddError<T::Handle>> {
        let object = item.into_raw();
        // SAFETY: `into_raw` returned a pointer to a live object, which we own.
        let links = unsafe { T::links(object) };
        // SAFETY: the links are those of a `T`, and derive from the pointer that `into_raw`
        // returned.
        let links = unsafe { T::LAYOUT.node(links) };
        let added = if T::Handle::UNIQUE {
            // SAFETY: we own the object, and these are lists of `T`.
            unsafe { self.raw.add::<true>(links, T::LAYOUT, (memcg, node), guard) }
        } else {
            // SAFETY: we own the object, and these are lists of `T`.
            unsafe { self.raw.add::<false>(links, T::LAYOUT, (memcg, node), guard) }
        };
        added.map_err(|refused| {
            // SAFETY: `into_raw` returned this pointer above, and the list did not take ownership.
            AddError::of(refused, unsafe { T::Handle::from_raw(object) })
        })
    }

    /// Removes an item if it is on one of these lists, and returns the handle by which the list
    /// owned it. O(1).
    ///
    /// Returns `None` if the item is on no list, on another `ListLru`'s, or isolated by a walk:
    /// then the [`Isolated`] owns it. Of several threads that remove the same item, exactly one
    /// gets the handle (`docs/INVARIANTS.md`, L4).
    #[doc(alias = "list_lru_del")]
    pub fn del(&self, item: &T) -> Option<T::Handle> {
        // SAFETY: a reference is a pointer to a live object.
        let links = unsafe { T::links(NonNull::from(item)) };
        // SAFETY: `item` is borrowed during the call, and the links are a part of it, so they are
        // live.
        let pushed = unsafe { self.raw.del(links) }?;
        // SAFETY: only links of a `T` are on these lists, and the list has given up its ownership
        // of this one.
        Some(unsafe { handle_of::<T>(pushed) })
    }

    /// Returns the number of items on the group's own list on `node`, without a lock. O(1), or
    /// O(shards) if the list is split. Returns 0 while the group has no list, and once it is dying
    /// and its items are its parent's (`docs/INVARIANTS.md`, L2).
    #[doc(alias = "list_lru_count_one")]
    pub fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.count_one_pinned(memcg, node, &pin())
    }

    /// As [`count_one`](Self::count_one), for a caller that is in the read side.
    #[doc(hidden)]
    #[inline]
    pub fn count_one_pinned(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> u64 {
        self.raw.count_one(memcg, node, guard)
    }

    /// Returns the number of items of all groups on `node`, without a lock. The result is never
    /// below the number of items that were on the node throughout the call (`docs/INVARIANTS.md`,
    /// L3, R11); an item may be counted more than once while its group goes offline or the shards
    /// of its list are joined. O(groups that have a list on the node); the count is repeated for
    /// each such move that happens meanwhile.
    #[doc(alias = "list_lru_count_node")]
    pub fn count_node(&self, node: NodeId) -> u64 {
        self.raw.count_node(node)
    }

    /// Walks the group's list on `node`, oldest first, and does with each item what `callback`
    /// returns (the table is in [`walk`]). Returns the number of removed items. A split list is
    /// walked shard by shard ([module](self)).
    ///
    /// At most `nr_to_walk` items are visited. `nr_to_walk` falls by one for each visited item,
    /// removed or not: scanned items are counted, not freed ones (`docs/INVARIANTS.md`, L11). An
    /// item is not visited twice unless the callback returns a retry. A walk whose callback
    /// released the lock resumes at its position. The callback runs under the list's lock: it must
    /// be short, must not block, and must not use this `ListLru`. It may use other `ListLru`s, but
    /// not drop one: the drop waits for groups that are going offline, and these for the lock.
    ///
    /// After [`unlock`](Isolate::unlock) or [`remove`](Isolate::remove) the callback may take other
    /// locks and use this `ListLru`. It is still in the read side: in a kernel it must not sleep,
    /// and while it blocks, no thread frees retired memory.
    #[doc(alias = "list_lru_walk_one")]
    pub fn walk_one(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> u64 {
        let mut removed = 0;
        let _end = self.raw.walk_one(memcg, node, nr_to_walk, &mut removed, callback);
        removed
    }

    /// Walks the lists of all groups on `node`, in no particular order of groups. Returns the
    /// number of removed items.
    ///
    /// Collects the groups first, which allocates, without holding a lock; if memory runs out, only
    /// the groups that fit are walked. All groups share `nr_to_walk`, and the rules of
    /// [`walk_one`](Self::walk_one) hold. A [stop](Unlocked::stop) ends the walk over all
    /// groups (the kernel's continues with the next group).
    #[doc(alias = "list_lru_walk_node")]
    pub fn walk_node(
        &self,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: impl for<'a> FnMut(Isolate<'a, T>) -> LruStatus<'a>,
    ) -> u64 {
        let mut removed = 0;
        for memcg in &self.raw.groups_on(node) {
            if self.raw.walk_one(memcg, node, nr_to_walk, &mut removed, &mut callback).is_break() {
                break; // A stop ends the walk over all groups.
            }
        }
        removed
    }

    /// Locks the list that holds `item` and calls `f` with it and the item's links. `None` if the
    /// item is on none of these lists.
    fn at_home<R>(&self, item: &T, guard: &Guard, f: impl FnOnce(LockedList<'_>, NonNull<Hook>) -> R) -> Option<R> {
        // SAFETY: a reference is a pointer to a live object.
        let links = unsafe { T::links(NonNull::from(item)) };
        // SAFETY: `item` is borrowed during the call, and the links are a part of it, so they are
        // live.
        let list = self.raw.lock_list_of(unsafe { links.as_ref() }, guard)?;
        Some(f(list, links))
    }

    /// Returns the memory that these lists use beyond the items: this structure, its table, 64
    /// bytes for each (group, node), and the shards of split lists. O(1); O(lists) while a list is
    /// split.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new((size_of::<Self>() + size_of::<RawListLru>() + self.raw.bytes()) as u64)
    }

    /// Returns the number of (group, node) lists. A split list counts as one.
    pub fn pairs(&self) -> usize {
        self.raw.pairs()
    }

    /// Checks the structure: counts, links, table, ancestors. Takes all locks, one after the other;
    /// for tests.
    ///
    /// # Panics
    ///
    /// If an invariant is violated; the message names it.
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
    /// Drops the lists and the items on them (`docs/INVARIANTS.md`, L20; the kernel's
    /// `list_lru_destroy` leaks the items). O(lists + items).
    ///
    /// If the drop of an item panics, all other items are dropped as well, and then the first panic
    /// is resumed. If the thread is unwinding already, none is resumed (without the feature `std` a
    /// second panic aborts).
    #[doc(alias = "list_lru_destroy")]
    fn drop(&mut self) {
        let mut items = Isolated::<T>::new();
        self.raw.drain(|item| {
            // SAFETY: only links of a `T` are on these lists, and `drain` gave the item up, marked
            // private.
            unsafe { items.push_links(item) };
        });
        // The items' destructors run last, when no group refers to these lists any more: a
        // destructor may panic.
        drop(items);
    }
}

impl<T: Linked> fmt::Debug for ListLru<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListLru").field("pairs", &self.pairs()).finish_non_exhaustive()
    }
}
