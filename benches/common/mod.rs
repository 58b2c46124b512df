//! What the benches of the dentry cache share.

#![allow(dead_code, reason = "each bench uses its own part")]

pub mod cpu;

use lowwater::{MemcgTree, Registry};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::negative::{NegativePolicy, PerDirectory, Probation, ThreeInARow, Unbounded};
use lowwater_dcache_model::{Dcache, Mount};
use std::sync::Arc;

/// A cache with one mount of a tree in memory.
pub struct Stage {
    // Before what it is registered at.
    pub mount: Mount,
    pub dcache: Dcache,
    pub registry: Registry,
    pub memory: Arc<Memory>,
    _tree: MemcgTree,
}

impl Stage {
    pub fn new(buckets: usize, policy: Box<dyn NegativePolicy>) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let dcache = Dcache::builder().buckets(buckets).boxed_policy(policy).build();
        let memory = Arc::new(Memory::new());
        let mount = dcache.mount(memory.clone(), &registry, tree.root()).expect("a tree in memory has a root");
        Self { mount, dcache, registry, memory, _tree: tree }
    }
}

/// Every policy, by its name.
pub fn policies() -> Vec<Box<dyn NegativePolicy>> {
    vec![Box::new(Unbounded), Box::new(ThreeInARow), Box::new(PerDirectory::default()), Box::new(Probation::default())]
}
