//! The key of a list: its group and its node.
//!
//! Two keys are equal if node and group address are equal; id and hash only select the slot at
//! which a probe begins. A change must not compare ids: a group of another tree may have the same
//! one.

use crate::memcg::MemcgId;
use crate::{Memcg, NodeId};

/// The group and the node of a list. The group's address identifies it among all groups, also those
/// of other trees. The start of a table probe is computed from the id instead, so that the order of
/// a table does not change from run to run as addresses do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) node: NodeId,
    /// The hash of the id.
    pub(crate) spread: u16,
    pub(crate) id: MemcgId,
    /// See [`Memcg::addr`].
    pub(crate) group: usize,
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.group) == (other.node, other.group)
    }
}

impl Key {
    #[inline]
    pub(crate) fn new(memcg: &Memcg, node: NodeId) -> Self {
        Self { node, spread: memcg.spread(), id: memcg.id(), group: memcg.addr() }
    }
}
