//! A shard of a split list: a list for some of the processors, in two cache lines of its own, so
//! that neither false sharing nor the adjacent-line prefetcher slows it down.
//!
//! A change must keep the list as the first field: the shard is recovered from a pointer to its
//! list.

use super::super::list_lru_one::ListLruOne;
use super::super::lists_head::ListsHead;
use super::super::refusable::try_box;
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::UnsafeCell;
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// The threshold for joining: if all shards but the busiest together got fewer adds than this
/// between two sweeps, the shards are joined, since so few adds rarely find one lock taken.
pub(super) const QUIET: u32 = 1024;

/// One shard of a split list; see the module.
#[repr(C, align(128))]
pub(crate) struct Shard {
    one: ListLruOne,
    /// The number of adds since the last sweep. Approximate: concurrent adds may be counted once.
    adds: AtomicU32,
    /// The link of the queue of retired objects.
    retired: UnsafeCell<*mut Shard>,
}

// SAFETY: all cells are guarded by the list's lock, except `retired`, which only the queue of
// retired objects uses.
unsafe impl Send for Shard {}
// SAFETY: shared access to the cells is synchronized by the list's lock; `adds` is atomic.
unsafe impl Sync for Shard {}

// SAFETY: `kind` returns one static, and no code but the retire queue uses the link of a retired
// `Shard`.
unsafe impl Retired for Shard {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<Shard>();
        &KIND
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: the object is live (clause of `assert_unread`), and the list is its first field.
        unsafe { ListLruOne::assert_unread(this.cast()) };
    }
}

impl Shard {
    /// Creates the shard of a list of `memcg` and `node`; `None` without memory.
    pub(super) fn try_new(memcg: &Memcg, node: NodeId, owner: *const ListsHead) -> Option<NonNull<Self>> {
        let one = ListLruOne::new_shard(memcg, node, owner);
        // The first sweep after the split must find the shard busy: it has not observed the shard
        // for a whole interval.
        let shard = Self { one, adds: AtomicU32::new(QUIET), retired: UnsafeCell::new(ptr::null_mut()) };
        let shard = Box::into_raw(try_box(shard)?);
        // `of` recovers this provenance.
        shard.expose_provenance();
        NonNull::new(shard)
    }

    /// Returns the shard whose list `one` is; `one` must be the list of a shard.
    pub(in super::super) fn of(one: *const ListLruOne) -> *mut Self {
        // The list is the first field. The pointer needs the box's provenance: a reference to the
        // list gives no access to the other fields, nor the right to free them.
        ptr::with_exposed_provenance_mut(one.addr())
    }

    /// Returns the shard's list.
    #[inline]
    pub(super) fn one(&self) -> &ListLruOne {
        &self.one
    }

    /// Counts an add, and returns the shard's list.
    #[inline]
    pub(super) fn count_add(&self) -> &ListLruOne {
        // Relaxed: the count orders nothing. A load and a store instead of a read-modify-write,
        // which would cost as much as taking a lock.
        let adds = self.adds.load(Ordering::Relaxed);
        // Relaxed: the count orders nothing.
        self.adds.store(adds.saturating_add(1), Ordering::Relaxed);
        &self.one
    }

    /// Returns the number of adds since the last sweep.
    pub(super) fn adds(&self) -> u32 {
        // Relaxed: the count orders nothing.
        self.adds.load(Ordering::Relaxed)
    }

    /// Resets the number of adds.
    pub(super) fn reset_adds(&self) {
        // Relaxed: the count orders nothing.
        self.adds.store(0, Ordering::Relaxed);
    }
}
