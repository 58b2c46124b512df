//! Leaked references keep their names in memory, and block no other call.
//!
//! `mem::forget` is safe code, so no guarantee may depend on a drop.
//!
//! A change must ensure that other names are used after the leak, and not only before it.
//! docs/HAZARDS.md quotes the test's name, as does the call of `in_a_process`.

use crate::hazard::{in_a_process, within};
use crate::{builder, fixture};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::{Dcache, Kind, WalkControl};
use std::mem::forget;
use std::sync::Arc;

#[test]
fn a_leaked_reference_affects_only_its_own_names() {
    in_a_process("leaks::a_leaked_reference_affects_only_its_own_names", || {
        within("mounts beside leaks", || {
            let fixture = fixture(builder());
            fixture.fill();
            let mount = &fixture.mount;
            forget(mount.lookup(b"/d/3").unwrap().unwrap());
            forget(mount.watch(b"/d").unwrap());
            forget(mount.begin_watch(b"/").unwrap());
            let mut walk = mount.walk(b"/").unwrap();
            walk.step(3, |_| WalkControl::Continue);
            forget(walk);
            forget((Dcache::builder(), Memory::new(), fixture.dcache.clone()));
            forget(mount.create(b"/d/new").unwrap());

            // A name in use stays in memory, but is removed from its directory.
            mount.unlink(b"/d/3").unwrap();
            mount.rename(b"/d/4", b"/d/3").unwrap();
            assert_eq!(mount.lookup(b"/d/3").unwrap().unwrap().kind(), Kind::File);
            assert!(mount.rmdir(b"/d").is_err());
            mount.shrink_tree(b"/").unwrap();
            fixture.registry.drop_caches();
            let before = fixture.dcache.statistics();
            assert!(before.nr_dentry > 3 && before.nr_negative == 0, "{before:?}");

            let crate::Fixture { mount, dcache, registry, tree } = fixture;
            drop(mount);
            let left = dcache.statistics().nr_dentry;
            assert!(left >= 3, "names in use, and the directories above them: {left}");
            // The next mount reuses the number of the dropped one, and has names of its own.
            for round in 0..3 {
                let next = dcache.mount(Arc::new(Memory::new()), &registry, tree.root()).unwrap();
                assert!(next.lookup(b"/d").unwrap().is_none());
                next.mkdir(b"/d").unwrap();
                next.create(b"/d/3").unwrap();
                assert!(!next.lookup(b"/d/3").unwrap().unwrap().is_watched());
                for n in 0..500 {
                    assert!(next.lookup(format!("/d/no{n}").as_bytes()).unwrap().is_none());
                }
                next.assert_valid();
                registry.drop_caches();
                if round == 1 {
                    forget(next);
                }
            }
            assert!(dcache.statistics().nr_dentry > left, "a mount that is leaked is not unmounted");
            registry.drop_caches();
        });
    });
}
