//! Fixtures that the benches of the dentry cache share.
//!
//! One kind of tree and one list of policies, so that the figures of different benches are
//! comparable.
//!
//! A change of either changes the figures of all these benches: measure those of docs/MEASURED.md
//! again.

#![allow(dead_code, reason = "each bench uses its own part")]

pub mod cpu;

use lowwater::topology::{Fixed, Topology};
use lowwater::{ByteSize, MemcgTree, Registry};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::negative::{NegativePolicy, PerDirectory, Probation, ThreeInARow, Unbounded};
use lowwater_dcache_model::{Builder, Dcache, Mount};
use std::sync::Arc;

/// A cache with one mount of a tree in memory.
pub struct Fixture {
    // Dropped first: it refers to the registry and the tree.
    pub mount: Mount,
    pub dcache: Dcache,
    pub registry: Registry,
    pub memory: Arc<Memory>,
    pub tree: MemcgTree,
}

impl Fixture {
    pub fn new(buckets: usize, policy: Box<dyn NegativePolicy>) -> Self {
        Self::build(Dcache::builder().buckets(buckets).boxed_policy(policy), 1, None)
    }

    /// Returns a cache whose dentries are on the current node of `topology`.
    pub fn on_nodes(buckets: usize, policy: Box<dyn NegativePolicy>, topology: &Arc<Fixed>) -> Self {
        let builder = Dcache::builder().buckets(buckets).boxed_policy(policy);
        Self::build(builder.topology(Arc::clone(topology) as _), topology.nodes(), None)
    }

    /// Returns a cache that charges names to the root memcg, whose `max` is `room`.
    pub fn charged(buckets: usize, policy: Box<dyn NegativePolicy>, room: ByteSize) -> Self {
        Self::build(Dcache::builder().buckets(buckets).boxed_policy(policy).charge(true), 1, Some(room))
    }

    fn build(builder: Builder, nodes: usize, room: Option<ByteSize>) -> Self {
        let tree = MemcgTree::default();
        if let Some(room) = room {
            tree.root().set_max(room);
        }
        let registry = Registry::new(&tree, nodes);
        let dcache = builder.build();
        let memory = Arc::new(Memory::new());
        let mount = dcache.mount(memory.clone(), &registry, tree.root()).expect("a tree in memory has a root");
        Self { mount, dcache, registry, memory, tree }
    }
}

/// Returns every policy.
pub fn policies() -> Vec<Box<dyn NegativePolicy>> {
    vec![Box::new(Unbounded), Box::new(ThreeInARow), Box::new(PerDirectory::default()), Box::new(Probation::default())]
}

/// Returns whether the command line asks for a quick run, which has fewer rounds and names.
pub fn is_quick() -> bool {
    std::env::args().any(|arg| arg == "--quick")
}
