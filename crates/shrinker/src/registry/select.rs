//! Selections: a group with its descendants, one node, one shrinker, some kinds of caches.
//!
//! [`Select::all`] selects everything, and each call restricts it further. A new restriction must
//! not restrict `all`.

use lowwater_lru_core::{Memcg, NodeId};

use super::caches::Caches;
use super::filter::ShrinkerFilter;
use crate::id::ShrinkerId;

/// The part of a registry's caches that a call applies to; everything, unless restricted.
///
/// ```
/// use lowwater_lru_core::{MemcgTree, NodeId};
/// use lowwater_shrinker::{Caches, Registry, Select};
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 2);
/// let tenant = tree.root().create("tenant").unwrap();
///
/// registry.drop_selected(&Select::all().memcg(&tenant).node(NodeId::new(1)).caches(Caches::OBJECTS));
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing by itself"]
#[doc(hidden)]
pub struct Select<'a> {
    pub(crate) memcg: Option<&'a Memcg>,
    pub(crate) node: Option<NodeId>,
    pub(crate) filter: ShrinkerFilter,
}

impl<'a> Select<'a> {
    /// Selects all groups, nodes and shrinkers of the registry.
    pub const fn all() -> Self {
        Self { memcg: None, node: None, filter: ShrinkerFilter::ALL }
    }

    /// Restricts the selection to this group and its descendants.
    pub const fn memcg(mut self, memcg: &'a Memcg) -> Self {
        self.memcg = Some(memcg);
        self
    }

    /// Restricts the selection to this node.
    pub const fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Restricts the selection to this shrinker.
    pub const fn shrinker(mut self, id: ShrinkerId) -> Self {
        self.filter = self.filter.shrinker(id);
        self
    }

    /// Restricts the selection to shrinkers of these kinds.
    pub const fn caches(mut self, caches: Caches) -> Self {
        self.filter = self.filter.caches(caches);
        self
    }

    /// Returns the selected ones of `nodes` nodes, or the one selected node, which may not exist: a
    /// pass then does nothing. An iterator, not a vector: reclaim runs because memory is short.
    pub(crate) fn nodes(&self, nodes: usize) -> impl Iterator<Item = NodeId> {
        let nodes = match self.node {
            Some(node) => node.index()..node.index() + 1,
            None => 0..nodes,
        };
        nodes.map(|n| NodeId::new(n as u16))
    }
}
