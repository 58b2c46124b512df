//! Floods of names that do not exist, and the entries that must survive them.
//!
//! The adversaries `OneDirectory` and `Twice` of `examples/negative_flood.rs` are here in small.
//! Numbers such as D24 are those of docs/INVARIANTS.md. `ci/claims.md` quotes a test's name.

use super::Fixture;
use crate::backend::Memory;
use crate::negative::{BoundInputs, PerDirectory, Probation, ThreeInARow, Unbounded};
use crate::{Dcache, NegativePolicy, Statistics};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{MemcgTree, NodeId};
use lowwater_shrinker::Registry;
use std::sync::Arc;

fn flood(fixture: &Fixture, names: usize, touches: usize) -> Statistics {
    for n in 0..names {
        for _ in 0..touches {
            fixture.missing(format!("/missing-{n}").as_bytes());
        }
    }
    let state = fixture.dcache.statistics();
    fixture.assert_valid();
    state
}

#[test]
fn unbounded_keeps_all() {
    assert_eq!(flood(&Fixture::new(64, Unbounded), 5000, 1).nr_negative, 5000);
}

#[test]
fn d18_three_in_a_row_keeps_three_a_bucket() {
    const BUCKETS: usize = 64;
    let fixture = Fixture::new(BUCKETS, ThreeInARow);
    let state = flood(&fixture, 5000, 1);
    assert_eq!(state.nr_negative, 3 * BUCKETS as u64, "each chain is full and no fuller");
    let lengths = fixture.dcache.chain_lengths();
    assert_eq!((lengths[3], lengths.iter().sum()), (BUCKETS as u64, BUCKETS as u64), "{lengths:?}");
}

#[test]
fn d18_repeated_lookups_defeat_three_in_a_row() {
    // A referenced negative ends the row. Each name is looked up again before the next one is
    // added, so a trim finds no row.
    let fixture = Fixture::new(64, ThreeInARow);
    assert!(flood(&fixture, 5000, 2).nr_negative > 4000);
}

#[test]
fn d19_d20_a_trim_kills_no_positive_and_none_in_use() {
    for policy in
        [Box::new(ThreeInARow) as Box<dyn NegativePolicy>, Box::new(PerDirectory(3)), Box::<Probation>::default()]
    {
        let fixture = Fixture::build(crate::Dcache::builder().buckets(4).boxed_policy(policy));
        let held: Vec<_> = (0..50).map(|n| fixture.mount.create(format!("/held-{n}").as_bytes()).unwrap()).collect();
        for n in 0..50 {
            drop(fixture.mount.create(format!("/cached-{n}").as_bytes()).unwrap());
        }
        let before = fixture.memory.lookups();
        flood(&fixture, 5000, 1);
        assert_eq!(fixture.memory.lookups() - before, 5000);
        for n in 0..50 {
            assert!(fixture.mount.lookup(format!("/cached-{n}").as_bytes()).unwrap().is_some());
        }
        assert_eq!(fixture.memory.lookups() - before, 5000, "positives are still cached");
        drop(held);
        fixture.assert_valid();
    }
}

#[test]
fn d24_a_directory_keeps_its_share() {
    let fixture = Fixture::new(64, PerDirectory(100));
    assert_eq!(flood(&fixture, 5000, 1).nr_negative, 100);
    assert_eq!(flood(&Fixture::new(64, PerDirectory(100)), 5000, 2).nr_negative, 100, "a second lookup gains nothing");
}

#[test]
fn d24_the_default_holds_its_bound_under_every_adversary() {
    let policy = Probation::default();
    let bound = policy.bound(BoundInputs { buckets: 64, positives: 0, directories: u64::MAX }).unwrap();
    for touches in [1, 2, 3] {
        let fixture = Fixture::new(64, policy);
        let state = flood(&fixture, 20_000, touches);
        assert!(state.nr_negative <= bound, "{} of {bound} with {touches} touches", state.nr_negative);
        // The fingerprints of two names are equal in about one flood of a thousand; the name that
        // comes later is then promoted at its first touch.
        assert_eq!(state.promoted > 2, touches > 1, "{} promoted with {touches} touches", state.promoted);
    }
}

/// Looks up `names` missing names in rounds, spread over `directories`. Returns the hits of the
/// last round.
fn hits_in_rounds(fixture: &Fixture, names: u64, directories: u64, rounds: u64) -> u64 {
    for n in 0..directories {
        drop(fixture.mount.mkdir(format!("/{n}").as_bytes()).unwrap());
    }
    let mut before = 0;
    for _ in 0..rounds {
        before = fixture.memory.lookups();
        (0..names).for_each(|n| fixture.missing(format!("/{}/{n}", n % directories).as_bytes()));
    }
    fixture.assert_valid();
    names - (fixture.memory.lookups() - before)
}

#[test]
fn a_loop_longer_than_the_list_still_has_hits() {
    // A queue alone, in order of insertion or of last use, would evict each name just before its
    // next lookup.
    let fixture = Fixture::new(1 << 12, Probation { protected_floor: 64, ..Probation::default() });
    let hits = hits_in_rounds(&fixture, 100, 100, 20);
    assert!(fixture.dcache.statistics().ghost_hits > 0);
    assert!(hits > 40, "{hits} of 100, with room for 72");
}

#[test]
fn a_directory_with_recurring_names_gains_share() {
    let fixture = Fixture::new(1 << 12, Probation { protected_floor: 64, ..Probation::default() });
    // Names that fill the protected list, and are not looked up any more.
    (0..64).for_each(|n| (0..2).for_each(|_| fixture.missing(format!("/stale-{n}").as_bytes())));
    flood(&fixture, 100, 1);
    let hits = hits_in_rounds(&fixture, 50, 1, 200);
    assert!(hits > 40, "{hits} of 50, with room for 72");
}

/// The directory's file has index 0 among its children, and at most 8 negatives are on probation,
/// so no negative of the directory ever has an index that is a multiple of 16.
#[test]
fn a_small_directory_with_a_file_gains_share() {
    let policy = Probation { probation_floor: 4, protected_floor: 64, ..Probation::default() };
    let fixture = Fixture::new(1 << 12, policy);
    (0..64).for_each(|n| (0..2).for_each(|_| fixture.missing(format!("/stale-{n}").as_bytes())));
    flood(&fixture, 100, 1);
    drop(fixture.mount.mkdir(b"/0").unwrap());
    drop(fixture.mount.create(b"/0/file").unwrap());
    let mut before = 0;
    for _ in 0..400 {
        before = fixture.memory.lookups();
        (0..20).for_each(|n| fixture.missing(format!("/0/{n}").as_bytes()));
    }
    let hits = 20 - (fixture.memory.lookups() - before);
    assert!(hits > 15, "{hits} of 20, with room for 68");
    fixture.assert_valid();
}

/// Looks up 200 missing names, in 100 directories, on each of `nodes` nodes of `mounts` mounts of
/// one memcg, in rounds.
/// Returns the backend lookups of each mount for each node, on average over the last rounds.
fn lookups_in_rounds(mounts: u64, nodes: u16) -> Vec<u64> {
    const NAMES: u64 = 200;
    const DIRECTORIES: u64 = 100;
    const LAST: u64 = 5;
    let (tree, topology) = (MemcgTree::default(), Arc::new(Fixed::new(usize::from(nodes))));
    let registry = Registry::new(&tree, usize::from(nodes));
    let dcache = Dcache::builder().topology(topology.clone()).build();
    let mounted: Vec<_> = (0..mounts)
        .map(|_| {
            let memory = Arc::new(Memory::new());
            let mount = dcache.mount(memory.clone(), &registry, tree.root()).unwrap();
            for n in 0..u64::from(nodes) * DIRECTORIES {
                drop(mount.mkdir(format!("/{n}").as_bytes()).unwrap());
            }
            (mount, memory)
        })
        .collect();
    let lookups = || mounted.iter().map(|(_, memory)| memory.lookups()).collect::<Vec<_>>();
    let mut before = Vec::new();
    for round in 0..30 {
        if round == 30 - LAST {
            before = lookups();
        }
        for n in 0..NAMES {
            for node in 0..nodes {
                topology.set_current(NodeId::new(node));
                let path = format!("/{}/{n}", u64::from(node) * DIRECTORIES + n % DIRECTORIES);
                mounted.iter().for_each(|(mount, _)| assert!(mount.lookup(path.as_bytes()).unwrap().is_none()));
            }
        }
    }
    mounted.iter().for_each(|(mount, _)| _ = mount.assert_valid());
    lookups().iter().zip(before).map(|(now, before)| (now - before) / LAST / u64::from(nodes)).collect()
}

#[test]
fn d24_a_mount_and_a_node_keep_the_hits_that_each_has_alone() {
    let alone = lookups_in_rounds(1, 1)[0];
    assert!(alone < 120, "{alone} of 200 names are looked up in the backend, with room for 152");
    for (mounts, nodes) in [(20, 1), (1, 20)] {
        let lookups = lookups_in_rounds(mounts, nodes);
        let most = *lookups.iter().max().unwrap();
        assert!(most <= alone + 20, "{alone} alone, {lookups:?} with {mounts} mounts and {nodes} nodes");
    }
}

/// A thread that has moved to another node asks for a name that was evicted on the first one.
#[test]
fn d24_a_name_is_remembered_on_every_node() {
    let (tree, topology) = (MemcgTree::default(), Arc::new(Fixed::new(4)));
    let registry = Registry::new(&tree, 4);
    let dcache = Dcache::builder().topology(topology.clone()).build();
    let mount = dcache.mount(Arc::new(Memory::new()), &registry, tree.root()).unwrap();
    for n in 0..200 {
        drop(mount.mkdir(format!("/{n}").as_bytes()).unwrap());
    }
    topology.set_current(NodeId::new(2));
    (0..200).for_each(|n| assert!(mount.lookup(format!("/{n}/name").as_bytes()).unwrap().is_none()));
    let before = dcache.statistics().ghost_hits;
    topology.set_current(NodeId::new(1));
    (0..200).for_each(|n| assert!(mount.lookup(format!("/{n}/name").as_bytes()).unwrap().is_none()));
    let hits = dcache.statistics().ghost_hits - before;
    assert!(hits > 30, "{hits} of some 50 evicted names");
    mount.assert_valid();
}

/// The names of both nodes are in one directory.
#[test]
fn d24_a_flood_on_one_node_trims_no_negatives_of_another() {
    let (tree, topology) = (MemcgTree::default(), Arc::new(Fixed::new(2)));
    let registry = Registry::new(&tree, 2);
    let dcache = Dcache::builder().topology(topology.clone()).build();
    let mount = dcache.mount(Arc::new(Memory::new()), &registry, tree.root()).unwrap();
    for (node, names) in [(0, 159), (1, 170)] {
        topology.set_current(NodeId::new(node));
        (0..names).for_each(|n| assert!(mount.lookup(format!("/{node}-{n}").as_bytes()).unwrap().is_none()));
    }
    let negatives = [0, 1].map(|node| {
        let [_, probation, protected, _] = mount.sb.counts(tree.root(), NodeId::new(node));
        probation + protected
    });
    assert_eq!(negatives[0], 159, "none is trimmed for the excess of the other node");
    assert!((140..=160).contains(&negatives[1]), "{negatives:?}");
    mount.assert_valid();
}

/// The first node has many positives, so its window of the ghost table has more sets.
#[test]
fn d24_a_name_is_remembered_beside_any_number_of_positives() {
    const POSITIVES: u64 = 1 << 16;
    const DIRECTORIES: u64 = 400;
    const NAMES: u64 = 4000;
    let (tree, topology) = (MemcgTree::default(), Arc::new(Fixed::new(2)));
    let registry = Registry::new(&tree, 2);
    let dcache = Dcache::builder().topology(topology.clone()).build();
    let mount = dcache.mount(Arc::new(Memory::new()), &registry, tree.root()).unwrap();
    (0..DIRECTORIES).for_each(|n| drop(mount.mkdir(format!("/{n}").as_bytes()).unwrap()));
    (0..POSITIVES).for_each(|n| drop(mount.create(format!("/file-{n}").as_bytes()).unwrap()));
    let missing = |n| assert!(mount.lookup(format!("/{}/{n}", n % DIRECTORIES).as_bytes()).unwrap().is_none());
    (0..NAMES).for_each(missing);
    let state = dcache.statistics();
    let evicted = NAMES - state.nr_negative;
    assert!(evicted > 1000, "{evicted}");
    topology.set_current(NodeId::new(1));
    (0..NAMES).for_each(missing);
    let hits = dcache.statistics().ghost_hits - state.ghost_hits;
    assert!(hits > evicted / 2, "{hits} of {evicted} evicted names");
    mount.assert_valid();
}

#[test]
fn names_used_in_many_rounds_outlast_names_used_in_one() {
    let fixture = Fixture::new(1 << 12, Probation { protected_floor: 64, ..Probation::default() });
    drop(fixture.mount.mkdir(b"/d").unwrap());
    let twice = |name: String| (0..2).for_each(|_| fixture.missing(name.as_bytes()));
    // In each round every hot name is looked up twice, then each of 32 cold names that no other
    // round uses: 640 in all, with room for 72 negatives.
    for n in 0..20 {
        (0..16).for_each(|hot| twice(format!("/d/hot-{hot}")));
        (0..32).for_each(|cold| twice(format!("/d/cold-{n}-{cold}")));
    }
    (0..100).for_each(|cold| twice(format!("/d/other-{cold}")));
    let before = fixture.memory.lookups();
    (0..16).for_each(|hot| fixture.missing(format!("/d/hot-{hot}").as_bytes()));
    assert_eq!(fixture.memory.lookups(), before, "merit lasts for a while");
    (0..20_000).for_each(|cold| twice(format!("/d/flood-{cold}")));
    (0..16).for_each(|hot| fixture.missing(format!("/d/hot-{hot}").as_bytes()));
    assert_eq!(fixture.memory.lookups(), before + 20_016, "and not for ever");
    fixture.assert_valid();
}

/// Each thread of a flood finds the same excess; one of them trims it.
#[test]
fn threads_that_flood_evict_no_name_used_in_each_round() {
    const HOT: u64 = 100;
    const NAMES: u64 = if cfg!(miri) { 200 } else { 10_000 };
    const WARM_UP: u64 = if cfg!(miri) { 20 } else { 300 };
    for (threads, directories) in [(4, 1), (1, 100), (4, 100)] {
        let fixture = Fixture::new(1 << 12, Probation::default());
        for directory in 0..=directories {
            drop(fixture.mount.mkdir(format!("/{directory}").as_bytes()).unwrap());
        }
        let flood = |thread: u64, n: u64| fixture.missing(format!("/{}/{thread}-{n}", n % directories).as_bytes());
        let hot = || (0..HOT).for_each(|n| fixture.missing(format!("/{directories}/{n}").as_bytes()));
        for n in 0..WARM_UP {
            hot();
            flood(threads, n);
        }
        let before = fixture.memory.lookups();
        let (hot, flood) = (&hot, &flood);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for n in 0..NAMES {
                        flood(thread, n);
                        if n % 1000 == 0 {
                            hot();
                        }
                    }
                });
            }
        });
        let lookups = fixture.memory.lookups() - before - threads * NAMES;
        assert_eq!(lookups, 0, "backend lookups of hot names: {threads} threads, {directories} directories");
        fixture.assert_valid();
    }
}

#[test]
fn d21_removed_names_evict_no_negatives() {
    let fixture = Fixture::new(64, Probation::default());
    (0..6).for_each(|n| fixture.missing(format!("/asked-{n}").as_bytes()));
    for n in 0..1000 {
        drop(fixture.mount.create(format!("/{n}").as_bytes()).unwrap());
    }
    for n in 0..1000 {
        fixture.mount.unlink(format!("/{n}").as_bytes()).unwrap();
    }
    fixture.assert_valid();
    assert_eq!(
        fixture.dcache.statistics().nr_negative,
        8,
        "the names looked up, and as many of the removed ones as fit"
    );
    let before = fixture.memory.lookups();
    (0..6).for_each(|n| fixture.missing(format!("/asked-{n}").as_bytes()));
    (0..2).for_each(|n| fixture.missing(format!("/{n}").as_bytes()));
    assert_eq!(fixture.memory.lookups(), before);
    fixture.missing(b"/999");
    assert_eq!(fixture.memory.lookups(), before + 1, "not cached, so the backend is called");
    // A dentry in use keeps its inode until its last put, and is freed then.
    let held = fixture.mount.create(b"/held").unwrap();
    fixture.mount.unlink(b"/held").unwrap();
    fixture.missing(b"/held");
    assert_eq!(held.kind(), crate::Kind::File);
    drop(held);
    fixture.assert_valid();
}

#[test]
fn d24_a_flood_costs_another_group_nothing() {
    let policy = Probation { probation_floor: 2000, protected_floor: 2000, ..Probation::default() };
    let fixture = Fixture::new(64, policy);
    let (quiet, noisy) = (fixture.tree.root().create("quiet").unwrap(), fixture.tree.root().create("noisy").unwrap());
    for _ in 0..2 {
        for n in 0..400 {
            assert!(fixture.mount.lookup_for(format!("/quiet-{n}").as_bytes(), &quiet).unwrap().is_none());
        }
    }
    for n in 0..50_000 {
        let path = format!("/noise-{n}");
        for _ in 0..2 {
            assert!(fixture.mount.lookup_for(path.as_bytes(), &noisy).unwrap().is_none());
        }
    }
    let before = fixture.memory.lookups();
    for n in 0..400 {
        assert!(fixture.mount.lookup_for(format!("/quiet-{n}").as_bytes(), &quiet).unwrap().is_none());
    }
    assert_eq!(fixture.memory.lookups(), before, "each group has its own share");
    fixture.assert_valid();
}

/// Only the children look names up; the negatives of those that end are their parent's.
#[test]
fn d24_groups_that_end_leave_a_bounded_number_of_negatives() {
    const NAMES: u64 = 150;
    let fixture = Fixture::build(crate::Dcache::builder().buckets(1 << 10));
    let bound = fixture.dcache.policy().bound(BoundInputs { buckets: 1 << 10, positives: 0, directories: 1 }).unwrap();
    let parent = fixture.tree.root().create("parent").unwrap();
    for n in 0..100 {
        let group = parent.create(&n.to_string()).unwrap();
        for name in 0..NAMES {
            let trimmed = fixture.dcache.statistics().trimmed;
            let path = format!("/missing-{n}-{name}");
            assert!(fixture.mount.lookup_for(path.as_bytes(), &group).unwrap().is_none());
            assert!(fixture.dcache.statistics().trimmed - trimmed <= 2 * 32, "a lookup kills a bounded number");
        }
        let negatives = fixture.dcache.statistics().nr_negative;
        assert!(negatives <= bound + NAMES, "{negatives} negatives, {bound} may be the parent's");
        group.offline().unwrap();
    }
    fixture.assert_valid();
}

/// The negatives of a group that has ended are on the list of its parent.
#[test]
fn d24_a_group_that_has_ended_keeps_its_bound() {
    let fixture = Fixture::build(crate::Dcache::builder().buckets(64));
    let bound = fixture.dcache.policy().bound(BoundInputs { buckets: 64, positives: 0, directories: 1 }).unwrap();
    let group = fixture.tree.root().create("ended").unwrap();
    group.offline().unwrap();
    for n in 0..2_000 {
        assert!(fixture.mount.lookup_for(format!("/missing-{n}").as_bytes(), &group).unwrap().is_none());
    }
    let state = fixture.dcache.statistics();
    assert!(state.nr_negative <= bound, "{} negatives, {bound} may be", state.nr_negative);
    fixture.assert_valid();
}

#[test]
fn d24_pressure_evicts_negatives_before_positives() {
    let fixture = Fixture::new(64, Probation { probation_floor: 2000, ..Probation::default() });
    for n in 0..400 {
        drop(fixture.mount.create(format!("/{n}").as_bytes()).unwrap());
        fixture.missing(format!("/missing-{n}").as_bytes());
    }
    let (core, sb) = (&fixture.mount.core, &fixture.mount.sb);
    let root = fixture.tree.root();
    let counts = sb.counts(root, NodeId::ZERO);
    assert_eq!(counts[..3], [400, 400, 0]);
    let freed = core.reclaim_dentries(sb, root, NodeId::ZERO, &mut 300);
    assert_eq!(freed, 300);
    let counts = sb.counts(root, NodeId::ZERO);
    assert_eq!(counts[..3], [400, 100, 0], "negatives first");
    fixture.assert_valid();
}

/// The removal of files lowers the bound, and each negative was used since the last walk.
#[test]
fn d24_pressure_evicts_an_excess_of_used_negatives_before_positives() {
    const POSITIVES: u64 = 1600;
    const LEFT: u64 = 100;
    const NEGATIVES: u64 = 400;
    let policy = Probation { positives_per_protected: 4, ..Probation::default() };
    let bound = policy.bound(BoundInputs { buckets: 64, positives: LEFT, directories: 1 }).unwrap();
    for scan in [1, 30, 399, 410, 500, 1000, u64::MAX] {
        let fixture =
            Fixture::build(crate::Dcache::builder().buckets(1 << 10).policy(policy).on_unlink(crate::OnUnlink::Forget));
        (0..POSITIVES).for_each(|n| drop(fixture.mount.create(format!("/{n}").as_bytes()).unwrap()));
        (0..NEGATIVES).for_each(|n| (0..2).for_each(|_| fixture.missing(format!("/missing-{n}").as_bytes())));
        (LEFT..POSITIVES).for_each(|n| fixture.mount.unlink(format!("/{n}").as_bytes()).unwrap());
        let (sb, root) = (&fixture.mount.sb, fixture.tree.root());
        let counts = || sb.counts(root, NodeId::ZERO);
        assert_eq!((counts()[0], counts()[1] + counts()[2]), (LEFT, NEGATIVES));
        let mut scanned = 0;
        while counts()[0] == LEFT {
            let mut left = scan;
            let freed = fixture.mount.core.reclaim_dentries(sb, root, NodeId::ZERO, &mut left);
            scanned += scan - left;
            assert!(scanned <= 3 * (NEGATIVES + LEFT), "{scanned} scanned without a positive");
            let [positives, probation, protected, _] = counts();
            let negatives = probation + protected;
            assert!(positives == LEFT || negatives <= bound, "{positives} positives, {negatives} of {bound} negatives");
            assert!(freed <= scan - left);
            if scan >= 1000 {
                assert_eq!((positives, negatives), (0, bound), "the negatives within the bound are spared");
            }
        }
        fixture.assert_valid();
    }
}

#[test]
fn a_created_name_leaves_the_probation_list() {
    let fixture = Fixture::new(64, Probation::default());
    fixture.missing(b"/a");
    drop(fixture.mount.create(b"/a").unwrap());
    flood(&fixture, 5000, 1);
    let before = fixture.memory.lookups();
    assert!(fixture.mount.lookup(b"/a").unwrap().is_some());
    assert_eq!(fixture.memory.lookups(), before, "a positive is not trimmed");
}
