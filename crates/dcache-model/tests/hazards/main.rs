//! Misuse of public types: leaked, dropped late, with extreme numbers, called from their own
//! callbacks. docs/HAZARDS.md lists the cases tested for each type, by the names of the tests.
//!
//! Each file of this folder has one kind of misuse; the fixture below is a cache with files and
//! missing names, and `ends_well` checks that nothing is left locked.
//!
//! A change must ensure that a test ends with `ends_well` if its cache can still be used.

#![forbid(unsafe_code)]
#![cfg(not(lowwater_loom))]

mod ends;
#[path = "../../../base/tests/hazard/mod.rs"]
mod hazard;
mod late;
mod leaks;
mod mixed;
mod policies;
mod walks;

use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::{Builder, Dcache, Mount};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::Registry;
use std::sync::Arc;

/// The mount is dropped first, before the registry and the tree.
struct Fixture {
    mount: Arc<Mount>,
    dcache: Dcache,
    registry: Registry,
    tree: MemcgTree,
}

fn builder() -> Builder {
    Dcache::builder().buckets(64).topology(Arc::new(Fixed::new(1)))
}

fn fixture(builder: Builder) -> Fixture {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let dcache = builder.build();
    let mount = Arc::new(dcache.mount(Arc::new(Memory::new()), &registry, tree.root()).unwrap());
    Fixture { mount, dcache, registry, tree }
}

impl Fixture {
    /// Creates `/d/0` to `/d/19`, and looks up as many missing names.
    fn fill(&self) {
        self.mount.mkdir(b"/d").unwrap();
        for n in 0..20 {
            self.mount.create(format!("/d/{n}").as_bytes()).unwrap();
            assert!(self.mount.lookup(format!("/d/no{n}").as_bytes()).unwrap().is_none());
        }
    }

    /// Checks that no lock is held and that every unused dentry is freed.
    fn ends_well(self) {
        let mount = &self.mount;
        mount.mkdir(b"/well").unwrap();
        for n in 0..20 {
            let [path, other] = ["p", "q"].map(|name| format!("/well/{name}{n}"));
            mount.create(path.as_bytes()).unwrap();
            mount.rename(path.as_bytes(), other.as_bytes()).unwrap();
            assert!(mount.lookup(path.as_bytes()).unwrap().is_none());
            mount.unlink(other.as_bytes()).unwrap();
        }
        mount.rmdir(b"/well").unwrap();
        mount.assert_valid();
        self.registry.drop_caches();
        let Self { mount, dcache, .. } = self;
        drop(Arc::into_inner(mount).expect("the last handle"));
        assert_eq!((dcache.statistics().nr_dentry, dcache.statistics().nr_negative), (0, 0));
    }
}
