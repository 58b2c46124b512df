//! Charges of dentries to their memcgs.
//!
//! The rule: a tenant at its limit evicts its own dentries, and a lookup never fails for lack of
//! room.
//!
//! A change must ensure that only the tenant at its limit loses dentries.

use super::Fixture;
use crate::backend::Memory;
use crate::negative::{BoundInputs, NewNegative, Probation, Unbounded};
use crate::{Dcache, Kind, NegativePolicy};
use lowwater_lru_core::{ByteSize, Memcg};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

/// The bytes charged for a dentry whose name is inline: up to 32 bytes long.
const ONE: u64 = Dcache::dentry_bytes() as u64;

/// Builds a cache that charges its dentries, below a root memcg with room for `dentries` of them.
fn fixture(policy: impl NegativePolicy + 'static, dentries: u64) -> Fixture {
    let fixture = Fixture::build(Dcache::builder().buckets(64).policy(policy).charge(true));
    fixture.tree.root().set_max(ByteSize::new(dentries * ONE));
    fixture
}

/// Returns the usage without the bytes in stock, which threads charge in advance.
fn usage(group: &Memcg, fixture: &Fixture) -> u64 {
    fixture.tree.drain_stock();
    group.usage().get()
}

#[test]
fn a_dentry_is_charged_as_long_as_it_lives() {
    let fixture = fixture(Unbounded, 1000);
    let group = fixture.tree.root().create("shop").unwrap();
    drop(fixture.mount.mkdir(b"/d").unwrap());
    fixture.missing(b"/d/a");
    assert_eq!(usage(fixture.tree.root(), &fixture), 2 * ONE);
    assert!(fixture.mount.lookup_for(b"/d/b", &group).unwrap().is_none());
    assert_eq!(usage(&group, &fixture), ONE, "the memcg of the first lookup is charged");
    assert!(fixture.mount.lookup(b"/d/b").unwrap().is_none());
    assert_eq!(usage(fixture.tree.root(), &fixture), 3 * ONE, "once");

    // 168 of the 200 bytes are not inline: they are allocated apart, with some overhead.
    let long = [&b"/d/"[..], &[b'x'; 200]].concat();
    drop(fixture.mount.create(&long).unwrap());
    let with_long = usage(fixture.tree.root(), &fixture);
    assert!(
        (4 * ONE + 168..4 * ONE + 300).contains(&with_long),
        "{with_long}: the part of the name that is apart, too"
    );
    fixture.mount.rename(&long, b"/d/short").unwrap();
    let before = usage(fixture.tree.root(), &fixture);
    fixture.mount.rename(b"/d/short", &long).unwrap();
    assert!(usage(fixture.tree.root(), &fixture) > before, "a longer name is charged");
    assert_eq!(fixture.mount.shrink_tree(b"/").unwrap(), 4, "d, a, b and the file");
    assert_eq!(usage(fixture.tree.root(), &fixture), 0);
    fixture.assert_valid();
}

#[test]
fn a_lookup_at_the_limit_takes_the_groups_own_negatives_first() {
    const FILES: u64 = 30;
    // Floors that are not reached: this test is about the charge, not the policy's bound.
    let fixture = fixture(Probation { probation_floor: 1000, protected_floor: 1000, ..Probation::default() }, 50);
    for n in 0..FILES {
        drop(fixture.mount.create(format!("/there-{n}").as_bytes()).unwrap());
    }
    for n in 0..2000 {
        fixture.missing(format!("/{n}").as_bytes());
        assert!(fixture.tree.root().usage() <= fixture.tree.root().max());
    }
    let state = fixture.dcache.statistics();
    assert_eq!(state.refused, 0, "every dentry was charged");
    // The root is not charged, and a charge at the limit evicts up to 4 dentries.
    assert!((1 + 45..=1 + 50).contains(&state.nr_dentry), "{}: a few go at a time", state.nr_dentry);
    let before = fixture.memory.lookups();
    for n in 0..FILES {
        assert!(fixture.mount.stat(format!("/there-{n}").as_bytes()).unwrap().is_some());
    }
    assert_eq!(fixture.memory.lookups(), before, "no positive had to go");
    fixture.assert_valid();
}

/// Nothing is allocated, so nothing is charged.
#[test]
fn changes_of_cached_names_at_the_limit_evict_nothing() {
    const UNRELATED: u64 = 20;
    let fixture = fixture(Unbounded, UNRELATED + 5);
    let mount = &fixture.mount;
    for n in 0..UNRELATED {
        drop(mount.create(format!("/unrelated-{n}").as_bytes()).unwrap());
    }
    for path in [&b"/file"[..], b"/from", b"/to", b"/other"] {
        drop(mount.create(path).unwrap());
    }
    drop(mount.mkdir(b"/dir").unwrap());
    assert_eq!(usage(fixture.tree.root(), &fixture), (UNRELATED + 5) * ONE, "there is no room left");
    mount.unlink(b"/file").unwrap();
    mount.rmdir(b"/dir").unwrap();
    assert_eq!(fixture.dcache.statistics().nr_dentry, 1 + UNRELATED + 5, "removed names stay as negatives");
    mount.rename(b"/from", b"/to").unwrap();
    mount.rename(b"/to", b"/file").unwrap();
    let before = fixture.memory.lookups();
    for n in 0..UNRELATED {
        assert!(mount.stat(format!("/unrelated-{n}").as_bytes()).unwrap().is_some());
    }
    assert_eq!(fixture.memory.lookups(), before, "no other dentry had to go");
    assert_eq!(fixture.dcache.statistics().refused, 0);
    fixture.assert_valid();
}

/// A lookup that fails to charge, but finds that another thread has cached the name, is not counted
/// as refused.
#[test]
fn a_charge_is_refused_only_for_an_allocated_dentry() {
    let fixture = fixture(Unbounded, 1);
    let held = fixture.mount.create(b"/held").unwrap();
    let (core, sb) = (&fixture.mount.core, &fixture.mount.sb);
    drop(core.reserve(sb, fixture.tree.root(), 1));
    assert_eq!(fixture.dcache.statistics().refused, 0);
    fixture.missing(b"/missing");
    assert_eq!(fixture.dcache.statistics().refused, 1);
    drop(held);
    fixture.assert_valid();
}

#[test]
fn a_group_at_its_limit_evicts_no_other_groups_dentries() {
    let fixture = fixture(Unbounded, 1000);
    let (small, other) = (fixture.tree.root().create("small").unwrap(), fixture.tree.root().create("other").unwrap());
    small.set_max(ByteSize::new(5 * ONE));
    for n in 0..100 {
        assert!(fixture.mount.lookup_for(format!("/other-{n}").as_bytes(), &other).unwrap().is_none());
    }
    for n in 0..100 {
        assert!(fixture.mount.lookup_for(format!("/small-{n}").as_bytes(), &small).unwrap().is_none());
    }
    assert_eq!(usage(&other, &fixture), 100 * ONE);
    assert!((ONE..=5 * ONE).contains(&usage(&small, &fixture)));
    assert_eq!(fixture.dcache.statistics().refused, 0);
    fixture.assert_valid();
}

/// Looks up the `names` of a directory for a group, in order, twice. Returns how many of the second
/// lookups called the backend.
fn second_lookups(fixture: &Fixture, group: &Memcg, directory: &str, names: u64) -> u64 {
    let before = fixture.memory.lookups();
    for _ in 0..2 {
        for n in 0..names {
            let path = format!("/{directory}-{n}");
            assert!(fixture.mount.lookup_for(path.as_bytes(), group).unwrap().is_none());
        }
    }
    fixture.memory.lookups() - before - names
}

#[test]
fn a_charge_on_one_mount_evicts_the_groups_dentries_of_another() {
    for protected in [false, true] {
        let fixture = fixture(Unbounded, 50);
        // The limit is the root's, so all its dentries are those of the group, whatever its `min`.
        let group = fixture.tree.root().create("group").unwrap();
        if protected {
            group.set_min(ByteSize::new(50 * ONE));
        }
        for n in 0..50 {
            assert!(fixture.mount.lookup_for(format!("/{n}").as_bytes(), &group).unwrap().is_none());
        }
        let memory = Arc::new(Memory::new());
        let other = fixture.dcache.mount(memory.clone(), &fixture.registry, &group).unwrap();
        for round in 1..=2 {
            (0..20).for_each(|n| assert!(other.stat(format!("/{n}").as_bytes()).unwrap().is_none()));
            assert_eq!(memory.lookups(), 20, "in round {round}, protected: {protected}");
        }
        assert_eq!(fixture.dcache.statistics().refused, 0);
        fixture.mount.shrink_tree(b"/").unwrap();
        other.shrink_tree(b"/").unwrap();
        assert_eq!(usage(fixture.tree.root(), &fixture), 0);
        other.assert_valid();
        fixture.mount.assert_valid();
    }
}

#[test]
fn a_charge_evicts_idle_dentries_of_another_mount_if_all_its_own_are_in_use() {
    let fixture = fixture(Unbounded, 400);
    let other = fixture.dcache.mount(Arc::new(Memory::new()), &fixture.registry, fixture.tree.root()).unwrap();
    (0..149).for_each(|n| assert!(other.stat(format!("/{n}").as_bytes()).unwrap().is_none()));
    // More than half of the limit, and referenced again before each new name.
    for new in 0..60 {
        (0..250).for_each(|n| fixture.missing(format!("/{n}").as_bytes()));
        fixture.missing(format!("/new-{new}").as_bytes());
    }
    assert_eq!(fixture.dcache.statistics().refused, 0);
    drop(other);
    fixture.assert_valid();
}

/// A charge looks at some of the lists, and the next one below the same limit at those that follow.
#[test]
fn charges_at_two_limits_come_to_the_lists_of_many_groups() {
    const GROUPS: usize = 300;
    let fixture = fixture(Unbounded, 1000);
    let look_up =
        |name: String, group: &Memcg| assert!(fixture.mount.lookup_for(name.as_bytes(), group).unwrap().is_none());
    let limited = [0, 1].map(|n| {
        let parent = fixture.tree.root().create(&n.to_string()).unwrap();
        parent.set_max(ByteSize::new(20 * ONE));
        let groups: Vec<_> = (0..GROUPS).map(|group| parent.create(&group.to_string()).unwrap()).collect();
        (0..20).for_each(|name| look_up(format!("/old-{n}-{name}"), &groups[GROUPS - 1]));
        groups
    });
    for name in 0..10 {
        limited.iter().enumerate().for_each(|(n, groups)| look_up(format!("/new-{n}-{name}"), &groups[0]));
    }
    assert_eq!(fixture.dcache.statistics().refused, 2, "the second charge at each limit comes to the last group");
    fixture.assert_valid();
}

/// The limit is the parent's, with room for half of what the jobs look up.
#[test]
fn a_charge_at_the_parents_limit_evicts_other_childrens_dentries() {
    for (ended, protected) in [(true, 0), (false, 0), (false, 9), (false, 10)] {
        let fixture = fixture(Unbounded, 1000);
        let parent = fixture.tree.root().create("parent").unwrap();
        parent.set_max(ByteSize::new(50 * ONE));
        let outside = fixture.tree.root().create("outside").unwrap();
        second_lookups(&fixture, &outside, "outside", 10);
        let jobs: Vec<_> = (0..10).map(|n| parent.create(&n.to_string()).unwrap()).collect();
        jobs[0].set_min(ByteSize::new(protected * ONE));
        for (n, job) in jobs.iter().enumerate() {
            let again = second_lookups(&fixture, job, &format!("job-{n}"), 10);
            if ended {
                assert_eq!(again, 0, "job {n} has the room of those that have ended");
                job.offline().unwrap();
            }
        }
        assert_eq!(fixture.dcache.statistics().refused, 0, "ended: {ended}");
        let kept: Vec<_> = jobs.iter().map(|job| usage(job, &fixture) / ONE).collect();
        assert!((40..=50).contains(&kept.iter().sum::<u64>()), "{kept:?}");
        assert!(ended || kept[9] >= 2, "the last job takes a share from the others: {kept:?}");
        assert!(kept[0] >= protected, "the dentries within a min are spared: {kept:?}");
        assert_eq!(usage(&outside, &fixture), 10 * ONE, "a group that is not below the parent loses nothing");
        fixture.assert_valid();
    }
}

/// A build: the missing headers are looked up for each unit, then one new file is opened.
#[test]
fn negatives_in_use_do_not_keep_new_files_from_being_cached() {
    const HEADERS: u64 = 100;
    const FILES: u64 = 300;
    const UNITS: u64 = 400;
    let fixture = fixture(Probation::default(), HEADERS + FILES);
    for n in 0..FILES + UNITS {
        fixture.memory.create_path(format!("/file-{n}").as_bytes(), Kind::File).unwrap();
    }
    let headers = || (0..HEADERS).for_each(|n| fixture.missing(format!("/header-{n}").as_bytes()));
    let file = |n: u64| assert!(fixture.mount.stat(format!("/file-{n}").as_bytes()).unwrap().is_some());
    headers();
    (0..FILES).for_each(file);
    for n in 0..UNITS {
        headers();
        file(FILES + n);
    }
    assert_eq!(fixture.dcache.statistics().refused, 0);
    assert_eq!(fixture.memory.lookups(), HEADERS + FILES + UNITS, "each name is looked up once");
    fixture.assert_valid();
}

/// After its end its dentries are on the root's lists, among those of others.
#[test]
fn a_group_that_has_ended_at_its_limit_evicts_no_other_groups_dentries() {
    let fixture = fixture(Unbounded, 1000);
    let (small, other) = (fixture.tree.root().create("small").unwrap(), fixture.tree.root().create("other").unwrap());
    small.set_max(ByteSize::new(ONE));
    fixture.memory.create_path(b"/held", Kind::File).unwrap();
    let held = fixture.mount.lookup_for(b"/held", &small).unwrap().unwrap();
    small.offline().unwrap();
    for n in 0..100 {
        assert!(fixture.mount.lookup_for(format!("/other-{n}").as_bytes(), &other).unwrap().is_none());
    }
    for n in 0..100 {
        assert!(fixture.mount.lookup_for(format!("/root-{n}").as_bytes(), fixture.tree.root()).unwrap().is_none());
        assert!(fixture.mount.lookup_for(format!("/small-{n}").as_bytes(), &small).unwrap().is_none());
    }
    assert_eq!(fixture.dcache.statistics().nr_negative, 200);
    assert_eq!(fixture.dcache.statistics().refused, 100);
    drop(held);
    fixture.assert_valid();
}

#[test]
fn with_everything_in_use_a_lookup_is_answered_and_not_kept() {
    let fixture = fixture(Unbounded, 3);
    for path in [&b"/a"[..], b"/b", b"/c", b"/d/x", b"/d/y"] {
        fixture.memory.create_path(path, Kind::File).unwrap();
    }
    let held: Vec<_> = [&b"/a"[..], b"/b", b"/c"].map(|path| fixture.mount.lookup(path).unwrap().unwrap()).into();
    assert!(fixture.mount.stat(b"/d/x").unwrap().is_some());
    fixture.missing(b"/none");
    let state = fixture.dcache.statistics();
    assert_eq!((state.refused, state.nr_dentry), (3, 1 + 3), "d, x and none are gone again");

    // A directory in use is found although it is uncharged: its lock is in its dentry, so it must
    // not get a second one.
    let dir = fixture.mount.lookup(b"/d").unwrap().unwrap();
    let file = fixture.mount.create(b"/d/new").unwrap();
    assert_eq!(dir.child(b"new").unwrap().unwrap().inode(), file.inode());
    drop(file);
    fixture.mount.unlink(b"/d/new").unwrap();
    assert!(dir.child(b"new").unwrap().is_none());
    fixture.assert_valid();
    drop(dir);
    assert_eq!(fixture.dcache.statistics().nr_dentry, 1 + 3);

    drop(held);
    assert!(fixture.mount.stat(b"/d/x").unwrap().is_some());
    let before = fixture.memory.lookups();
    assert!(fixture.mount.stat(b"/d/x").unwrap().is_some());
    assert_eq!(fixture.memory.lookups(), before, "unused names were evicted");
    fixture.assert_valid();
}

#[test]
fn a_rename_over_the_limit_keeps_the_dentry_until_its_last_put() {
    // These names are in use, but still listed. Two charges of the rename are refused, each after a
    // scan of 64 dentries from the old end, so `/a`, the youngest, stays listed.
    const OTHERS: u64 = 200;
    let fixture = fixture(Unbounded, OTHERS + 2);
    let others: Vec<_> = (0..OTHERS)
        .map(|n| {
            let path = format!("/{n}").into_bytes();
            drop(fixture.mount.create(&path).unwrap());
            fixture.mount.lookup(&path).unwrap()
        })
        .collect();
    drop(fixture.mount.create(b"/a").unwrap());
    let held = fixture.mount.lookup(b"/a").unwrap().unwrap();
    let long = [&b"/"[..], &[b'x'; 250]].concat();
    fixture.mount.rename(b"/a", &long).unwrap();
    assert_eq!(fixture.mount.lookup(&long).unwrap().unwrap().inode(), held.inode());
    assert!(fixture.tree.root().usage() <= fixture.tree.root().max());
    assert!(fixture.mount.stat(&long).unwrap().is_some(), "which marks it as used");
    drop(held);
    assert_eq!(fixture.dcache.statistics().nr_dentry, 1 + OTHERS);
    drop(others);
    assert!(fixture.mount.stat(&long).unwrap().is_some());
    fixture.assert_valid();
    fixture.mount.shrink_tree(b"/").unwrap();
    assert_eq!(usage(fixture.tree.root(), &fixture), 0);
}

/// Keeps all negatives. The bound panics while the flag is set.
#[derive(Debug)]
struct BoundPanics(Arc<AtomicBool>);

impl NegativePolicy for BoundPanics {
    fn name(&self) -> &'static str {
        "bound panics"
    }
    fn has_own_lists(&self) -> bool {
        true
    }
    fn negative_added(&self, _: &NewNegative<'_>) {}
    fn bound(&self, _: BoundInputs) -> Option<u64> {
        assert!(!self.0.load(Relaxed), "as the test demands");
        None
    }
}

/// Keeps all negatives. The next bound after the flag is set lasts for two waits of the barrier.
#[derive(Debug)]
struct BoundWaits(Arc<AtomicBool>, Arc<Barrier>);

impl NegativePolicy for BoundWaits {
    fn name(&self) -> &'static str {
        "bound waits"
    }
    fn has_own_lists(&self) -> bool {
        true
    }
    fn negative_added(&self, _: &NewNegative<'_>) {}
    fn bound(&self, _: BoundInputs) -> Option<u64> {
        if self.0.swap(false, Relaxed) {
            self.1.wait();
            self.1.wait();
        }
        None
    }
}

#[test]
fn a_charge_that_reclaims_from_a_mount_keeps_no_backend() {
    let (waits, barrier) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let fixture = fixture(BoundWaits(Arc::clone(&waits), Arc::clone(&barrier)), 1000);
    let memory = Arc::new(Memory::new());
    let backend = Arc::downgrade(&memory);
    let other = fixture.dcache.mount(memory, &fixture.registry, fixture.tree.root()).unwrap();
    // Referenced, so that a scan frees none and calls `bound`.
    for _ in 0..2 {
        (0..20).for_each(|n| assert!(other.stat(format!("/{n}").as_bytes()).unwrap().is_none()));
    }
    fixture.tree.root().set_max(ByteSize::new(usage(fixture.tree.root(), &fixture)));
    waits.store(true, Relaxed);
    std::thread::scope(|scope| {
        let looked_up = scope.spawn(|| fixture.missing(b"/new"));
        barrier.wait();
        drop(other);
        let is_dropped = backend.upgrade().is_none();
        barrier.wait();
        looked_up.join().unwrap();
        assert!(is_dropped, "the drop of the mount did not drop its backend");
    });
    fixture.assert_valid();
}

#[test]
fn a_rename_whose_charge_panics_leaves_no_user_and_no_charge() {
    let panics = Arc::new(AtomicBool::new(false));
    let fixture = fixture(BoundPanics(Arc::clone(&panics)), 1000);
    let long = [&b"/"[..], &[b'x'; 250]].concat();
    drop((fixture.mount.mkdir(b"/d").unwrap(), fixture.mount.create(b"/d/a").unwrap()));
    // Referenced negatives: a scan frees none, and calls `bound`.
    (0..2).for_each(|_| [&long[..], b"/none"].iter().for_each(|path| fixture.missing(path)));
    fixture.tree.root().set_max(ByteSize::new(usage(fixture.tree.root(), &fixture)));
    panics.store(true, Relaxed);
    let renamed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fixture.mount.rename(b"/d/a", &long)));
    assert!(renamed.is_err());
    panics.store(false, Relaxed);
    assert!(fixture.mount.stat(&long).unwrap().is_some());
    fixture.assert_valid();
    fixture.mount.shrink_tree(b"/").unwrap();
    assert_eq!(fixture.dcache.statistics().nr_dentry, 1, "only the root is in use");
    assert_eq!(usage(fixture.tree.root(), &fixture), 0);
}

#[test]
fn threads_at_the_limit_stay_below_it_and_get_right_answers() {
    const NAMES: u64 = if cfg!(miri) { 20 } else { 3000 };
    let fixture = fixture(Probation::default(), 40);
    for n in 0..10 {
        fixture.memory.create_path(format!("/d{n}/file").as_bytes(), Kind::File).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|thread| {
                let mount = &fixture.mount;
                scope.spawn(move || {
                    for n in 0..NAMES {
                        let dir = n % 10;
                        assert!(mount.stat(format!("/d{dir}/file").as_bytes()).unwrap().is_some());
                        assert!(mount.lookup(format!("/d{dir}/{}", n * thread).as_bytes()).unwrap().is_none());
                        let mine = format!("/d{dir}/mine-{thread}");
                        drop(mount.create(mine.as_bytes()).unwrap());
                        mount.unlink(mine.as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Relaxed) {
                assert!(fixture.tree.root().usage() <= fixture.tree.root().max());
                fixture.registry.drop_caches();
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // Before a panic of a worker is passed on: the scope waits for the other thread.
        done.store(true, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    fixture.assert_valid();
    fixture.mount.shrink_tree(b"/").unwrap();
    assert_eq!(usage(fixture.tree.root(), &fixture), 0);
}
