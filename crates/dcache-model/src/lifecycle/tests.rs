//! A kill that is interrupted between the removal of the child and the last put of its parent.

use crate::negative::Unbounded;
use crate::qstr::Name;
use crate::stats::CounterDelta;
use crate::tests::Fixture;
use crate::Dcache;
use lowwater_lru_core::ByteSize;
use std::sync::Arc;

#[test]
fn d22_a_mount_is_dropped_beside_a_kill_and_leaves_no_dentry_and_no_charge() {
    let fixture = Fixture::build(Dcache::builder().buckets(16).policy(Unbounded).charge(true));
    drop(fixture.mount.mkdir(b"/d").unwrap());
    fixture.missing(b"/d/victim");
    // A thread that trims a chain holds the cache and a handle of the superblock.
    let (core, sb) = (Arc::clone(&fixture.mount.core), Arc::clone(&fixture.mount.sb));
    let victim = {
        let dir = fixture.mount.lookup(b"/d").unwrap().unwrap();
        core.d_lookup(&core.qstr(&dir.dentry, Name::checked(b"victim"))).unwrap()
    };
    assert!(victim.count.put() && victim.count.kill(), "the trim is its killer");
    let mut delta = CounterDelta::default();
    let parent = core.kill(&sb, &victim, victim.lock(), &mut delta);

    let Fixture { mount, dcache, tree, .. } = fixture;
    drop(mount);
    tree.drain_stock();
    assert_eq!(tree.root().usage(), ByteSize::ZERO, "the drop returns when every charge has ended");

    if let Some(parent) = parent {
        core.last_put(&sb, &parent);
    }
    core.counters.add(victim.addr(), delta);
    let state = dcache.statistics();
    assert_eq!((state.nr_dentry, state.nr_unused), (0, 0), "the drop has freed the directory and the root");
}
