//! The key of a list: its group and its node.

use crate::memcg::MemcgId;
use crate::{Memcg, NodeId};

/// Whose list, and on which node. The group's address tells it from all others, those of other
/// trees too; where a table looks first is computed from its id, as addresses would make the order
/// of a table another one in each run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) node: NodeId,
    /// The id's hash.
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
