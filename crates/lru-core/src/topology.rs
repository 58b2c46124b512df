//! The NUMA nodes of the machine: their processors, their distances, and the node of the calling
//! thread.
//!
//! | source | where | `current()` |
//! |---|---|---|
//! | [`Fixed`] | everywhere; tests, kernels, model checks | the configured node |
//! | `Sysfs` | `std` on Linux, no C library; the choice of [`detect`] | `sched_getcpu` and a table, a few ns |
//! | `Hwloc` | feature `hwloc`: machines without sysfs, and synthetic ones | as `Sysfs` |
//!
//! Nodes are numbered from 0 without gaps ([`NodeId`]), whatever numbers the operating system uses.
//
// A change must ensure that a node number is below the number of nodes whatever the system
// reports.

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

/// The NUMA nodes of a machine, real or synthetic. They do not change during the topology's life.
///
/// Any thread may call the methods, also one that holds locks of this library. So no method may
/// block, panic for a node that exists, or use an object that uses the topology. A topology that
/// returns wrong values can cause memory on the wrong node, counts that omit a node, or an error
/// where node counts are compared. No topology can cause undefined behaviour.
pub trait Topology: Send + Sync {
    /// Returns the number of nodes, at least 1. Every [`NodeId`] of this topology has a lower
    /// index.
    #[doc(alias = "nr_node_ids")]
    fn nodes(&self) -> usize;

    /// Returns the node on which the calling thread runs now; the scheduler may move the thread at
    /// any time. Costs a few nanoseconds.
    #[doc(alias = "numa_node_id")]
    fn current(&self) -> NodeId;

    /// Returns the operating system's numbers of the node's processors, ascending. Empty for a
    /// memory-only node, and where the processors are unknown.
    ///
    /// # Panics
    ///
    /// If the node does not exist.
    #[doc(alias = "cpumask_of_node")]
    fn cpus_of(&self, node: NodeId) -> &[usize];

    /// Returns the distance from the processors of `a` to the memory of `b`, in the units of ACPI's
    /// SLIT: 10 is local, 20 is twice as far.
    ///
    /// # Panics
    ///
    /// If the node does not exist.
    #[doc(alias = "node_distance")]
    fn distance(&self, a: NodeId, b: NodeId) -> u32;
}

/// The distance of a node from itself.
const LOCAL_DISTANCE: u32 = 10;
/// The distance of another node where the system reports none.
const REMOTE_DISTANCE: u32 = 20;
