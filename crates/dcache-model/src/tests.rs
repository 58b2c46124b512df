//! Tests of the whole cache. Numbers such as D14 are those of docs/INVARIANTS.md; a test has the
//! numbers that it checks in its name. Charges to memcgs have no number: `charges` and `model`
//! check them.

mod charges;
mod floods;
mod invalidation;
mod model;
mod rules;
mod threads;
mod walks;

use crate::backend::Memory;
use crate::{Dcache, Mount, NegativePolicy};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::Registry;
use std::sync::Arc;

/// A cache with one mount of a tree in memory.
pub(super) struct Fixture {
    // Dropped before the registry and the tree that it refers to.
    pub(super) mount: Mount,
    pub(super) dcache: Dcache,
    pub(super) memory: Arc<Memory>,
    pub(super) registry: Registry,
    pub(super) tree: MemcgTree,
}

impl Fixture {
    pub(super) fn new(buckets: usize, policy: impl NegativePolicy + 'static) -> Self {
        Self::build(Dcache::builder().buckets(buckets).policy(policy))
    }

    pub(super) fn build(builder: crate::Builder) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let dcache = builder.topology(Arc::new(Fixed::new(1))).build();
        let memory = Arc::new(Memory::new());
        let mount = dcache.mount(memory.clone(), &registry, tree.root()).unwrap();
        Self { mount, dcache, memory, registry, tree }
    }

    pub(super) fn missing(&self, path: &[u8]) {
        assert!(self.mount.lookup(path).unwrap().is_none(), "{} must not exist", path.escape_ascii());
    }

    /// Checks the invariants of a mount at rest, and that the counters are exact (D9).
    pub(super) fn assert_valid(&self) {
        let census = self.mount.assert_valid();
        let state = self.dcache.statistics();
        assert_eq!(
            (state.nr_dentry, state.nr_unused, state.nr_negative),
            (census.dentries, census.unused, census.negatives),
            "the counters are exact (D9)"
        );
    }
}
