//! A part: a list, two cache lines long, so that neither a neighbour nor the processor's fetching by pairs of lines gets in its way.

use super::super::list_lru_one::ListLruOne;
use super::super::lists_head::ListsHead;
use super::super::refusable::try_box;
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::UnsafeCell;
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

/// Fewer adds than this to all parts but the busiest, between two sweeps, and the parts end.
pub(super) const QUIET: u32 = 1024;

/// See the module.
#[repr(C, align(128))]
pub(crate) struct Shard {
    one: ListLruOne,
    /// How often somebody came to add, since the last sweep. Not exact: two that come at once may count one.
    adds: AtomicU32,
    /// For who frees it.
    retired: UnsafeCell<*mut Shard>,
}

// SAFETY: all cells are guarded by its list's lock, or used by who frees it alone.
unsafe impl Send for Shard {}
// SAFETY: as for Send.
unsafe impl Sync for Shard {}

// SAFETY: one static; nobody uses the link of a retired Shard.
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
        // SAFETY: the list is the first field, and live, says the caller.
        unsafe { ListLruOne::assert_unread(this.cast()) };
    }
}

impl Shard {
    pub(super) fn try_new(memcg: &Memcg, node: NodeId, owner: *const ListsHead) -> Option<NonNull<Self>> {
        let one = ListLruOne::new_part(memcg, node, owner);
        // Its first sweep finds it busy: what it saw of the parts' life was too short to tell.
        let part = Self { one, adds: AtomicU32::new(QUIET), retired: UnsafeCell::new(ptr::null_mut()) };
        let part = Box::into_raw(try_box(part)?);
        // For `of`.
        part.expose_provenance();
        NonNull::new(part)
    }

    /// The part whose list this is.
    pub(in super::super) fn of(one: *const ListLruOne) -> *mut Self {
        // The list is the first field. Through a reference to the list one may not reach the rest, which is freed with it.
        ptr::with_exposed_provenance_mut(one.addr())
    }

    /// Its list.
    #[inline]
    pub(super) fn one(&self) -> &ListLruOne {
        &self.one
    }

    /// Its list, for an add.
    #[inline]
    pub(super) fn count_add(&self) -> &ListLruOne {
        // Relaxed: nothing is read on the strength of it. Not a read-modify-write, which would cost as much as a lock.
        let adds = self.adds.load(Ordering::Relaxed);
        // Relaxed: as above.
        self.adds.store(adds.saturating_add(1), Ordering::Relaxed);
        &self.one
    }

    /// How often somebody came to add since this was last asked.
    pub(super) fn take_adds(&self) -> u32 {
        // Relaxed: as in `count_add`.
        self.adds.swap(0, Ordering::Relaxed)
    }
}
