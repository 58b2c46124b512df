//! The request passed to a callback, and the flags of the reclaiming thread.
//!
//! A callback that lacks a right returns `Stop` or calls `will_defer`, and never waits.
//!
//! Numbers such as S21 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each flag is a right: a thread without a new flag may do less, never
//! more, so a callback may ignore flags that it does not know.

use bitflags::bitflags;
use core::cell::Cell;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};

bitflags! {
    /// Rights of the reclaiming thread. A callback that needs more returns
    /// [`Scan::Stop`](crate::Scan::Stop), or better calls [`ShrinkControl::will_defer`] while
    /// counting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "gfp_mask")]
    pub struct Reclaim: u8 {
        /// May sleep on a lock.
        #[doc(alias = "__GFP_DIRECT_RECLAIM")]
        const MAY_BLOCK = 1;
        /// May start I/O and wait for it.
        #[doc(alias = "__GFP_IO")]
        const MAY_IO = 1 << 1;
        /// May take the cache's locks: the reclaiming thread holds none of them.
        #[doc(alias = "__GFP_FS")]
        const MAY_FS = 1 << 2;
        /// A background thread: it scans the objects that the foreground deferred.
        #[doc(alias = "current_is_kswapd")]
        const BACKGROUND = 1 << 3;
    }
}

impl Reclaim {
    /// A foreground thread that holds no locks of any cache.
    pub const FOREGROUND: Self = Self::MAY_BLOCK.union(Self::MAY_IO).union(Self::MAY_FS);
    /// The rights of a reclaimer thread: those of [`FOREGROUND`](Self::FOREGROUND), and to scan the
    /// objects that foreground threads deferred. Named after Linux's `kswapd`.
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
    /// `nr_to_scan`, unless the callback reports another number.
    nr_scanned: u64,
    /// The bytes of the freed objects, if the callback reports them.
    freed_bytes: Option<ByteSize>,
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
            freed_bytes: None,
            deferred: Cell::new(false),
            back_off: Cell::new(false),
        }
    }

    /// Returns the group to reclaim from. Shrinkers that are not memcg-aware get the root.
    pub fn memcg(&self) -> &'a Memcg {
        self.memcg
    }

    /// Returns the node to reclaim from. Shrinkers that are not NUMA-aware get node 0.
    #[doc(alias = "nid")]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the rights of the reclaiming thread.
    #[doc(alias = "gfp_mask")]
    pub fn flags(&self) -> Reclaim {
        self.flags
    }

    /// Returns the number of objects to scan; 0 while counting.
    pub fn nr_to_scan(&self) -> u64 {
        self.nr_to_scan
    }

    /// Reports how many objects were scanned, which may be more or fewer than requested; without
    /// this call, as many as requested. The number is not checked, but 0 together with
    /// [`Scan::Freed`](crate::Scan::Freed) is charged as the whole batch, so that the loop over
    /// batches ends (`docs/INVARIANTS.md`, S21).
    pub fn set_nr_scanned(&mut self, objects: u64) {
        self.nr_scanned = objects;
    }

    /// Reports the bytes of the objects that this call has freed. To be called by a shrinker that
    /// [weighs its objects](crate::Shrinker::weigh_objects): otherwise its freed objects are taken
    /// to be as large as those that it holds, and large objects that stay would count for small
    /// ones that come and go.
    pub fn set_freed_bytes(&mut self, bytes: ByteSize) {
        self.freed_bytes = Some(bytes);
    }

    /// Declares while counting that a scan could free nothing with these [`flags`](Self::flags). No
    /// scan is started; the objects that it would have scanned are left to the background as a debt
    /// (`docs/INVARIANTS.md`, S24).
    pub fn will_defer(&self) {
        self.deferred.set(true);
    }

    /// Requests, from either callback, that reclaim is retried a little later instead of at higher
    /// pressure: the obstacle (objects under writeback, a lock that is held for a while) is
    /// temporary. The background rests and keeps its pressure, a bounded number of times in a row.
    pub fn back_off(&self) {
        self.back_off.set(true);
    }

    pub(crate) fn asks_back_off(&self) -> bool {
        self.back_off.get()
    }

    pub(crate) fn nr_scanned(&self) -> u64 {
        self.nr_scanned
    }

    pub(crate) fn freed_bytes(&self) -> Option<ByteSize> {
        self.freed_bytes
    }

    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred.get()
    }
}
