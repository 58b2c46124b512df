//! The list of one group on one node: its lock, its items, its count. 64 bytes.
//!
//! ```text
//!     published --(reparent, sweep or list drop: drained, Dead)--> dead --(unpublished, last reference gone)--> retired
//! ```
//!
//! A list for which threads contend gets [parts](super::split) beside it, which are lists of the same kind. For what is said
//! here a part is a child's list, and the list that was split its parent's.
//!
//! # Invariants
//!
//! 1. While not dead, `nr_items` is the number of items on `list`. Dead: `list` is empty, `nr_items` is 0, and
//!    `forward` leads to the parent group's list, or from a part to the list it is a part of, which took the items over (and
//!    may be dead by now, too). (L1)
//! 2. An item whose home this is lies on [`effective`](super::RawListLru::lock_effective_of) of this: on this while it is not
//!    dead, else on what the chain of forwards ends in. So the lock of the effective list guards such an item's links.
//! 3. `refs` (64 bits, so that no number of handles that are forgotten makes it wrap) is 1 while
//!    the table holds this (a part: while its [`ShardSet`](super::ShardSet) is in the table), plus the
//!    items whose home this is, plus the lists of child groups and the parts that are in the table
//!    or forward to this and are not retired, plus the [`Prepared`](super::Prepared) for it. It is
//!    guarded by the lock of the effective list.
//! 4. `memcg` is not given up while `refs` is not 0. A list that is not dead has one, as the table
//!    holds it or it was not published.
//! 5. `node` and the address of the group, by which it is found, never change. They name this group
//!    alone for as long as this is in the table, which counts in `refs`; ids do not, as groups of
//!    another tree have the same.

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

/// See the module.
#[doc(alias = "list_lru_one")]
pub(crate) struct ListLruOne {
    pub(super) lock: RawLock,
    pub(super) state: UnsafeCell<ListState>,
    pub(super) node: NodeId,
    pub(super) nr_items: AtomicU32,
    pub(super) refs: UnsafeCell<u64>,
    pub(super) list: UnsafeCell<RawList>,
    pub(super) memcg: HeldMemcg,
    /// Never changes; a cell only so that model checks see who reads it before it is published.
    owner: UnsafeCell<*const ListsHead>,
    /// Guarded by the group's [`Pairs`](super::Pairs) lock until dead. Afterwards `next` is `forward`, guarded by `lock`, and
    /// `prev` joins what was released, owned by who released it, and then what is retired.
    pub(super) chain: ChainLinks<Self>,
}

// SAFETY: every cell is guarded by a lock that its invariant names; `owner` is a list that outlives
// its published parts; `memcg` is a handle, which may be sent, and whose address never changes.
unsafe impl Send for ListLruOne {}
// SAFETY: as for Send.
unsafe impl Sync for ListLruOne {}

// SAFETY: one static; nobody uses the link of a retired One.
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
        // SAFETY: it is live, says the caller.
        unsafe { &(*this).owner }.with_mut(|_| ());
    }
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom), feature = "std"))]
const _: () =
    assert!(size_of::<ListLruOne>() == 64, "a list of one group on one node costs 64 bytes (DESIGN: cost table)");

impl ListLruOne {
    /// This list as the hooks of its items name it.
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

    /// A part of the list of this group on this node.
    pub(super) fn new_part(memcg: &Memcg, node: NodeId, owner: *const ListsHead) -> Self {
        let mut part = Self::new(memcg, node, owner);
        part.state = UnsafeCell::new(ListState::PART);
        part
    }

    #[inline]
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Is this the list, or a part of the list, that the key names? For what is found in a table.
    #[inline]
    pub(super) fn is_of(&self, key: Key) -> bool {
        (self.node, self.memcg.addr()) == (key.node, key.group)
    }

    /// Under which it is in the table.
    ///
    /// # Safety
    ///
    /// As for [`memcg_of_published`](Self::memcg_of_published).
    pub(super) unsafe fn key_of_published(&self) -> Key {
        // SAFETY: the clause is the same.
        Key::new(unsafe { self.memcg_of_published() }, self.node)
    }

    /// The list this is a part of.
    #[inline]
    pub(super) fn owner(&self) -> *const ListsHead {
        // SAFETY: nobody writes it after `new`.
        self.owner.with(|owner| unsafe { *owner })
    }

    /// How many items are on it, without the lock.
    #[inline]
    pub(super) fn nr_items(&self) -> u32 {
        // Relaxed: a count is old when it arrives. A caller that must not miss an item brings the fence (see `Occupancy`).
        self.nr_items.load(Ordering::Relaxed)
    }

    /// The group, for who knows that this is published.
    ///
    /// # Safety
    ///
    /// For as long as the answer is used this is in its owner's table, because the caller holds the
    /// writer lock of the owner; or a part of what is there.
    #[inline]
    pub(super) unsafe fn memcg_of_published(&self) -> &Memcg {
        // SAFETY: the table counts in `refs` (invariant 3), so the handle is not given up
        // (invariant 4).
        unsafe { self.memcg.get() }
    }
}

impl Drop for ListLruOne {
    /// Of one that was not published. Else it is dead by now, and the handle was given up when it
    /// was released.
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        if self.state.with(|s| unsafe { *s }) < ListState::DEAD {
            // SAFETY: only `retire_released` gives it up, of dead ones.
            unsafe { self.memcg.release() };
        }
    }
}
