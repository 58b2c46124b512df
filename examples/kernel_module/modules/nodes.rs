// SPDX-License-Identifier: GPL-2.0

//! The machine's nodes, as lowwater's registry sees them.
//!
//! The kernel places the objects and names the node of each scan, so lowwater needs only the number
//! of node ids, and no current node.
//!
//! A change must ensure that a node has the same number on both sides.

use super::kernel_lru;
use lowwater_lru_core::{NodeId, Topology};

/// The number of node ids, of which some may be unused.
pub(crate) struct Nodes(u16);

impl Nodes {
    pub(crate) fn of_machine() -> Self {
        let last = kernel_lru::NodeId::all().map(|node| node.index()).max();
        Self(last.map_or(1, |last| last as u16 + 1))
    }
}

impl Topology for Nodes {
    fn nodes(&self) -> usize {
        self.0.into()
    }

    fn current(&self) -> NodeId {
        NodeId::ZERO
    }

    fn cpus_of(&self, _: NodeId) -> &[usize] {
        &[]
    }

    /// Linux's `LOCAL_DISTANCE` and `REMOTE_DISTANCE`; lowwater's registry asks for none.
    fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        10 + 10 * u32::from(a != b)
    }
}

/// The node of a request.
pub(crate) fn node_of(sc: &kernel_lru::ShrinkControl<'_>) -> NodeId {
    NodeId::new(sc.node().index() as u16)
}
