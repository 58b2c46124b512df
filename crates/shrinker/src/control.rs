//! The request that a callback gets, and the flags by which it answers.

use bitflags::bitflags;
use core::cell::Cell;
use lowwater_lru_core::{Memcg, NodeId};

bitflags! {
    /// Rights of the thread that reclaims. A callback that needs more answers [`Scan::Stop`](crate::Scan::Stop), or better
    /// calls [`ShrinkControl::will_defer`] already when it counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "gfp_mask")]
    pub struct Reclaim: u8 {
        /// May sleep on a lock.
        #[doc(alias = "__GFP_DIRECT_RECLAIM")]
        const MAY_BLOCK = 1;
        /// May start I/O and wait for it.
        #[doc(alias = "__GFP_IO")]
        const MAY_IO = 1 << 1;
        /// May take the owner's locks: no thread is reclaiming here that holds them.
        #[doc(alias = "__GFP_FS")]
        const MAY_FS = 1 << 2;
        /// A background thread: it scans the objects that the foreground deferred.
        #[doc(alias = "current_is_kswapd")]
        const BACKGROUND = 1 << 3;
    }
}

impl Reclaim {
    /// A thread in the foreground that holds nothing of anybody's.
    pub const FOREGROUND: Self = Self::MAY_BLOCK.union(Self::MAY_IO).union(Self::MAY_FS);
    /// A reclaimer thread.
    pub const KSWAPD: Self = Self::FOREGROUND.union(Self::BACKGROUND);
}

/// One request to a shrinker: the group, the node, the number of objects, the rights.
#[derive(Debug)]
#[doc(alias = "struct shrink_control")]
pub struct ShrinkControl<'a> {
    memcg: &'a Memcg,
    node: NodeId,
    flags: Reclaim,
    nr_to_scan: u64,
    nr_scanned: u64,
    deferred: Cell<bool>,
    back_off: Cell<bool>,
}

impl<'a> ShrinkControl<'a> {
    pub(crate) fn count(memcg: &'a Memcg, node: NodeId, flags: Reclaim) -> Self {
        Self::scan(memcg, node, flags, 0)
    }

    pub(crate) fn scan(memcg: &'a Memcg, node: NodeId, flags: Reclaim, nr_to_scan: u64) -> Self {
        Self {
            memcg,
            node,
            flags,
            nr_to_scan,
            nr_scanned: nr_to_scan,
            deferred: Cell::new(false),
            back_off: Cell::new(false),
        }
    }

    /// The group whose objects are meant. Shrinkers that are not memcg-aware get the root.
    pub fn memcg(&self) -> &'a Memcg {
        self.memcg
    }

    /// The node whose objects are meant. Shrinkers that are not NUMA-aware get node 0.
    #[doc(alias = "nid")]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The rights of the reclaiming thread.
    #[doc(alias = "gfp_mask")]
    pub fn flags(&self) -> Reclaim {
        self.flags
    }

    /// How many objects to look at; 0 while counting.
    pub fn nr_to_scan(&self) -> u64 {
        self.nr_to_scan
    }

    /// Says how many objects were looked at, more or fewer than asked. The number is taken as it is; 0 together with
    /// [`Scan::Freed`](crate::Scan::Freed) is charged as the whole batch, so that a loop over it ends (S21).
    pub fn set_nr_scanned(&mut self, objects: u64) {
        self.nr_scanned = objects;
    }

    /// Says while counting that a scan could do nothing with these [`flags`](Self::flags). None is started; what it would
    /// have scanned is left to the background as a debt (S24).
    pub fn will_defer(&self) {
        self.deferred.set(true);
    }

    /// Asks, from either callback, that reclaim comes back a little later rather than harder: what stands in the way (objects
    /// being written out, a lock that somebody holds for a while) goes away by itself. The background rests and keeps its
    /// pressure, a bounded number of times in a row.
    pub fn back_off(&self) {
        self.back_off.set(true);
    }

    pub(crate) fn asks_back_off(&self) -> bool {
        self.back_off.get()
    }

    pub(crate) fn nr_scanned(&self) -> u64 {
        self.nr_scanned
    }

    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred.get()
    }
}
