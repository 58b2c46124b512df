//! A request to a shrinker: the group, the node, and how many objects to scan.
//!
//! Plain data; `shrink.rs` has the visit.
//!
//! A change must keep it small: it is made once for each callback.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::registry::RegistryCore;

/// How many objects a [`ShrinkSlab`] scans.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScanAmount {
    /// The number that the policy returns for this priority.
    Priority(u8),
    /// All objects, whatever their `seeks`: the number that the policy returns at the highest
    /// priority for low `seeks`.
    Drop,
    /// A small share; deferred objects are not included.
    Share,
    /// This number, as far as the objects exist; deferred objects are not included.
    Batch(u64),
    /// The deferred objects only.
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
    /// Whether bits are cleared if no objects are found; false for the baseline.
    pub(crate) clears_bits: bool,
    /// Whether the group may have deferred objects here. If not, none are looked up.
    pub(crate) has_deferred: bool,
}

impl<'a> ShrinkSlab<'a> {
    /// Creates a manual request.
    pub(crate) fn by_hand(core: &'a RegistryCore, memcg: &'a Memcg, node: NodeId) -> Self {
        let (flags, amount) = (Reclaim::FOREGROUND, ScanAmount::Share);
        Self { core, memcg, node, flags, amount, clears_bits: true, has_deferred: true }
    }
}
