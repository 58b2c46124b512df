//! The topology reported by the C library hwloc, for this machine or for a synthetic description.
//!
//! hwloc is queried once. Its own query for the current processor costs 40 to 280 ns a call,
//! compared with 2 ns for the table that is built here, so [`current`](Topology::current) does not
//! use it.
//!
//! hwloc's calls that bind threads or memory return success and do nothing if the topology is not
//! that of this machine. Code that binds by the contents of this topology must check
//! [`is_this_machine`](Hwloc::is_this_machine) first.
//!
//! A change must ensure that hwloc is queried only when a [`Hwloc`] is created.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use hwlocality::object::types::ObjectType;
use hwlocality::object::TopologyObject;
use hwlocality::topology::builder::BuildFlags;

use super::machine::{Machine, NumaNode};
use super::{Topology, TopologyError, LOCAL_DISTANCE, REMOTE_DISTANCE};
use lowwater_base::NodeId;

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

/// The name of the machine in error messages, if there is no description.
const THIS_MACHINE: &str = "this machine";

/// The nodes of this machine or of a description, as reported by hwloc, in the order of the
/// operating system's numbers.
///
/// ```
/// use lowwater_lru_core::topology::{Hwloc, Topology};
/// use lowwater_lru_core::NodeId;
///
/// let topology = Hwloc::synthetic("numa:4 core:8 pu:2")?;
/// assert_eq!(topology.nodes(), 4);
/// assert_eq!(topology.cpus_of(NodeId::new(1)).len(), 16);
/// assert!(!topology.is_this_machine());
/// # Ok::<(), lowwater_lru_core::topology::TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Hwloc {
    machine: Machine,
    is_this_machine: bool,
}

impl Hwloc {
    /// Reads the topology of this machine, with all its processors: also those that the process may
    /// not use now, as a cpuset can be widened later.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Hwloc`] if hwloc fails, or finds no node or more than a [`NodeId`] can
    /// number.
    pub fn detect() -> Result<Self, TopologyError> {
        let builder = hwlocality::Topology::builder().with_flags(BuildFlags::INCLUDE_DISALLOWED);
        let builder = builder.map_err(|reason| error(THIS_MACHINE, &reason))?;
        let topology = builder.build().map_err(|reason| error(THIS_MACHINE, &reason))?;
        Self::read(THIS_MACHINE, &topology)
    }

    /// Creates the topology of a synthetic machine from a description such as `numa:4 core:8 pu:2`:
    /// 4 nodes of 8 cores with 2 threads each.
    ///
    /// [`current`](Topology::current) looks up the real number of the thread's processor in the
    /// description; a number that the description does not have belongs to the first node.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Hwloc`] if hwloc does not understand the description; also the errors of
    /// [`detect`](Self::detect).
    #[doc(alias = "hwloc_topology_set_synthetic")]
    pub fn synthetic(description: &str) -> Result<Self, TopologyError> {
        let builder = hwlocality::Topology::builder().from_synthetic(description);
        let builder = builder.map_err(|reason| error(description, &reason))?;
        let topology = builder.build().map_err(|reason| error(description, &reason))?;
        Self::read(description, &topology)
    }

    /// Returns whether this is the topology of the machine that the program runs on. If not, its
    /// processors and nodes cannot be bound to.
    pub fn is_this_machine(&self) -> bool {
        self.is_this_machine
    }

    fn read(description: &str, topology: &hwlocality::Topology) -> Result<Self, TopologyError> {
        let mut found: Vec<&TopologyObject> = topology.objects_with_type(ObjectType::NUMANode).collect();
        found.sort_by_key(|node| node.os_index());
        if found.is_empty() || u16::try_from(found.len()).is_err() {
            return Err(error(description, &"no NUMA node, or more than a node id can number"));
        }
        let matrices = topology.distances_with_type(None, ObjectType::NUMANode).unwrap_or_default();
        let distance = |a: usize, b: usize| {
            let reported = matrices.iter().find_map(|m| m.object_pair_distance((found[a], found[b])));
            let reported = reported.and_then(|(a_to_b, _b_to_a)| u32::try_from(a_to_b).ok());
            reported.unwrap_or(if a == b { LOCAL_DISTANCE } else { REMOTE_DISTANCE })
        };
        let nodes = found.iter().enumerate().map(|(index, node)| NumaNode {
            cpus: cpus_of(node),
            distances: (0..found.len()).map(|other| distance(index, other)).collect(),
            has_memory: node.total_memory() > 0,
        });
        let mut nodes: Vec<NumaNode> = nodes.collect();
        assign_shared_cpus(&mut nodes);
        Ok(Self { machine: Machine::new(nodes), is_this_machine: topology.is_this_system() })
    }
}

/// Leaves each processor to the node with the fewest processors that lists it, of equal ones the
/// first. hwloc also lists a package's processors for its second memory (HBM, CXL memory), from
/// which no thread is to get its memory by default, unless it is near to a part of the package
/// only; sysfs lists none for such a node.
fn assign_shared_cpus(nodes: &mut [NumaNode]) {
    let mut assigned = BTreeSet::new();
    let mut order: Vec<&mut NumaNode> = nodes.iter_mut().collect();
    order.sort_by_key(|node| node.cpus.len());
    for node in order {
        node.cpus.retain(|cpu| assigned.insert(*cpu));
    }
}

fn cpus_of(node: &TopologyObject) -> Vec<usize> {
    // An infinite set is hwloc's notation for "all processors, however many"; a table cannot hold
    // it.
    let cpus = node.cpuset().filter(|set| set.weight().is_some());
    cpus.map_or_else(Vec::new, |set| set.iter_set().map(usize::from).collect())
}

fn error(description: &str, reason: &impl ToString) -> TopologyError {
    TopologyError::Hwloc { what: String::from(description), reason: reason.to_string() }
}

impl Topology for Hwloc {
    fn nodes(&self) -> usize {
        self.machine.nodes()
    }

    #[inline]
    fn current(&self) -> NodeId {
        self.machine.current()
    }

    fn cpus_of(&self, node: NodeId) -> &[usize] {
        self.machine.cpus_of(node)
    }

    fn distance(&self, a: NodeId, b: NodeId) -> u32 {
        self.machine.distance(a, b)
    }
}
