//! The victims of each policy, case by case.
//!
//! Each test builds a small cache, adds negatives, and checks which are left, or how many.
//!
//! A new policy gets a case here with its victims written out.

use super::trim::TRIM_MAX;
use super::*;
use crate::backend::Memory;
use crate::children::Children;
use crate::dentry::Dentry;
use crate::qstr::Name;
use crate::tests::Fixture;
use crate::Mount;
use lowwater_base::sync::Arc;
use std::cell::Cell;

/// Returns the dentry of a name below the root, with one more user, and without marking it as
/// referenced.
fn hold(mount: &Mount, name: &str) -> Option<Arc<Dentry>> {
    mount.core.d_lookup(&mount.core.qstr(mount.sb.root(), Name::checked(name.as_bytes())))
}

fn is_cached(mount: &Mount, name: &str) -> bool {
    let found = hold(mount, name);
    if let Some(found) = &found {
        found.count.put();
    }
    found.is_some()
}

fn cached<'a>(mount: &Mount, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| is_cached(mount, name)).collect()
}

fn missing(fixture: &Fixture, names: &[&str]) {
    for name in names {
        fixture.missing(format!("/{name}").as_bytes());
    }
}

/// Returns the number of negatives in a directory below the root.
fn negatives(fixture: &Fixture, name: &str) -> usize {
    let dir = hold(&fixture.mount, name).unwrap();
    dir.count.put();
    let negatives = dir.dir().unwrap().children.lock().negatives();
    negatives
}

#[test]
fn policies_say_their_name_and_bound() {
    let inputs = BoundInputs { buckets: 64, positives: 10, directories: 7 };
    let probation = Probation { positives_per_probation: 1, ..Probation::default() };
    let policies: [(&dyn NegativePolicy, _, _); 4] = [
        (&Unbounded, "unbounded", None),
        (&ThreeInARow, "three-in-a-row", Some(3 * (64 + 10))),
        (&PerDirectory(100), "per-directory", Some(700)),
        (&probation, "default", Some(10 + 10 + 144)),
    ];
    for (policy, name, bound) in policies {
        assert_eq!((policy.name(), policy.bound(inputs)), (name, bound));
    }
    assert_eq!(PerDirectory(usize::MAX).bound(inputs), Some(u64::MAX), "no overflow");
}

#[test]
fn d18_a_row_ends_at_a_positive_a_referenced_and_a_used_dentry() {
    for what in ["positive", "asked for again", "in use"] {
        // One chain: each new name is inserted at its head.
        let fixture = Fixture::new(1, ThreeInARow);
        missing(&fixture, &["old-0", "old-1"]);
        let held = match what {
            "positive" => {
                drop(fixture.mount.create(b"/between").unwrap());
                None
            }
            "asked for again" => {
                missing(&fixture, &["between", "between"]);
                None
            }
            _ => {
                missing(&fixture, &["between"]);
                hold(&fixture.mount, "between")
            }
        };
        let names = ["old-0", "old-1", "between", "new-0", "new-1", "new-2", "new-3"];
        missing(&fixture, &names[3..6]);
        assert_eq!(cached(&fixture.mount, &names), names[..6], "a dentry that is {what} ends a row");
        missing(&fixture, &["new-3"]);
        let left = ["old-0", "old-1", "between", "new-1", "new-2", "new-3"];
        assert_eq!(cached(&fixture.mount, &names), left, "the fourth of a row is killed");
        if let Some(held) = held {
            fixture.mount.core.put(&fixture.mount.sb, &held);
        }
        fixture.assert_valid();
    }
}

#[test]
fn d19_a_row_includes_names_of_all_mounts() {
    let fixture = Fixture::new(1, ThreeInARow);
    let other = fixture.dcache.mount(Arc::new(Memory::new()), &fixture.registry, fixture.tree.root()).unwrap();
    let counts = || {
        [&fixture.mount, &other].map(|mount| {
            let mine = mount.sb.dentries.count_one(fixture.tree.root(), lowwater_lru_core::NodeId::ZERO);
            (mine, mount.assert_valid().negatives)
        })
    };
    for name in [b"/a", b"/b", b"/c"] {
        assert!(other.lookup(name).unwrap().is_none());
    }
    assert_eq!(counts(), [(0, 0), (3, 3)]);
    missing(&fixture, &["a"]);
    assert_eq!(counts(), [(1, 1), (2, 2)], "the oldest of the row is killed, though it belongs to another mount");
    missing(&fixture, &["b", "c", "d"]);
    assert_eq!(counts(), [(3, 3), (0, 0)]);
    assert_eq!(fixture.dcache.statistics().nr_negative, 3);
}

#[test]
fn d24_a_full_directory_spares_a_referenced_negative_once() {
    let fixture = Fixture::new(64, PerDirectory(3));
    let names = ["a", "b", "c", "d", "e", "f"];
    missing(&fixture, &["a", "a", "b", "c", "d"]);
    assert_eq!(
        cached(&fixture.mount, &names),
        ["a", "c", "d"],
        "the new one stays, and the next unreferenced one is killed"
    );
    missing(&fixture, &["c", "d", "a", "e"]);
    assert_eq!(cached(&fixture.mount, &names), ["a", "c", "d"], "all others were referenced: the new one is killed");
    missing(&fixture, &["f"]);
    assert_eq!(cached(&fixture.mount, &names).len(), 3);
    assert!(is_cached(&fixture.mount, "f"), "the next one evicts another: a second chance counts once");
    assert_eq!(fixture.dcache.statistics().promoted, 0, "there is no probation");
    fixture.assert_valid();
}

#[test]
fn d24_another_groups_names_in_a_full_directory_are_spared() {
    let fixture = Fixture::new(64, PerDirectory(4));
    let noisy = fixture.tree.root().create("noisy").unwrap();
    missing(&fixture, &["a", "b", "c"]);
    for n in 0..50 {
        let name = format!("noise-{n}");
        assert!(fixture.mount.lookup_for(format!("/{name}").as_bytes(), &noisy).unwrap().is_none());
        assert!(is_cached(&fixture.mount, &name), "an older one of the same group is killed");
    }
    assert_eq!(cached(&fixture.mount, &["a", "b", "c"]), ["a", "b", "c"]);
    assert_eq!(fixture.dcache.statistics().nr_negative, 4);
    fixture.assert_valid();
}

/// After `looks` calls the share function returns more room, as if other threads had trimmed
/// between two scans.
#[test]
fn d24_a_directory_trim_ends_when_other_threads_have_trimmed() {
    let fixture = Fixture::new(64, Unbounded);
    missing(&fixture, &["a", "a", "b", "c", "d"]);
    let new = hold(&fixture.mount, "d").unwrap();
    new.count.put();
    let negative = NewNegative { core: &fixture.mount.core, sb: &fixture.mount.sb, dentry: &new };
    let trim = |over: u64, looks: u32| {
        let left = Cell::new(looks);
        let share = |_: &Children<Arc<Dentry>>| {
            let room = if left.get() == 0 { usize::MAX } else { 0 };
            left.set(left.get().saturating_sub(1));
            (0, room)
        };
        negative.trim_children(fixture.mount.sb.root(), share, over, |_| ())
    };
    assert_eq!(trim(2, 0), None, "there is room");
    assert_eq!(trim(2, 1), None, "there is room now, though no victim was killed: the new one may stay");
    assert_eq!(trim(2, 1), Some(1), "one was killed before there was room");
    assert_eq!(trim(2, 9), Some(2));
    assert_eq!(cached(&fixture.mount, &["a", "b", "c", "d"]), ["a"]);
    drop(new);
    fixture.assert_valid();
}

/// Trims that found their victims in use leave an excess in a directory.
#[test]
fn d24_an_excess_in_a_directory_shrinks_with_each_new_name() {
    const LIMIT: u64 = 3;
    let fixture = Fixture::new(64, Unbounded);
    (0..20).for_each(|n| fixture.missing(format!("/old-{n}").as_bytes()));
    let left = || fixture.dcache.statistics().nr_negative;
    for n in 0..30 {
        let (before, name) = (left(), format!("new-{n}"));
        missing(&fixture, &[&name]);
        let new = hold(&fixture.mount, &name).unwrap();
        new.count.put();
        NewNegative { core: &fixture.mount.core, sb: &fixture.mount.sb, dentry: &new }.trim_directory(LIMIT as usize);
        assert_eq!(left(), LIMIT.max(before - 1), "after {before}");
        assert!(is_cached(&fixture.mount, &name), "older ones are killed");
    }
    fixture.assert_valid();
}

#[test]
fn d24_the_default_trims_to_its_room_and_no_further() {
    let policy = Probation { positives_per_probation: 1000, positives_per_protected: 1000, ..Probation::default() };
    // All in one directory, which is over its share; or each in its own, and none over its share.
    for directories in [1, 1000] {
        let fixture = Fixture::new(64, policy);
        for n in 0..500_u64 {
            let dir = n % directories;
            if n < directories {
                drop(fixture.mount.mkdir(format!("/{dir}").as_bytes()).unwrap());
            }
            fixture.missing(format!("/{dir}/missing-{n}").as_bytes());
            // 152 (8 and 144) may stay; a batch of 8 above that is trimmed.
            let asked = n + 1;
            let stay = if asked < 160 { asked } else { 152 + asked % 8 };
            assert_eq!(fixture.dcache.statistics().nr_negative, stay, "of {asked} in {directories} directories");
        }
        fixture.assert_valid();
    }
}

#[test]
fn d24_the_default_has_room_for_a_share_of_the_groups_unused_positives() {
    let policy = Probation {
        probation_floor: 1,
        protected_floor: 1,
        positives_per_probation: 2,
        positives_per_protected: 1,
        ..Probation::default()
    };
    let fixture = Fixture::new(64, policy);
    for n in 0..60 {
        drop(fixture.mount.create(format!("/{n}").as_bytes()).unwrap());
    }
    let bound = policy.bound(BoundInputs { buckets: 64, positives: 60, directories: 1 });
    assert_eq!(bound, Some(30 + 60 + 30));
    for n in 1..500_u64 {
        fixture.missing(format!("/missing-{n}").as_bytes());
        let stay = if n < 120 { n } else { 90 + n % 30 };
        assert_eq!(fixture.dcache.statistics().nr_negative, stay, "of {n}");
    }
    fixture.assert_valid();
}

#[test]
fn d24_a_directory_over_its_share_pays_before_the_groups_oldest() {
    // Capacity for 40, a quarter of it for each directory; at 72 the group is trimmed by 32.
    let policy = Probation { probation_floor: 40, protected_floor: 0, ..Probation::default() };
    for (old, new, old_left, new_left) in [(62, 10, 30, 10), (61, 11, 30, 10), (52, 20, 30, 10), (22, 50, 22, 18)] {
        let fixture = Fixture::new(64, policy);
        for (dir, names) in [("old", old), ("new", new)] {
            drop(fixture.mount.mkdir(format!("/{dir}").as_bytes()).unwrap());
            for n in 0..names {
                fixture.missing(format!("/{dir}/{n}").as_bytes());
            }
        }
        assert_eq!(
            (negatives(&fixture, "old"), negatives(&fixture, "new")),
            (old_left, new_left),
            "of {old} and {new}"
        );
        fixture.assert_valid();
    }
}

/// `drop_positives` frees all unused positives at once, and thereby shrinks the capacity for
/// negatives.
fn room_shrinks(touches: usize, drop_positives: impl Fn(&Fixture, u64)) {
    const POSITIVES: u64 = 10_000;
    let policy = Probation { positives_per_probation: 4, positives_per_protected: 4, ..Probation::default() };
    let fixture = Fixture::new(1 << 12, policy);
    for n in 0..POSITIVES {
        drop(fixture.mount.create(format!("/{n}").as_bytes()).unwrap());
    }
    // In many directories, so that none is over its share.
    (0..50).for_each(|dir| drop(fixture.mount.mkdir(format!("/d{dir}").as_bytes()).unwrap()));
    for n in 0..8_000 {
        (0..touches).for_each(|_| fixture.missing(format!("/d{}/old-{n}", n % 50).as_bytes()));
    }
    let before = fixture.dcache.statistics();
    assert!(before.nr_negative > 2_500, "{before:?}");
    drop_positives(&fixture, POSITIVES);
    let bound = policy.bound(BoundInputs { buckets: 1 << 12, positives: 50, directories: 50 }).unwrap();
    let excess = fixture.dcache.statistics().nr_negative.saturating_sub(bound);
    assert!(excess > 2_000, "{excess} over {bound}");
    let mut lookups = 0;
    while fixture.dcache.statistics().nr_negative > bound {
        let trimmed = fixture.dcache.statistics().trimmed;
        fixture.missing(format!("/d{}/new-{lookups}", lookups % 50).as_bytes());
        lookups += 1;
        let trimmed = fixture.dcache.statistics().trimmed - trimmed;
        assert!((2..=TRIM_MAX).contains(&trimmed), "lookup {lookups} killed {trimmed}");
        assert!(lookups <= excess.div_ceil(TRIM_MAX - 1) + 1, "{lookups} lookups for {excess}");
    }
    fixture.assert_valid();
}

#[test]
fn d24_a_sudden_excess_is_trimmed_over_many_lookups() {
    for touches in [1, 2, 3] {
        room_shrinks(touches, |fixture, positives| {
            let (sb, root) = (&fixture.mount.sb, fixture.tree.root());
            for _ in 0..3 {
                let mut left = positives * 2;
                fixture.mount.core.scan(sb, &sb.dentries, root, lowwater_lru_core::NodeId::ZERO, &mut left);
            }
        });
        // Through the public interface: the names are removed.
        room_shrinks(touches, |fixture, positives| {
            (0..positives).for_each(|n| fixture.mount.unlink(format!("/{n}").as_bytes()).unwrap());
        });
    }
}

#[test]
fn d18_rows_that_grew_together_shrink_with_each_new_name() {
    // One chain. The positives between rows of three are removed, so that the rows join.
    let fixture =
        Fixture::build(crate::Dcache::builder().buckets(1).policy(ThreeInARow).on_unlink(crate::OnUnlink::Forget));
    for row in 0..20 {
        (0..3).for_each(|n| fixture.missing(format!("/{row}-{n}").as_bytes()));
        drop(fixture.mount.create(format!("/{row}").as_bytes()).unwrap());
    }
    (0..20).for_each(|row| fixture.mount.unlink(format!("/{row}").as_bytes()).unwrap());
    let left = |fixture: &Fixture| fixture.dcache.statistics().nr_negative;
    assert_eq!(left(&fixture), 60);
    for n in 0..60 {
        let before = left(&fixture);
        fixture.missing(format!("/new-{n}").as_bytes());
        assert!(left(&fixture) < before || left(&fixture) == 3, "{} after {before}", left(&fixture));
    }
    assert_eq!(left(&fixture), 3);
    fixture.assert_valid();
}
