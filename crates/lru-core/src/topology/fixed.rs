//! A topology with a fixed number of nodes.
//!
//! Kernels pass a function that returns the current node; tests set the current node, to have
//! several nodes on any machine. A change must ensure that the number of nodes stays fixed, because
//! tables are sized by it, and that `current` always returns a node that exists.

use alloc::boxed::Box;
use core::fmt;

use super::{Topology, LOCAL_DISTANCE, REMOTE_DISTANCE};
use crate::sync::atomic::{AtomicU16, Ordering};
use lowwater_base::NodeId;

/// A number of equal nodes without processors, for tests, kernels, and machines that report no
/// topology.
///
/// ```
/// use lowwater_lru_core::topology::{Fixed, Topology};
/// use lowwater_lru_core::NodeId;
///
/// let topology = Fixed::new(2);
/// assert_eq!(topology.current(), NodeId::ZERO);
/// topology.set_current(NodeId::new(1));
/// assert_eq!(topology.current(), NodeId::new(1));
/// ```
pub struct Fixed {
    nodes: u16,
    current: CurrentNode,
}

/// The source of [`Topology::current`].
enum CurrentNode {
    /// A stored node, the same for all threads.
    Set(AtomicU16),
    /// A function that is called each time: a kernel's `numa_node_id`, a test's thread local.
    Asked(Box<dyn Fn() -> NodeId + Send + Sync>),
}

impl Fixed {
    /// Creates a topology of `nodes` nodes. Every thread is on the first node until
    /// [`set_current`](Self::set_current) is called.
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than 65,535.
    pub fn new(nodes: usize) -> Self {
        Self { nodes: checked(nodes), current: CurrentNode::Set(AtomicU16::new(0)) }
    }

    /// Creates a topology of `nodes` nodes, in which `current` returns the calling thread's node. A
    /// node that does not exist is replaced by the first one. Aborts the process if there is no
    /// memory for the function.
    ///
    /// # Panics
    ///
    /// If `nodes` is 0 or more than 65,535.
    pub fn with_current(nodes: usize, current: impl Fn() -> NodeId + Send + Sync + 'static) -> Self {
        Self { nodes: checked(nodes), current: CurrentNode::Asked(Box::new(current)) }
    }

    /// Sets the node on which every thread is from now on.
    ///
    /// # Panics
    ///
    /// If the node does not exist, or if the topology was created by
    /// [`with_current`](Self::with_current).
    pub fn set_current(&self, node: NodeId) {
        self.assert_has(node);
        match &self.current {
            // Relaxed: a single number on which no other data depends.
            CurrentNode::Set(current) => current.store(node.get(), Ordering::Relaxed),
            CurrentNode::Asked(_) => panic!("this topology calls a function for the current node: it cannot be set"),
        }
    }

    fn assert_has(&self, node: NodeId) {
        assert!(node.get() < self.nodes, "node {node} does not exist: there are {} nodes", self.nodes);
    }
}

fn checked(nodes: usize) -> u16 {
    assert!(nodes > 0, "a topology has at least one node");
    u16::try_from(nodes).unwrap_or_else(|_| panic!("{nodes} nodes are too many: a topology has at most 65535"))
}

impl Topology for Fixed {
    fn nodes(&self) -> usize {
        self.nodes.into()
    }

    fn current(&self) -> NodeId {
        let node = match &self.current {
            // Relaxed: a single number on which no other data depends.
            CurrentNode::Set(current) => NodeId::new(current.load(Ordering::Relaxed)),
            CurrentNode::Asked(current) => current(),
        };
        if node.get() < self.nodes {
            node
        } else {
            NodeId::ZERO
        }
    }

    fn cpus_of(&self, node: NodeId) -> &[usize] {
        self.assert_has(node);
        &[]
    }

    fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        self.assert_has(a);
        self.assert_has(b);
        if a == b {
            LOCAL_DISTANCE
        } else {
            REMOTE_DISTANCE
        }
    }
}

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixed").field("nodes", &self.nodes).field("current", &self.current()).finish()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_equal_and_have_no_processors() {
        let topology = Fixed::new(3);
        assert_eq!(topology.nodes(), 3);
        assert_eq!(topology.distance(NodeId::new(1), NodeId::new(1)), 10);
        assert_eq!(topology.distance(NodeId::new(0), NodeId::new(2)), 20);
        assert_eq!(topology.cpus_of(NodeId::new(2)), [0; 0]);
    }

    #[test]
    fn a_function_may_return_the_current_node_and_an_invalid_node_is_replaced_by_the_first() {
        assert_eq!(Fixed::with_current(3, || NodeId::new(2)).current(), NodeId::new(2));
        assert_eq!(Fixed::with_current(2, || NodeId::new(2)).current(), NodeId::ZERO);
    }

    #[test]
    #[should_panic(expected = "at least one node")]
    fn no_nodes_are_refused() {
        Fixed::new(0);
    }

    #[test]
    #[should_panic(expected = "65536 nodes are too many: a topology has at most 65535")]
    fn too_many_nodes_are_refused() {
        Fixed::new(1 << 16);
    }

    #[test]
    #[should_panic(expected = "node 2 does not exist: there are 2 nodes")]
    fn set_current_panics_for_an_invalid_node() {
        Fixed::new(2).set_current(NodeId::new(2));
    }

    #[test]
    #[should_panic(expected = "it cannot be set")]
    fn set_current_panics_if_a_function_returns_the_node() {
        Fixed::with_current(2, || NodeId::ZERO).set_current(NodeId::new(1));
    }
}
