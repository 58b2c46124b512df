//! The request with which shrinkers are visited: the group, the node, and how many objects to scan.
//!
//! A visit (`shrink.rs`) counts a shrinker's objects and scans some of them. Requests are made by a
//! pass (`pass.rs`, also for direct reclaim), by reclaim by utility (`least_useful/victim.rs`) and
//! by the baseline (`baseline.rs`).
//!
//! A change must keep the request small: one is made for each visited group, or for each visit.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::protect::Unprotected;
use crate::registry::RegistryCore;

/// How many objects a [`ShrinkSlab`] scans.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScanAmount {
    /// The number that the scan policy plans for this priority.
    Priority(u8),
    /// All objects, whatever the shrinker's `seeks`: the number that the policy plans at the
    /// highest pressure for `seeks` of at most `SEEKS_ALL_MAX`.
    Drop,
    /// A small part of the objects, of one batch at most; deferred objects are not included.
    Share,
    /// 1 / `parts` of the objects and at most `max`, but at least one; deferred objects are not
    /// included. Ends when `free_max` objects are freed.
    Batch { parts: u64, max: u64, free_max: u64 },
    /// The deferred objects only: those that earlier visits planned and did not scan.
    Owed,
    /// None; only empty lists are detected.
    Nothing,
}

/// The arguments of Linux's `do_shrink_slab` without the shrinker, so that one request serves for
/// all shrinkers of a group and node.
#[doc(alias = "do_shrink_slab")]
#[doc(alias = "struct shrink_control")]
pub(crate) struct ShrinkSlab<'a> {
    pub(crate) core: &'a RegistryCore,
    pub(crate) memcg: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) amount: ScanAmount,
    /// The part of the group that may be freed; a [`ScanAmount::Batch`] has its own bound.
    pub(crate) unprotected: Unprotected,
    /// Whether the shrinker's bit for this group and node is cleared if no objects are found. False
    /// for the full scan (`baseline.rs`), which ignores the bits.
    pub(crate) clears_bits: bool,
    /// Whether the group may have deferred objects on the node. If not, none are looked up.
    pub(crate) has_deferred: bool,
}

impl<'a> ShrinkSlab<'a> {
    /// Creates the request of a manual scan (`debugfs/scan.rs`), which passes a number of its own
    /// and ignores `amount`.
    pub(crate) fn by_hand(core: &'a RegistryCore, memcg: &'a Memcg, node: NodeId) -> Self {
        let (flags, amount, unprotected) = (Reclaim::FOREGROUND, ScanAmount::Share, Unprotected::ALL);
        Self { core, memcg, node, flags, amount, unprotected, clears_bits: true, has_deferred: true }
    }
}
