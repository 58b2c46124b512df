//! Walks during which children are removed, and walks with a callback that panics.
//!
//! No lock is held while a callback runs, so the callback may change the tree. docs/HAZARDS.md
//! quotes names of these tests.

use crate::hazard::within;
use crate::{builder, fixture, Fixture};
use lowwater_dcache_model::WalkControl;
use std::collections::HashSet;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Makes one of ten calls on the mount, while `name` of `/d` is visited.
fn anything(fixture: &Fixture, name: &str, n: usize) {
    let (mount, path) = (&*fixture.mount, format!("/d/{name}"));
    match n % 10 {
        // 3 and 4 free most dentries, so they do it in one of 40 calls only.
        0 => drop(mount.unlink(path.as_bytes())),
        1 => drop(mount.rename(path.as_bytes(), format!("/{name}").as_bytes())),
        2 => drop(mount.create(format!("/d/made{n}").as_bytes())),
        3 if n % 40 == 33 => _ = fixture.registry.drop_caches(),
        4 if n % 40 == 24 => _ = mount.shrink_tree(b"/").unwrap(),
        5 => {
            let watch = mount.watch(b"/d").unwrap();
            drop(watch.directory().child(b"0"));
        }
        6 => {
            let mut inner = mount.walk_positives(b"/d").unwrap();
            while inner.step(2, |_| WalkControl::Skip) {}
        }
        7 => _ = mount.invalidate(path.as_bytes()).unwrap(),
        8 => _ = mount.invalidate_negatives(b"/").unwrap(),
        _ => {
            let _ = (mount.readdir(b"/d"), mount.lookup(b"/d/never"), fixture.dcache.statistics(), mount.inodes());
        }
    }
}

#[test]
fn a_walks_callback_may_change_the_tree() {
    within("walks", || {
        let fixture = fixture(builder());
        fixture.fill();
        let mut calls = 0;
        for round in 0..6 {
            for n in 0..20 {
                drop(fixture.mount.create(format!("/d/{n}").as_bytes()));
            }
            let mut walk = match round % 2 {
                0 => fixture.mount.walk(b"/").unwrap(),
                _ => fixture.mount.walk_positives(b"/d").unwrap(),
            };
            let show = |step: &lowwater_dcache_model::WalkEntry<'_>| {
                calls += 1;
                let name = String::from_utf8(step.name().into()).unwrap();
                anything(&fixture, &name, calls);
                let _ = (step.kind(), step.depth(), format!("{step:?}"));
                WalkControl::Continue
            };
            let mut show = show;
            while walk.step(3, &mut show) {
                assert!(walk.visited() < 10_000, "it does not come to an end");
                let _ = walk.has_seen_rename();
            }
            assert!(!walk.step(usize::MAX, |_| panic!("it has ended")));
        }
        assert!(calls > 40, "{calls}");
        fixture.ends_well();
    });
}

#[test]
fn a_walk_continues_after_a_panic_in_its_callback() {
    within("walks that panic", || {
        let fixture = fixture(builder());
        fixture.fill();
        let (mut seen, mut panics) = (HashSet::new(), 0);
        let mut walk = fixture.mount.walk(b"/").unwrap();
        assert!(walk.step(0, |_| panic!("a step over no children visits none")));
        loop {
            let step = catch_unwind(AssertUnwindSafe(|| {
                walk.step(usize::MAX, |step| {
                    assert!(seen.insert(step.name()), "twice");
                    // The child that was visited during the panic is skipped.
                    assert!(step.name().len() != 2, "the callback's own fault");
                    WalkControl::Continue
                })
            }));
            match step {
                Ok(more) => break assert!(!more),
                Err(_) => panics += 1,
            }
        }
        assert_eq!(panics, 10, "of 10 to 19");
        assert!((0..20).all(|n| seen.contains(n.to_string().as_bytes())));
        drop(walk);
        let mut quits = fixture.mount.walk(b"/").unwrap();
        assert!(!quits.step(9, |_| WalkControl::Quit) && !quits.step(9, |_| panic!("it has ended")));
        drop(quits);
        fixture.ends_well();
    });
}
