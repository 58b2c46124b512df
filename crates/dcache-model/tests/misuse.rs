//! Safe programs that misuse the cache: leaked references and mounts, late destructors, policies
//! with extreme numbers.
//!
//! Each test has a state that a program can reach by safe code alone. S12 is a number of
//! docs/INVARIANTS.md.
//!
//! No test may contain `unsafe`.

#![cfg(not(lowwater_loom))]
#![forbid(unsafe_code)]

use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::negative::{BoundInputs, NewNegative, PerDirectory, Probation, ThreeInARow};
use lowwater_dcache_model::{Dcache, Mount, NegativePolicy};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Progress, Reclaim, Registry, Work};
use std::cell::RefCell;
use std::sync::Arc;

fn world(policy: impl NegativePolicy + 'static) -> (MemcgTree, Registry, Dcache) {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).policy(policy).topology(Arc::new(Fixed::new(1))).build();
    (tree, registry, dcache)
}

fn mount(dcache: &Dcache, registry: &Registry, group: &Memcg) -> Mount {
    dcache.mount(Arc::new(Memory::new()), registry, group).unwrap()
}

fn fill(mount: &Mount, names: usize) {
    for n in 0..names {
        drop(mount.create(format!("/file-{n}").as_bytes()).unwrap());
        assert!(mount.lookup(format!("/missing-{n}").as_bytes()).unwrap().is_none());
    }
}

#[test]
fn s12_an_empty_mount_is_counted_once_more_and_then_only_after_an_insert() {
    let (tree, registry, dcache) = world(Probation::default());
    let mount = mount(&dcache, &registry, tree.root());
    let pass = || registry.shrink(tree.root(), NodeId::ZERO, 0, Reclaim::KSWAPD, &mut Work::unlimited());
    fill(&mount, 100);
    // The first rounds free the dentries and then their inodes; a later one finds the mount empty.
    for _ in 0..4 {
        registry.drop_caches();
    }
    assert_eq!(registry.snapshot().live_pairs, 0, "the mount is marked as empty");
    assert_eq!(pass(), Progress::default(), "no shrinker is called");
    assert!(mount.lookup(b"/another").unwrap().is_none());
    assert!(pass().callbacks > 0);
}

#[test]
fn a_leaked_reference_or_mount_does_not_affect_the_next_mount() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: it leaks by intent");
    }
    for leak_the_mount in [false, true] {
        let (tree, registry, dcache) = world(Probation::default());
        let first = mount(&dcache, &registry, tree.root());
        fill(&first, 10);
        drop(first.mkdir(b"/dir").unwrap());
        std::mem::forget(first.create(b"/dir/leaked").unwrap());
        std::mem::forget(first.lookup(b"/file-3").unwrap());
        if leak_the_mount {
            std::mem::forget(first);
        } else {
            // The drop returns, although two names stay in use.
            drop(first);
        }
        let second = mount(&dcache, &registry, tree.root());
        fill(&second, 10);
        assert!(second.lookup(b"/dir").unwrap().is_none());
        assert!(second.lookup(b"/file-3").unwrap().is_some());
        while registry.drop_caches() > 0 {}
        second.assert_valid();
        drop(second);
        drop((dcache, registry));
        drop(tree);
    }
}

/// Trims everything, with extreme arguments.
#[derive(Debug)]
struct Greedy;

impl NegativePolicy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }
    fn has_own_lists(&self) -> bool {
        true
    }
    fn negative_added(&self, negative: &NewNegative<'_>) {
        negative.trim_group(u64::MAX, u64::MAX, u64::MAX);
        negative.trim_group(u64::MAX, 1, 0);
        negative.take_ghost(u64::MAX);
        negative.trim_chain(0);
        negative.trim_chain(usize::MAX);
        negative.trim_directory(usize::MAX);
        negative.trim_directory(0);
        negative.trim_group(0, 0, 0);
        negative.trim_group(0, 0, u64::MAX);
        negative.take_ghost(0);
    }
    fn bound(&self, _: BoundInputs) -> Option<u64> {
        Some(1)
    }
}

#[test]
fn a_policy_with_extreme_limits_terminates_and_kills_no_positive() {
    let (tree, registry, dcache) = world(Greedy);
    let mount = mount(&dcache, &registry, tree.root());
    fill(&mount, 500);
    assert!(dcache.statistics().nr_negative <= 1);
    assert_eq!(dcache.statistics().nr_unused - dcache.statistics().nr_negative, 500);
    mount.assert_valid();
}

#[test]
fn maximal_floors_mean_no_bound() {
    for (probation_floor, protected_floor) in [(u64::MAX, u64::MAX), (u64::MAX, 5), (5, u64::MAX)] {
        let policy = Probation { probation_floor, protected_floor, ..Probation::default() };
        assert_eq!(policy.bound(BoundInputs { buckets: 64, positives: 0, directories: 1 }), Some(u64::MAX));
        let (tree, registry, dcache) = world(policy);
        let mount = mount(&dcache, &registry, tree.root());
        fill(&mount, 500);
        assert_eq!(dcache.statistics().nr_negative, 500, "{policy:?}");
    }
    // The other end: without any room, the cache stays valid.
    let zeros = Probation {
        probation_floor: 0,
        protected_floor: 0,
        positives_per_probation: 0,
        positives_per_protected: 0,
        probation_per_directory: 0,
    };
    for policy in [Box::new(zeros) as Box<dyn NegativePolicy>, Box::new(PerDirectory(0)), Box::new(ThreeInARow)] {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let dcache = Dcache::builder().buckets(0).boxed_policy(policy).topology(Arc::new(Fixed::new(1))).build();
        let mount = mount(&dcache, &registry, tree.root());
        fill(&mount, 100);
        mount.assert_valid();
    }
}

#[test]
fn a_mount_works_in_the_destructor_of_a_thread_local() {
    struct Late(Mount, Registry, #[expect(dead_code, reason = "it is dropped last")] MemcgTree);
    impl Drop for Late {
        fn drop(&mut self) {
            fill(&self.0, 50);
            assert!(self.0.lookup(b"/file-7").unwrap().is_some());
            assert!(self.1.drop_caches() > 0);
            self.0.unlink(b"/late").unwrap_err();
        }
    }
    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) } }
    std::thread::spawn(|| {
        // Registers this destructor before those of the library's thread-locals, which run in
        // reverse order: it runs after them.
        LATE.with(|late| drop(late.borrow_mut().take()));
        let (tree, registry, dcache) = world(Probation::default());
        let mount = mount(&dcache, &registry, tree.root());
        drop(mount.create(b"/early").unwrap());
        LATE.with(|late| *late.borrow_mut() = Some(Late(mount, registry, tree)));
    })
    .join()
    .unwrap();
}
