//! The number of a NUMA node.
//!
//! A type of its own, so that a processor number or the operating system's node number is not used
//! as an index of a table of nodes.
//!
//! A change must keep it the size of the number: it is stored in every list's key.

use core::fmt;

/// A NUMA node, numbered from 0 without gaps (the operating system's numbers may have gaps; the
/// topology maps them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "nid")]
pub struct NodeId(u16);

impl NodeId {
    /// The first node; the only one of most machines.
    pub const ZERO: Self = Self(0);

    /// Returns the id of node number `n`, which need not exist on this machine.
    pub const fn new(n: u16) -> Self {
        Self(n)
    }

    /// Returns the number as a `usize`, to index a table with one element for each node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number in the type in which it is stored and displayed.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
