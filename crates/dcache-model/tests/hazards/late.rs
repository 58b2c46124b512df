//! Mounts that are used and dropped after a thread's locals are destroyed.
//!
//! The library's thread-locals are gone then, so every access to them must have a fallback.
//! docs/HAZARDS.md quotes the test's name.

use crate::hazard::at_the_end_of_a_thread;
use crate::{builder, fixture};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::{Dcache, WalkControl};
use std::sync::Arc;

#[test]
fn a_mount_ends_late_in_a_threads_life() {
    at_the_end_of_a_thread("a mount that is used and dropped", || {
        let fixture = fixture(builder());
        fixture.fill();
        let unused = (Dcache::builder(), Memory::new());
        Box::new(move || {
            let mount = &fixture.mount;
            let entry = mount.lookup(b"/d/3").unwrap().unwrap();
            assert!(mount.stat(b"/d/no3").unwrap().is_none() && mount.stat(b"/d/none").unwrap().is_none());
            let watch = mount.watch(b"/d").unwrap();
            let mut walk = mount.walk(b"/").unwrap();
            walk.step(5, |_| WalkControl::Continue);
            mount.unlink(b"/d/3").unwrap();
            drop((entry, watch, walk));
            let other = fixture.dcache.mount(Arc::new(Memory::new()), &fixture.registry, fixture.tree.root()).unwrap();
            other.create(b"/x").unwrap();
            drop((other, unused));
            fixture.ends_well();
        })
    });
    at_the_end_of_a_thread("a mount that is only dropped", || {
        let fixture = fixture(builder());
        fixture.fill();
        Box::new(move || drop(fixture))
    });
}
