//! The number of a NUMA node.

use core::fmt;

/// A NUMA node, counted from 0 without gaps (a machine's own numbers may have gaps; the topology knows them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "nid")]
pub struct NodeId(u16);

impl NodeId {
    /// The first node; the only one of most machines.
    pub const ZERO: Self = Self(0);

    /// Node number `n`.
    pub const fn new(n: u16) -> Self {
        Self(n)
    }

    /// The number, as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number, as it is stored.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
