//! A dentry cache over a tree in memory, flooded with names that do not exist.
//!
//! About half of the lookups are of names that do not exist, as on a file server, so that negative
//! dentries fill the cache.
//!
//! Numbers such as D9 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that the names that are created are few, so that the tree behind the cache
//! does not grow for hours.

use std::sync::Arc;

use lowwater::topology::Fixed;
use lowwater::{MemcgTree, Registry};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::{Dcache, Kind, Mount};

use crate::pace::Random;
use crate::Step;

const DIRECTORIES: u64 = 20;
/// Files in each directory, named by number. At least as many as directories: a file that has the
/// number of a directory is looked up as a known one.
const FILES: u64 = 50;

pub struct Names {
    mount: Mount,
    dcache: Dcache,
    registry: Registry,
    _tree: MemcgTree,
}

impl Names {
    pub fn new() -> Self {
        let tree = MemcgTree::new(2);
        let registry = Registry::new(&tree, 1);
        let dcache = Dcache::builder().buckets(1 << 12).topology(Arc::new(Fixed::new(1))).build();
        let memory = Arc::new(Memory::new());
        for n in 0..DIRECTORIES * FILES {
            let path = format!("/{}/{}", n % DIRECTORIES, n / DIRECTORIES);
            memory.create_path(path.as_bytes(), Kind::File).expect("memory does not fail");
        }
        let mount = dcache.mount(memory, &registry, tree.root()).expect("the backend has a root");
        Self { mount, dcache, registry, _tree: tree }
    }

    /// Looks up names that exist and that do not; creates, moves, removes and lists names; at times
    /// drops all unused dentries.
    pub fn users(&self, seed: u64) -> Step<'_> {
        let mut random = Random::new(seed);
        Box::new(move || {
            let directory = random.of(DIRECTORIES);
            let mut path = |name: u64| format!("/{}/{name}", random.of(DIRECTORIES)).into_bytes();
            let (known, made, other) = (path(directory), path(1_000 + directory), path(2_000));
            match random.of(12) {
                0..=3 => assert!(self.mount.lookup(&known).expect("memory does not fail").is_some()),
                4..=7 => {
                    let missing = format!("/{directory}/missing{}", random.of(1 << 40));
                    assert!(self.mount.lookup(missing.as_bytes()).expect("memory does not fail").is_none());
                }
                // Each may fail, as the other worker changes the same names.
                8 => drop(self.mount.create(&made)),
                9 => drop(self.mount.rename(&made, &other)),
                10 => drop(self.mount.unlink(&other)),
                _ if random.of(500) == 0 => drop(self.registry.drop_caches()),
                _ => drop(self.mount.readdir(format!("/{directory}").as_bytes())),
            }
        })
    }

    /// Checks that all structures are consistent, and that the counters match the dentries (D9).
    pub fn check(&self) {
        let (census, state) = (self.mount.assert_valid(), self.dcache.statistics());
        assert_eq!(
            (state.nr_dentry, state.nr_unused, state.nr_negative),
            (census.dentries, census.unused, census.negatives),
            "the counters differ from the dentries"
        );
    }

    /// Drops all dentries but the root. Returns the bytes that the registry and the directories
    /// still take.
    pub fn empty(&self) -> u64 {
        while self.registry.drop_caches() > 0 {}
        while self.registry.sweep() != Default::default() {}
        let state = self.dcache.statistics();
        assert_eq!(state.nr_dentry, 1, "unused names that are not dropped");
        self.registry.footprint().get() + self.mount.assert_valid().children_bytes
    }
}
