//! The request with which a shrinker is visited: the group, the node, and how many objects to scan.
//!
//! A visit counts the shrinker's objects and scans some of them; `shrink.rs` does it. Each kind of
//! reclaim (`pass.rs`, `direct.rs`, `least_useful.rs`, `baseline.rs`) makes its own requests.
//!
//! A change must keep the request small: one is made for each visit.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::registry::RegistryCore;

/// How many objects a [`ShrinkSlab`] scans.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScanAmount {
    /// The number that the scan policy plans for this priority.
    Priority(u8),
    /// All objects, whatever the shrinker's `seeks`: the number that the policy plans at the
    /// highest priority for low `seeks`.
    Drop,
    /// A small part of the objects, of one batch at most; deferred objects are not included.
    Share,
    /// This number, as far as the objects exist; deferred objects are not included.
    Batch(u64),
    /// The deferred objects only: those that earlier visits planned and did not scan.
    Owed,
    /// None; only empty lists are detected.
    Nothing,
}

/// The arguments of one visit: a shrinker, a group and a node, as Linux's `do_shrink_slab` gets
/// them.
#[doc(alias = "do_shrink_slab")]
#[doc(alias = "struct shrink_control")]
pub(crate) struct ShrinkSlab<'a> {
    pub(crate) core: &'a RegistryCore,
    pub(crate) memcg: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) amount: ScanAmount,
    /// Whether the shrinker's bit for this group and node is cleared if no objects are found. False
    /// for the full scan (`baseline.rs`), which ignores the bits.
    pub(crate) clears_bits: bool,
    /// Whether the group may have deferred objects here. If not, none are looked up.
    pub(crate) has_deferred: bool,
}

impl<'a> ShrinkSlab<'a> {
    /// Creates the request of a manual scan (`debugfs/scan.rs`).
    pub(crate) fn by_hand(core: &'a RegistryCore, memcg: &'a Memcg, node: NodeId) -> Self {
        let (flags, amount) = (Reclaim::FOREGROUND, ScanAmount::Share);
        Self { core, memcg, node, flags, amount, clears_bits: true, has_deferred: true }
    }
}
