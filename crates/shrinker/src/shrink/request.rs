//! One request to a shrinker: for which group, on which node, how many objects.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::registry::RegistryCore;

/// How many objects a [`ShrinkSlab`] scans.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScanAmount {
    /// As many as the policy says at this priority.
    Priority(u8),
    /// All there is, whatever its `seeks`: what the policy says at the highest priority of objects with few `seeks`.
    Drop,
    /// A small share; deferred objects do not count.
    Share,
    /// So many, as far as they are there; deferred objects do not count.
    Batch(u64),
    /// The deferred objects, and no others.
    Owed,
    /// None; only empty lists are found out.
    Nothing,
}

/// One shrinker is asked about one group on one node: what Linux's `do_shrink_slab` gets.
#[doc(alias = "do_shrink_slab")]
#[doc(alias = "struct shrink_control")]
pub(crate) struct ShrinkSlab<'a> {
    pub(crate) core: &'a RegistryCore,
    pub(crate) memcg: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) amount: ScanAmount,
    /// Whether bits are cleared where nothing is found. Not by the baseline.
    pub(crate) clears_bits: bool,
    /// Whether the group may have deferred objects here. Where it has none, none are looked for.
    pub(crate) has_deferred: bool,
}

impl<'a> ShrinkSlab<'a> {
    /// A request that a person makes.
    pub(crate) fn by_hand(core: &'a RegistryCore, memcg: &'a Memcg, node: NodeId) -> Self {
        let (flags, amount) = (Reclaim::FOREGROUND, ScanAmount::Share);
        Self { core, memcg, node, flags, amount, clears_bits: true, has_deferred: true }
    }
}
