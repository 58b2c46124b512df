//! A registry with an allocator that fails once, at each allocation of a call in turn. The creation
//! of a registry, `alloc` and `try_register` return their documented error and leak nothing. Not
//! tested: `try_occupancy`, which can report an error only with `--cfg lowwater_try_arc`.
//!
//! Reclaim runs because memory is short, so it must not abort for want of memory, and must find all
//! objects once there is memory again: the other tests.
//!
//! A new function with this error needs a test.

#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::{meanwhile, refused_after, ALLOCATED};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId, Occupancy};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{
    Count, Job, Prepared, Reclaim, Registry, RegistryConfig, Scan, Select, ShrinkControl, Shrinker, ShrinkerAllocError,
    Work,
};

const N0: NodeId = NodeId::ZERO;

struct Pool(AtomicU64);

impl Shrinker for Pool {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(self.0.load(Relaxed))
    }
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let freed = self.0.load(Relaxed).min(sc.nr_to_scan());
        self.0.fetch_sub(freed, Relaxed);
        sc.set_nr_scanned(freed);
        Scan::Freed(freed)
    }
}

fn pool(objects: u64) -> Arc<Pool> {
    Arc::new(Pool(AtomicU64::new(objects)))
}

/// Creates a tree, and makes the one-time allocations of the thread and the tree, which do not
/// belong to a registry.
fn warm_up() -> MemcgTree {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let registration = registry.builder("first").alloc().unwrap().register(pool(1));
    registry.drop_caches();
    drop(registration);
    tree
}

#[test]
fn each_allocation_of_a_registry_may_fail() {
    let tree = warm_up();
    for nodes in [1, 3] {
        let topology: Arc<dyn Topology> = Arc::new(Fixed::new(nodes));
        for nth in 0.. {
            let (start, footprint) = (ALLOCATED.get(), tree.footprint());
            let (made, refused) = refused_after(nth, || {
                let config = RegistryConfig::try_with_topology(Arc::clone(&topology))?;
                Registry::try_with_config(&tree, config)
            });
            match &made {
                Ok(registry) => assert_eq!((registry.nodes(), refused), (nodes, false)),
                Err(error) => assert_eq!((error, refused), (&ShrinkerAllocError::NoMemory, true)),
            }
            drop(made);
            assert_eq!((ALLOCATED.get(), tree.footprint()), (start, footprint), "nothing is left of allocation {nth}");
            if !refused {
                // With fewer, the allocator would not have failed as it should.
                assert!(nth >= 7, "{nth} allocations");
                break;
            }
        }
    }
}

#[test]
fn each_allocation_of_a_shrinker_may_fail() {
    let tree = warm_up();
    let registry = Registry::new(&tree, 1);
    // A hundred shrinkers, so that the tables of ids grow in some of the calls.
    let mut kept = Vec::with_capacity(100);
    for n in 0..100_u32 {
        let shrinker = pool(10);
        for nth in 0.. {
            let (prepared, refused) = refused_after(nth, || registry.builder("a name of its own").alloc());
            match prepared {
                Ok(prepared) => {
                    assert!(!refused && nth >= 2, "{nth} allocations");
                    assert_eq!(prepared.id().get(), n, "the ids of those that found no memory are free");
                    break;
                }
                Err(error) => assert_eq!((error, refused), (ShrinkerAllocError::NoMemory, true)),
            }
        }
        for nth in 0.. {
            let prepared = registry.builder("a name of its own").alloc().unwrap();
            let handle: Arc<dyn Shrinker> = Arc::clone(&shrinker) as Arc<_>;
            let (registration, refused) = refused_after(nth, || prepared.try_register(handle));
            match registration {
                Ok(registration) => {
                    assert!(!refused && nth >= 1);
                    assert_eq!((registration.id().get(), registration.name()), (n, "a name of its own"));
                    kept.push((registration, shrinker));
                    break;
                }
                Err(error) => {
                    assert_eq!((error, refused), (ShrinkerAllocError::NoMemory, true));
                    assert_eq!(Arc::strong_count(&shrinker), 1, "the shrinker is its owner's again");
                    assert_eq!(registry.snapshot().shrinkers.len(), n as usize);
                }
            }
        }
    }
}

#[test]
fn reclaim_without_any_memory_ends_and_loses_nothing() {
    let tree = warm_up();
    let group = tree.root().create("g").unwrap();
    for nth in 0.. {
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("pool").alloc().unwrap();
        let occupancy = prepared.occupancy();
        let shrinker = pool(3_000);
        let registration = prepared.register(Arc::clone(&shrinker) as Arc<_>);
        let ((), refused) = refused_after(nth, || {
            // From here on no call may abort.
            occupancy.occupied(&group, N0);
            registry.shrink(tree.root(), N0, 6, Reclaim::FOREGROUND, &mut Work::objects(10));
            FullScan::new(&registry).shrink(tree.root(), N0, 6, Reclaim::FOREGROUND, &mut Work::objects(10));
            registry.direct_reclaim(&group, Reclaim::FOREGROUND, &|| shrinker.0.load(Relaxed) < 2_500);
            registry.pay_debts(&group, N0, &mut Work::unlimited());
            registry.reclaim_selected(&Select::all().memcg(&group), ByteSize::new(10));
            Job::new(group.clone(), ByteSize::ZERO).step(&registry, N0, 10);
            registry.sweep();
        });
        // With memory again, pairs for which there was none are found.
        registry.drop_caches();
        assert_eq!(shrinker.0.load(Relaxed), 0, "allocation {nth}");
        drop(registration);
        assert_eq!(Arc::strong_count(&shrinker), 1);
        if !refused {
            assert!(nth >= 5, "{nth} allocations");
            return;
        }
    }
}

/// Lists are filled before the registration, without memory for a bit. A resync before the
/// registration cannot count the shrinker.
#[test]
fn s11_a_resync_before_the_registration_loses_no_bit() {
    let tree = warm_up();
    let group = tree.root().create("g").unwrap();
    for nth in 0.. {
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("pool").alloc().unwrap();
        let occupancy = prepared.occupancy();
        let ((), refused) = refused_after(nth, || occupancy.occupied(&group, N0));
        assert_found_after_a_pass(&registry, prepared, nth);
        if !refused {
            assert!(nth >= 3, "{nth} allocations");
            return;
        }
    }
}

/// Asserts that all objects of a shrinker that is registered after a pass are found by the next
/// one.
fn assert_found_after_a_pass(registry: &Registry, prepared: Prepared, nth: usize) {
    registry.drop_caches();
    let shrinker = pool(3_000);
    let _registration = prepared.register(Arc::clone(&shrinker) as Arc<_>);
    registry.drop_caches();
    assert_eq!(shrinker.0.load(Relaxed), 0, "allocation {nth}");
}

/// As above, but a group ends without memory for the bit of its parent.
#[test]
fn s11_a_resync_before_the_registration_loses_no_bit_of_an_ended_group() {
    let tree = warm_up();
    for nth in 0.. {
        let parent = tree.root().create("parent").unwrap();
        let child = parent.create("child").unwrap();
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("pool").alloc().unwrap();
        prepared.occupancy().occupied(&child, N0);
        let (ended, refused) = refused_after(nth, || child.offline());
        ended.unwrap();
        assert_found_after_a_pass(&registry, prepared, nth);
        parent.offline().unwrap();
        if !refused {
            assert!(nth >= 1, "{nth} allocations");
            return;
        }
    }
}

/// The registration itself has no memory for the root's bit, and another pass resyncs before the
/// shrinker can be looked up.
#[test]
fn s11_a_resync_during_the_registration_loses_no_bit() {
    let tree = warm_up();
    for nth in 0.. {
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("pool").memcg_aware(false).alloc().unwrap();
        let shrinker = pool(3_000);
        let handle: Arc<dyn Shrinker> = Arc::clone(&shrinker) as Arc<_>;
        let pass = || {
            registry.drop_caches();
        };
        // The first allocation after the failure is that of the registered shrinker.
        let ((registration, has_passed), refused) =
            refused_after(nth, || meanwhile(nth, &pass, || prepared.try_register(handle)));
        assert!(refused, "the loop ends when the allocation of the registered shrinker fails");
        let Ok(_registration) = registration else {
            assert!(nth >= 2, "{nth} allocations");
            return;
        };
        assert!(has_passed);
        registry.drop_caches();
        assert_eq!(shrinker.0.load(Relaxed), 0, "allocation {nth}");
    }
}

/// A thread is inside the shrinker, and a resync has no memory to record a second one.
#[test]
fn s11_a_resync_that_is_not_admitted_loses_no_bit() {
    let tree = warm_up();
    let (first, second) = (tree.root().create("first").unwrap(), tree.root().create("second").unwrap());
    let shrink = |registry: &Registry| {
        registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
    };
    for nth in 0.. {
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("gated").alloc().unwrap();
        let occupancy = prepared.occupancy();
        let gated = Arc::new(Gated::new(second.clone()));
        let _registration = prepared.register(Arc::clone(&gated) as Arc<_>);
        occupancy.occupied(&first, N0);
        // Asserted only after the gate has opened: the other thread waits at it.
        let (no_bit, refused) = std::thread::scope(|s| {
            s.spawn(|| shrink(&registry));
            gated.gate.wait();
            let ((), no_bit) = refused_after(0, || occupancy.occupied(&second, N0));
            let ((), refused) = refused_after(nth, || shrink(&registry));
            gated.gate.wait();
            (no_bit, refused)
        });
        assert!(no_bit);
        registry.drop_caches();
        assert_eq!(gated.pool.0.load(Relaxed), 0, "allocation {nth}");
        if !refused {
            assert!(nth >= 3, "{nth} allocations");
            return;
        }
    }
}

/// A shrinker with objects of one group, whose first count waits twice at a gate.
struct Gated {
    group: Memcg,
    pool: Pool,
    gate: Barrier,
    has_waited: AtomicBool,
}

impl Gated {
    fn new(group: Memcg) -> Self {
        Self { group, pool: Pool(AtomicU64::new(3_000)), gate: Barrier::new(2), has_waited: AtomicBool::new(false) }
    }
}

impl Shrinker for Gated {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        if !self.has_waited.swap(true, Relaxed) {
            self.gate.wait();
            self.gate.wait();
        }
        if *sc.memcg() == self.group {
            self.pool.count_objects(sc)
        } else {
            Count::Empty
        }
    }
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.pool.scan_objects(sc)
    }
}

/// A visit clears the bit of a group with a debt, and finds objects by its second count. Meanwhile
/// the shrinker got objects of another group, so there may be no memory to set the bit again.
#[test]
fn s17_a_bit_that_had_no_memory_leaves_no_debt_to_the_next_owner() {
    let tree = warm_up();
    let (group, other) = (tree.root().create("g").unwrap(), tree.root().create("other").unwrap());
    for nth in 0.. {
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("stuck").alloc().unwrap();
        let occupancy = prepared.occupancy();
        let stuck =
            Arc::new(Stuck { other: other.clone(), occupancy: prepared.occupancy(), counts: AtomicU64::new(0) });
        let registration = prepared.register(stuck);
        let id = registration.id();
        occupancy.occupied(&group, N0);
        let shrink = || {
            registry.shrink(&group, N0, 2, Reclaim::FOREGROUND, &mut Work::unlimited());
        };
        shrink();
        assert_eq!(registry.owed(&group, N0, id), 500);
        let ((), refused) = refused_after(nth, shrink);
        drop(registration);
        let prepared = registry.builder("heir").alloc().unwrap();
        assert_eq!(prepared.id(), id, "the id is reused");
        let occupancy = prepared.occupancy();
        let _registration = prepared.register(pool(1_000));
        occupancy.occupied(&group, N0);
        assert_eq!(registry.owed(&group, N0, id), 0, "allocation {nth}");
        if !refused {
            assert!(nth >= 4, "{nth} allocations");
            return;
        }
    }
}

/// A shrinker that frees nothing. Its second count is "empty"; in the third, it gets objects of
/// another group.
struct Stuck {
    other: Memcg,
    occupancy: Arc<dyn Occupancy>,
    counts: AtomicU64,
}

impl Shrinker for Stuck {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.counts.fetch_add(1, Relaxed) {
            1 => return Count::Empty,
            2 => self.occupancy.occupied(&self.other, N0),
            _ => {}
        }
        Count::Objects(1_000)
    }
    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}
