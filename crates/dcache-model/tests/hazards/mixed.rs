//! Groups of another tree, and one backend for several mounts.
//!
//! Foreign parts may be useless, but never unsound.
//!
//! A change must ensure that every argument of another tree or mount gets its case.
//! docs/HAZARDS.md quotes names of these tests.

use crate::hazard::within;
use crate::{builder, fixture};
use lowwater_dcache_model::backend::Memory;
use lowwater_lru_core::MemcgTree;
use std::sync::Arc;

/// The case of a foreign tree in [`Dcache::mount`](lowwater_dcache_model::Dcache::mount).
#[test]
fn names_of_a_group_of_another_tree_stay_until_they_are_freed_by_hand() {
    within("strangers", || {
        let fixture = fixture(builder().charge(true));
        let other = MemcgTree::new(0);
        let stranger = other.root().create("stranger").unwrap();
        fixture.fill();
        for n in 0..10 {
            let path = format!("/d/stranger{n}");
            assert!(fixture.mount.lookup_for(path.as_bytes(), &stranger).unwrap().is_none());
        }
        let foreign = fixture.dcache.mount(Arc::new(Memory::new()), &fixture.registry, &stranger).unwrap();
        (0..10).for_each(|n| drop(foreign.create(format!("/{n}").as_bytes()).unwrap()));
        while fixture.registry.drop_caches() > 0 {}
        assert_eq!(fixture.dcache.statistics().nr_negative, 10, "reclaim frees only names of its own tree");
        assert!(fixture.dcache.statistics().nr_dentry >= 22);
        foreign.assert_valid();
        // The memcg goes offline, and its tree is dropped.
        stranger.offline().unwrap();
        drop(other);
        assert!(foreign.lookup(b"/3").unwrap().is_some());
        assert_eq!(foreign.shrink_tree(b"/").unwrap(), 10);
        fixture.mount.shrink_tree(b"/").unwrap();
        drop(foreign);
        drop(stranger);
        fixture.ends_well();
    });
}

#[test]
fn two_mounts_of_one_backend_may_disagree() {
    within("two mounts", || {
        let fixture = fixture(builder());
        let backend = Arc::new(Memory::new());
        let [one, two] =
            [0, 1].map(|_| fixture.dcache.mount(backend.clone(), &fixture.registry, fixture.tree.root()).unwrap());
        assert!(two.lookup(b"/a").unwrap().is_none());
        drop(one.create(b"/a").unwrap());
        let file = two.create(b"/file").unwrap();
        // `two` has cached that `/a` is missing, and `one` has created it: each change through
        // `two` fails, and none leaks a reference.
        assert!(two.lookup(b"/a").unwrap().is_none() && two.create(b"/a").is_err());
        assert!(two.mkdir(b"/a").is_err() && two.link(b"/file", b"/a").is_err());
        drop(file);
        assert!(two.rename(b"/file", b"/a/b").is_err());
        two.invalidate_negatives(b"/").unwrap();
        assert!(two.lookup(b"/a").unwrap().is_some());
        one.unlink(b"/a").unwrap();
        assert!(two.unlink(b"/a").is_err() || two.lookup(b"/a").unwrap().is_none());
        one.assert_valid();
        two.assert_valid();
        for mount in [&one, &two] {
            mount.shrink_tree(b"/").unwrap();
        }
        assert_eq!(fixture.dcache.statistics().nr_dentry, 3, "no name is in use, so the roots are left");
        drop((one, two));
        fixture.ends_well();
    });
}
