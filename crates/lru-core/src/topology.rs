//! Which NUMA node memory and threads are on: asked, not guessed.
//!
//! | source | where | `current()` |
//! |---|---|---|
//! | [`Fixed`] | everywhere; tests, kernels, model checks | what it was told |
//! | `Sysfs` | `std` on Linux, no C library; what [`detect`] takes | `sched_getcpu` and a table, a few ns |
//! | `Hwloc` | feature `hwloc`: what sysfs does not tell, and synthetic machines | the same |
//!
//! Nodes are counted from 0 without gaps here ([`NodeId`]), whatever numbers the machine gives them.

mod detect;
#[cfg(feature = "std")]
mod error;
mod fixed;
#[cfg(feature = "hwloc")]
mod hwloc;
#[cfg(any(feature = "hwloc", all(feature = "std", target_os = "linux")))]
mod machine;
#[cfg(all(feature = "std", target_os = "linux"))]
mod sysfs;
mod text;

pub use self::detect::detect;
#[cfg(feature = "std")]
pub use self::error::TopologyError;
pub use self::fixed::Fixed;
#[cfg(feature = "hwloc")]
pub use self::hwloc::Hwloc;
#[cfg(all(feature = "std", target_os = "linux"))]
pub use self::sysfs::Sysfs;
pub use self::text::{parse_distances, parse_list, TextError, LIST_END};

use lowwater_base::NodeId;

/// The NUMA nodes of a machine, real or not. They do not change while it exists.
///
/// Asked by any thread, also by those that hold locks of the library: no method may panic, wait, or use what asks it. What a
/// topology that answers otherwise leads to is memory on the wrong node, counts that lack a node, or an error where the number of nodes
/// is compared; nothing that is not safe.
pub trait Topology: Send + Sync {
    /// Number of nodes, at least 1. Every [`NodeId`] of this topology has a lower index.
    #[doc(alias = "nr_node_ids")]
    fn nodes(&self) -> usize;

    /// The node on which the calling thread runs right now; it may be moved at any time. Costs a few nanoseconds.
    #[doc(alias = "numa_node_id")]
    fn current(&self) -> NodeId;

    /// The operating system's numbers of the node's processors, ascending; none for a node of memory only, and where nobody
    /// knows.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    #[doc(alias = "cpumask_of_node")]
    fn cpus_of(&self, node: NodeId) -> &[usize];

    /// How far the memory of `b` is from the processors of `a`, in the units of ACPI's SLIT: 10 is local, 20 is twice that.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    #[doc(alias = "node_distance")]
    fn distance(&self, a: NodeId, b: NodeId) -> u32;
}

/// The distance of a node from itself.
const LOCAL_DISTANCE: u32 = 10;
/// The distance of another node where nobody says more.
const REMOTE_DISTANCE: u32 = 20;
