//! Walks and watches with concurrent changes.
//!
//! A walk must visit each child that stays exactly once, however its siblings change.

use super::Fixture;
use crate::negative::{PerDirectory, Unbounded};
use crate::{Dcache, Kind, OnUnlink, WalkControl};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn path(n: usize) -> Vec<u8> {
    format!("/d/{n:04}").into_bytes()
}

/// The schedule for which the kernel patch (`sweep_negative`, see `children.rs`) was rejected: a
/// walk is at child C. C is removed; its next sibling N is a negative that loses its last user now,
/// so N is swept behind all other siblings. A walk that continues from C through N skips the
/// siblings in between.
///
/// Here every child but C and N stays and is visited once, wherever the walk is: near the ends of
/// the directory, within a page of 64 children, and between two pages.
#[test]
fn d14_viros_schedule_skips_nothing() {
    let fixture = Fixture::new(64, Unbounded);
    drop(fixture.mount.mkdir(b"/d").unwrap());
    for n in 0..100 {
        drop(fixture.mount.create(&path(n)).unwrap());
    }
    for stop in [1, 17, 40, 63, 64, 65, 98] {
        let mut seen = BTreeMap::new();
        let mut walk = fixture.mount.walk_positives(b"/d").unwrap();
        let mut show = |walk: &mut crate::Walk<'_>, n| {
            walk.step(n, |child| {
                *seen.entry(child.name()).or_insert(0) += 1;
                WalkControl::Continue
            })
        };
        show(&mut walk, stop);
        let (c, n) = (path(stop - 1), path(stop));
        let held = fixture.mount.lookup(&n).unwrap().unwrap();
        fixture.mount.unlink(&c).unwrap();
        drop(held);
        fixture.mount.unlink(&n).unwrap();
        while show(&mut walk, 1) {}
        for n in (0..100).filter(|&n| n != stop && n + 1 != stop) {
            assert_eq!(seen.get(format!("{n:04}").as_bytes()), Some(&1), "{n} stayed throughout");
        }
        drop(fixture.mount.create(&c).unwrap());
        drop(fixture.mount.create(&n).unwrap());
        fixture.assert_valid();
    }
}

#[test]
fn d14_a_rename_within_a_directory_hides_and_repeats_no_child() {
    // The free slots: those of the unlinked names, before the walk; or all after the last child.
    for (count, unlinked, renamed) in [(10, 2, 9), (100, 0, 0)] {
        let fixture = Fixture::build(Dcache::builder().buckets(64).policy(Unbounded).on_unlink(OnUnlink::Forget));
        drop(fixture.mount.mkdir(b"/d").unwrap());
        for n in 0..count {
            drop(fixture.mount.create(&path(n)).unwrap());
        }
        for n in 0..unlinked {
            fixture.mount.unlink(&path(n)).unwrap();
        }
        let mut seen = BTreeMap::new();
        let mut walk = fixture.mount.walk(b"/d").unwrap();
        let mut show = |walk: &mut crate::Walk<'_>, n| {
            walk.step(n, |child| {
                *seen.entry(child.name()).or_insert(0) += 1;
                WalkControl::Continue
            })
        };
        show(&mut walk, 4);
        fixture.mount.rename(&path(renamed), b"/d/new").unwrap();
        while show(&mut walk, 4) {}
        drop(walk);
        let times = |name: &[u8]| seen.get(name).copied().unwrap_or(0);
        assert_eq!(times(&path(renamed)[3..]) + times(b"new"), 1, "{renamed} of {count} stayed");
        fixture.assert_valid();
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Step(usize),
    Create(usize),
    Unlink(usize),
    Miss(usize),
    Shrink,
    MoveOut(usize),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Children below 30 stay, and are visited exactly once; the others are changed randomly
    /// between the steps.
    #[test]
    fn d14_a_walk_visits_each_stable_child_exactly_once(ops in prop::collection::vec(prop_oneof![
        3 => (1..20_usize).prop_map(Op::Step),
        3 => (30..200_usize).prop_map(Op::Create),
        3 => (30..200_usize).prop_map(Op::Unlink),
        3 => (200..300_usize).prop_map(Op::Miss),
        1 => Just(Op::Shrink),
        1 => (30..200_usize).prop_map(Op::MoveOut),
    ], 1..80)) {
        let fixture = Fixture::new(64, PerDirectory(20));
        drop(fixture.mount.mkdir(b"/d").unwrap());
        drop(fixture.mount.mkdir(b"/out").unwrap());
        // Each stable child comes after four others, so that every page has some of both kinds.
        let stay: Vec<_> = (0..30).flat_map(|n| {
            for m in 0..4 {
                drop(fixture.mount.create(&path(30 + n * 4 + m)).unwrap());
            }
            [fixture.mount.create(&path(n)).unwrap()]
        }).collect();
        let mut seen = BTreeMap::new();
        let mut walk = fixture.mount.walk(b"/d").unwrap();
        let mut show = |walk: &mut crate::Walk<'_>, n| walk.step(n, |child| {
            *seen.entry(child.name()).or_insert(0) += 1;
            WalkControl::Continue
        });
        for op in ops {
            match op {
                Op::Step(n) => { show(&mut walk, n); }
                Op::Create(n) => { let _ = fixture.mount.create(&path(n)); }
                Op::Unlink(n) => { let _ = fixture.mount.unlink(&path(n)); }
                Op::Miss(n) => fixture.missing(&path(n)),
                Op::Shrink => { fixture.registry.drop_caches(); }
                Op::MoveOut(n) => { let _ = fixture.mount.rename(&path(n), &[b"/out/", &path(n)[3..]].concat()); }
            }
        }
        while show(&mut walk, 7) {}
        drop(walk);
        for entry in &stay {
            prop_assert_eq!(seen.get(&entry.name()), Some(&1));
        }
        drop(stay);
        fixture.assert_valid();
    }
}

#[test]
fn d15_d16_a_walk_over_positives_does_not_look_at_negatives() {
    let fixture = Fixture::new(1 << 10, Unbounded);
    drop(fixture.mount.mkdir(b"/d").unwrap());
    for n in 0..20_000 {
        fixture.missing(format!("/d/missing-{n}").as_bytes());
        if n % 2000 == 0 {
            drop(fixture.mount.create(&path(n)).unwrap());
        }
    }
    let mut walk = fixture.mount.walk_positives(b"/d").unwrap();
    let mut shown = 0;
    walk.step(usize::MAX, |child| {
        assert_eq!(child.kind(), Some(Kind::File));
        shown += 1;
        WalkControl::Continue
    });
    assert_eq!((shown, walk.visited()), (10, 10));
    drop(walk);
    fixture.assert_valid();
}

#[test]
fn d17_after_a_watch_is_set_every_positive_child_is_marked() {
    let fixture = Fixture::new(1 << 10, Unbounded);
    drop(fixture.mount.mkdir(b"/d").unwrap());
    drop(fixture.mount.create(b"/elsewhere").unwrap());
    for n in 0..300 {
        drop(fixture.mount.create(&path(n)).unwrap());
        fixture.missing(&path(n + 300));
    }
    let mut watch = fixture.mount.begin_watch(b"/d").unwrap();
    assert!(watch.step());
    // Between the steps: a negative turns positive, a child is created, one is moved in, one is
    // removed and created again.
    drop(fixture.mount.create(&path(301)).unwrap());
    drop(fixture.mount.create(&path(700)).unwrap());
    fixture.mount.rename(b"/elsewhere", b"/d/0701").unwrap();
    fixture.mount.unlink(&path(0)).unwrap();
    drop(fixture.mount.create(&path(0)).unwrap());
    while watch.step() {}
    assert!(watch.visited() <= 310);
    for n in (0..300).chain([301, 700, 701]) {
        assert!(fixture.mount.lookup(&path(n)).unwrap().unwrap().is_watched(), "{n}");
    }
    fixture.mount.rename(&path(5), b"/away").unwrap();
    assert!(!fixture.mount.lookup(b"/away").unwrap().unwrap().is_watched(), "its directory is not watched");
    drop(watch);
    assert!(!fixture.mount.lookup(&path(1)).unwrap().unwrap().is_watched(), "the watch has ended");
    drop(fixture.mount.create(b"/d/later").unwrap());
    assert!(!fixture.mount.lookup(b"/d/later").unwrap().unwrap().is_watched());
    fixture.assert_valid();
}
