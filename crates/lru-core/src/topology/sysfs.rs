//! The topology reported by Linux in `/sys/devices/system/node`: no C library, no privileges.
//!
//! | file | contents | if missing |
//! |---|---|---|
//! | `online` | the numbers of the nodes, possibly with gaps | an error: this kernel has no NUMA support |
//! | `nodeN/cpulist` | the processors of node N; empty for a memory-only node | an error |
//! | `nodeN/distance` | the distances to the online nodes, in their order | 10 to itself, 20 to others |
//! | `has_memory` | the nodes that have memory | all have |
//!
//! A [`NodeId`] is a position in `online`, so node ids have no gaps.
//!
//! The files are read once: a thread on a processor that comes online later counts as on the first
//! node. The wrong node costs speed, not correctness.
//!
//! A change must ensure that a malformed file is an error and not a guess.

use alloc::string::String;
use alloc::vec::Vec;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::machine::{Machine, NumaNode};
use super::text::{parse_distances, parse_list, TextError};
use super::{Topology, TopologyError, LOCAL_DISTANCE, REMOTE_DISTANCE};
use lowwater_base::NodeId;

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

/// This machine's nodes, read once. Aborts if there is no memory for them.
///
/// A node that has processors but no memory is listed, but the [current](Topology::current) node of
/// a thread there is the nearest node that has memory, since its allocations go there.
///
/// ```no_run
/// use lowwater_lru_core::topology::{Sysfs, Topology};
///
/// let topology = Sysfs::detect()?;
/// println!("{} nodes, this thread is on node {}", topology.nodes(), topology.current());
/// # Ok::<(), lowwater_lru_core::topology::TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Sysfs {
    machine: Machine,
    /// The operating system's number of each node.
    os_nodes: Vec<usize>,
}

impl Sysfs {
    /// Reads this machine's nodes.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Read`] if the kernel was built without NUMA or `/sys` is not mounted;
    /// [`TopologyError::Malformed`] if a file is not in Linux's format.
    pub fn detect() -> Result<Self, TopologyError> {
        Self::read(Path::new("/sys/devices/system/node"))
    }

    /// Reads the nodes from a directory of the same format.
    ///
    /// # Errors
    ///
    /// [`TopologyError`], which contains the file and the reason.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        let os_nodes = list(&root.join("online"))?;
        if os_nodes.is_empty() {
            return Err(malformed(&root.join("online"), "", TextError::NoNode));
        }
        let with_memory = optional(&root.join("has_memory"), parse_list)?;
        let mut nodes: Vec<NumaNode> = Vec::with_capacity(os_nodes.len());
        for (index, number) in os_nodes.iter().enumerate() {
            let dir = root.join(std::format!("node{number}"));
            let cpus = list(&dir.join("cpulist"))?;
            if let Some(cpu) = cpus.iter().find(|cpu| nodes.iter().any(|node| node.cpus.contains(cpu))) {
                return Err(malformed(&dir.join("cpulist"), &std::format!("{cpu}"), TextError::OnTwoNodes));
            }
            let distances = optional(&dir.join("distance"), |text| parse_distances(text, os_nodes.len()))?;
            let distances = distances.unwrap_or_else(|| {
                (0..os_nodes.len()).map(|other| if other == index { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect()
            });
            let has_memory = with_memory.as_ref().is_none_or(|with| with.contains(number));
            nodes.push(NumaNode { cpus, distances, has_memory });
        }
        Ok(Self { machine: Machine::new(nodes), os_nodes })
    }

    /// Returns the operating system's number of this node, for calls such as `mbind`.
    ///
    /// # Panics
    ///
    /// If the node does not exist.
    pub fn os_node(&self, node: NodeId) -> usize {
        self.os_nodes[node.index()]
    }
}

fn list(file: &Path) -> Result<Vec<usize>, TopologyError> {
    let text = fs::read_to_string(file).map_err(|error| TopologyError::Read { file: file.into(), error })?;
    parse_list(&text).map_err(|reason| malformed(file, &text, reason))
}

/// Reads a file that not every kernel has.
fn optional<T>(file: &Path, parse: impl Fn(&str) -> Result<T, TextError>) -> Result<Option<T>, TopologyError> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text).map(Some).map_err(|reason| malformed(file, &text, reason)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TopologyError::Read { file: file.into(), error }),
    }
}

fn malformed(file: &Path, text: &str, reason: TextError) -> TopologyError {
    TopologyError::Malformed { file: file.into(), text: String::from(text.trim_ascii_end()), reason }
}

impl Topology for Sysfs {
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
