//! The nodes of a machine, as sysfs or hwloc describe them.
//!
//! Shared by `sysfs.rs` and `hwloc.rs`, so that both assign processors of a memoryless node in the
//! same way: to the nearest node with memory. A change must keep `current` a lookup in a table:
//! with more than one node, each insert into a cache calls it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Topology;
use lowwater_base::cpu;
use lowwater_base::NodeId;

/// A NUMA node as the system reports it.
#[derive(Debug)]
pub(super) struct NumaNode {
    /// The operating system's numbers of the node's processors.
    pub(super) cpus: Vec<usize>,
    /// The distances to all nodes, in their order; 10 is local.
    pub(super) distances: Vec<u32>,
    pub(super) has_memory: bool,
}

/// The nodes, and a table from processor to node that makes `current` cheap.
#[derive(Debug)]
pub(super) struct Machine {
    nodes: Box<[NumaNode]>,
    /// Indexed by the operating system's processor number; the first node for a number that belongs
    /// to no node.
    node_of_cpu: Box<[NodeId]>,
}

impl Machine {
    /// Builds the table. There must be at least one node, and each must have a distance to every
    /// node.
    pub(super) fn new(nodes: Vec<NumaNode>) -> Self {
        let cpus_end = nodes.iter().flat_map(|node| &node.cpus).max().map_or(0, |last| last + 1);
        let mut node_of_cpu = vec![NodeId::ZERO; cpus_end];
        for node in &nodes {
            let serving = nearest_with_memory(&nodes, node);
            for cpu in &node.cpus {
                node_of_cpu[*cpu] = serving;
            }
        }
        Self { nodes: nodes.into(), node_of_cpu: node_of_cpu.into() }
    }

    /// Returns the node from which a thread on this processor gets its memory; the first node if
    /// the processor is unknown.
    #[inline]
    pub(super) fn node_of(&self, cpu: Option<usize>) -> NodeId {
        cpu.and_then(|cpu| self.node_of_cpu.get(cpu)).copied().unwrap_or(NodeId::ZERO)
    }

    fn node(&self, node: NodeId) -> &NumaNode {
        let nodes = self.nodes.len();
        self.nodes.get(node.index()).unwrap_or_else(|| panic!("node {node} does not exist: there are {nodes} nodes"))
    }
}

/// Returns the node that serves the processors of `node`: `node` itself if it has memory, as the
/// distance to itself is the least, else the nearest node with memory; the first node if there is
/// none.
#[doc(alias = "numa_mem_id")]
fn nearest_with_memory(nodes: &[NumaNode], node: &NumaNode) -> NodeId {
    let candidates = nodes.iter().zip(&node.distances).enumerate().filter(|(_, (other, _))| other.has_memory);
    let nearest = candidates.min_by_key(|(_, (_, distance))| **distance);
    nearest.map_or(NodeId::ZERO, |(index, _)| NodeId::new(index as u16))
}

impl Topology for Machine {
    fn nodes(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    fn current(&self) -> NodeId {
        self.node_of(cpu::current())
    }

    fn cpus_of(&self, node: NodeId) -> &[usize] {
        &self.node(node).cpus
    }

    fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        let (a, nodes) = (self.node(a), self.nodes.len());
        let distance = a.distances.get(b.index());
        *distance.unwrap_or_else(|| panic!("node {b} does not exist: there are {nodes} nodes"))
    }
}
