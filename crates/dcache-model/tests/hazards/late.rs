//! Mounts that are dropped, and used, when a thread's locals are gone.

use crate::hazard::at_the_end_of_a_thread;
use crate::{builder, stage};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::{Dcache, Flow};
use std::sync::Arc;

#[test]
fn a_mount_ends_late_in_a_threads_life() {
    at_the_end_of_a_thread("a mount that is used and dropped", || {
        let stage = stage(builder());
        stage.fill();
        let unused = (Dcache::builder(), Memory::new());
        Box::new(move || {
            let mount = &stage.mount;
            let entry = mount.lookup(b"/d/3").unwrap().unwrap();
            assert!(mount.stat(b"/d/no3").unwrap().is_none() && mount.stat(b"/d/none").unwrap().is_none());
            let watch = mount.watch(b"/d").unwrap();
            let mut walk = mount.walk(b"/").unwrap();
            walk.step(5, |_| Flow::Continue);
            mount.unlink(b"/d/3").unwrap();
            drop((entry, watch, walk));
            let other = stage.dcache.mount(Arc::new(Memory::new()), &stage.registry, stage.tree.root()).unwrap();
            other.create(b"/x").unwrap();
            drop((other, unused));
            stage.ends_well();
        })
    });
    at_the_end_of_a_thread("a mount that is only dropped", || {
        let stage = stage(builder());
        stage.fill();
        Box::new(move || drop(stage))
    });
}
