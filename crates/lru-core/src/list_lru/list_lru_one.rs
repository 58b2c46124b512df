//! The list of one group on one node: lock, items and count, in 64 bytes.
//!
//! ```text
//!     published --(reparent, sweep or list drop: drained, Dead)--> dead --(unpublished, last reference gone)--> retired
//! ```
//!
//! A contended list gets [shards](super::shards), which are lists of the same type. In the
//! invariants below a shard is treated like a child group's list, and the split list like its
//! parent's.
//!
//! # Invariants
//!
//! 1. While the list is not dead, `nr_items` is the number of items on `list`. Dead: `list` is
//!    empty, `nr_items` is 0, and `forward` points to the list that took the items over: the parent
//!    group's, or for a shard the list it belongs to. That list may be dead by now, too. (L1)
//! 2. An item whose home is this list lies on this list's
//!    [`effective`](super::RawListLru::lock_effective_of) list: this one while it is not dead, else
//!    the list at the end of the chain of forwards. So the lock of the effective list guards such
//!    an item's links.
//! 3. `refs` (64 bits, so that no number of forgotten handles makes it wrap) is 1 while the table
//!    holds this list (for a shard: while its [`ShardSet`](super::ShardSet) is in the table), plus
//!    the number of items whose home this list is, plus the number of child groups' lists and
//!    shards that are in the table or forward to this list and are not retired, plus the number of
//!    [`Prepared`](super::Prepared) for it. It is guarded by the lock of the effective list.
//! 4. `memcg` is not released while `refs` is not 0. A list that is not dead has a group handle:
//!    either the table holds the list, or the list was not published yet.
//! 5. `node` and the address of the group, by which the list is found, never change. They identify
//!    this group as long as the list is in the table, which counts in `refs`. The id alone does
//!    not, since a group of another tree may have the same id.
//!
//! A change must keep these invariants, and the size of one cache line.
//!
//! Numbers such as L1 are those of docs/INVARIANTS.md.

use super::chain_links::ChainLinks;
use super::key::Key;
use super::list_state::ListState;
use super::lists_head::ListsHead;
use crate::list::{ListHome, RawList};
use crate::memcg::HeldMemcg;
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::raw::RawLock;
use crate::sync::UnsafeCell;
use crate::{Memcg, NodeId};
use core::ptr;

/// The list of one group on one node; see the module.
#[doc(alias = "list_lru_one")]
pub(crate) struct ListLruOne {
    pub(super) lock: RawLock,
    pub(super) state: UnsafeCell<ListState>,
    pub(super) node: NodeId,
    /// Written under `lock`, and read without it.
    pub(super) nr_items: AtomicU32,
    pub(super) refs: UnsafeCell<u64>,
    pub(super) list: UnsafeCell<RawList>,
    pub(super) memcg: HeldMemcg,
    /// The head of the `ListLru` that the list belongs to. Never changes; a cell only so that model
    /// checks detect a read before publication.
    owner: UnsafeCell<*const ListsHead>,
    /// Guarded by the lock of the group's chain (`memcg::attached`) until the list is taken off it.
    /// Once the list is dead, `next` is `forward`, guarded by `lock`, and `prev` links released
    /// lists, owned by the thread that released them, and then retired ones.
    pub(super) chain: ChainLinks<Self>,
}

// SAFETY: every cell is guarded by a lock that its invariant names; `owner` points to a structure
// that outlives its published lists; `memcg` is a handle, which is `Send`, and its address never
// changes.
unsafe impl Send for ListLruOne {}
// SAFETY: shared access to the cells is synchronized by the locks that the invariants name; the
// other fields are atomics or never change.
unsafe impl Sync for ListLruOne {}

// SAFETY: `kind` returns one static, and no code uses `chain.prev` of a retired list.
unsafe impl Retired for ListLruOne {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.chain.prev
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<ListLruOne>();
        &KIND
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: the object is live (clause of `assert_unread`).
        unsafe { &(*this).owner }.with_mut(|_| ());
    }
}

// Only with `std`: an embedder's lock has 4 or 32 bytes (`LockSpace`) instead of one.
#[cfg(all(target_pointer_width = "64", not(lowwater_loom), feature = "std"))]
const _: () =
    assert!(size_of::<ListLruOne>() == 64, "a list of one group on one node costs 64 bytes (DESIGN: cost table)");

impl ListLruOne {
    /// Returns this list as the `home` pointer that its items' hooks store.
    #[inline]
    pub(super) fn as_home(&self) -> *mut ListHome {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(super) fn new(memcg: &Memcg, node: NodeId, owner: *const ListsHead) -> Self {
        Self {
            lock: RawLock::new(),
            state: UnsafeCell::new(ListState::LIVE),
            node,
            nr_items: AtomicU32::new(0),
            refs: UnsafeCell::new(1),
            list: UnsafeCell::new(RawList::new()),
            memcg: HeldMemcg::new(memcg.clone()),
            owner: UnsafeCell::new(owner),
            chain: ChainLinks::new(),
        }
    }

    /// Creates a shard of the list of this group on this node.
    pub(super) fn new_shard(memcg: &Memcg, node: NodeId, owner: *const ListsHead) -> Self {
        let mut shard = Self::new(memcg, node, owner);
        shard.state = UnsafeCell::new(ListState::SHARD);
        shard
    }

    #[inline]
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether this is the list that `key` names, or a shard of it. For lists found in a
    /// table.
    #[inline]
    pub(super) fn is_of(&self, key: Key) -> bool {
        (self.node, self.memcg.addr()) == (key.node, key.group)
    }

    /// Returns the key under which the list is in the table.
    ///
    /// # Safety
    ///
    /// The clause of [`memcg_of_published`](Self::memcg_of_published) holds.
    pub(super) unsafe fn key_of_published(&self) -> Key {
        // SAFETY: this function's clause is that of `memcg_of_published`.
        Key::new(unsafe { self.memcg_of_published() }, self.node)
    }

    /// Returns the head of the `ListLru` to which this list belongs.
    #[inline]
    pub(super) fn owner(&self) -> *const ListsHead {
        // SAFETY: the cell is written only by `new`, before the list is shared.
        self.owner.with(|owner| unsafe { *owner })
    }

    /// Returns the number of items, read without the lock.
    #[inline]
    pub(super) fn nr_items(&self) -> u32 {
        // Relaxed: the count may be outdated when it is returned. A caller that must not miss an
        // item executes the fence (see `Occupancy`).
        self.nr_items.load(Ordering::Relaxed)
    }

    /// Returns the group of a published list.
    ///
    /// # Safety
    ///
    /// As long as the result is used, this list, or the list of which it is a shard, stays in its
    /// owner's table: the caller holds the owner's writer lock.
    #[inline]
    pub(super) unsafe fn memcg_of_published(&self) -> &Memcg {
        // SAFETY: the table counts in `refs` (invariant 3), so the handle is not released
        // (invariant 4).
        unsafe { self.memcg.get() }
    }
}

impl Drop for ListLruOne {
    /// Releases the group handle of a list that was never published. A published list is dead by
    /// now, and its handle was released with the last reference.
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no other thread accesses the list.
        if self.state.with(|s| unsafe { *s }) < ListState::DEAD {
            // SAFETY: only `retire_released` releases the handle otherwise, and only of dead lists.
            unsafe { self.memcg.release() };
        }
    }
}
