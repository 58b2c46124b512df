//! Less than everything: some groups, one node, one shrinker, some kinds of caches.

use bitflags::bitflags;
use lowwater_lru_core::{Memcg, NodeId};

use super::{drop_all, Inner, Registry};
use crate::control::Reclaim;
use crate::id::ShrinkerId;
use crate::pass::{Pass, Protect};
use crate::work::{Progress, Work};

bitflags! {
    /// What a shrinker's objects are, with the numbers of `/proc/sys/vm/drop_caches`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Caches: u8 {
        /// Data that can be read or made again: pages, values.
        #[doc(alias = "pagecache")]
        const DATA = 1;
        /// Objects that describe: names, handles, metadata. What a shrinker has if it does not say otherwise.
        #[doc(alias = "slab")]
        const OBJECTS = 2;
    }
}

/// Which part of a registry's caches is meant; all of it, until less is said.
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
pub struct Select<'a> {
    pub(crate) memcg: Option<&'a Memcg>,
    pub(crate) node: Option<NodeId>,
    pub(crate) only: Only,
}

/// Which shrinkers are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Only {
    shrinker: Option<u32>,
    caches: Caches,
}

impl<'a> Select<'a> {
    /// Everything.
    pub const fn all() -> Self {
        Self { memcg: None, node: None, only: Only::ALL }
    }

    /// Only this group and those below it.
    pub const fn memcg(mut self, memcg: &'a Memcg) -> Self {
        self.memcg = Some(memcg);
        self
    }

    /// Only this node.
    pub const fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only this shrinker.
    pub const fn shrinker(mut self, id: ShrinkerId) -> Self {
        self.only.shrinker = Some(id.get());
        self
    }

    /// Only shrinkers of these kinds.
    pub const fn caches(mut self, caches: Caches) -> Self {
        self.only.caches = caches;
        self
    }

    /// An iterator, and not a list: reclaim asks, which runs because there is no memory.
    pub(crate) fn nodes(&self, registry: &Registry) -> impl Iterator<Item = NodeId> {
        let nodes = match self.node {
            Some(node) => node.index()..node.index() + 1,
            None => 0..registry.nodes(),
        };
        nodes.map(|n| NodeId::new(n as u16))
    }
}

impl Only {
    pub(crate) const ALL: Self = Self { shrinker: None, caches: Caches::all() };

    /// Are all of them?
    pub(crate) const fn is_all(&self) -> bool {
        self.shrinker.is_none() && self.caches.is_all()
    }

    /// Is the shrinker under this id meant?
    pub(crate) fn admits(&self, inner: &Inner, id: u32) -> bool {
        self.shrinker.is_none_or(|only| only == id)
            && (self.caches.is_all() || inner.options(id).is_some_and(|options| self.caches.intersects(options.caches)))
    }
}

impl Registry {
    /// As [`drop_caches`](Self::drop_caches), for a part. O(live groups in it).
    #[doc(alias = "drop_slab_node")]
    pub fn drop_selected(&self, select: &Select<'_>) -> u64 {
        let Some(_scope) = self.inner.scopes.enter_first() else { return 0 };
        let root = select.memcg.unwrap_or(&self.inner.root);
        drop_all(self.inner.map.ends(), || {
            select.nodes(self).fold(0, |freed: u64, node| {
                let (flags, protect, only) = (Reclaim::KSWAPD, Protect::Nothing, select.only);
                let pass = Pass { inner: &self.inner, root, node, priority: 0, flags, protect, only };
                freed.saturating_add(pass.run(&mut Work::unlimited()).freed)
            })
        })
    }

    /// As [`shrink`](Self::shrink), for a part: one pass over each node that is selected.
    pub fn shrink_selected(&self, select: &Select<'_>, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        let Some(_scope) = self.inner.scopes.enter_first() else { return Progress::default() };
        if !flags.contains(Reclaim::BACKGROUND) {
            self.inner.note_foreground();
        }
        let root = select.memcg.unwrap_or(&self.inner.root);
        let mut progress = Progress::default();
        for node in select.nodes(self) {
            let (inner, protect, only) = (&self.inner, Protect::Limits, select.only);
            progress += Pass { inner, root, node, priority, flags, protect, only }.run(work);
        }
        progress
    }
}
