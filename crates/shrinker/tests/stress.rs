//! Stress tests with several threads: invariants that hold at the end, and invariants that hold at
//! all times.
//!
//! Threads repeat steps for half a second, or until a state is reached. The numbers in the names of
//! tests are those of docs/INVARIANTS.md.
//!
//! A step that is added must keep these invariants true.

#![cfg(not(lowwater_loom))]

mod common;

use common::{shelf_on, Shelf};
use lowwater_lru_core::{MemcgTree, NodeId};
use lowwater_shrinker::{Count, Reclaim, Registration, Registry, Scan, ShrinkControl, Shrinker, Work};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;

/// A pseudorandom generator with one sequence per seed, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn s11_no_object_is_hidden_during_concurrent_changes() {
    let (tree, registry, shelf, _registration) = shelf_on(2, Shelf::new());
    let added = AtomicU64::new(0);
    let freed = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for seed in 0..3 {
            let (tree, shelf, added, stop) = (&tree, &shelf, &added, &stop);
            s.spawn(move || {
                let mut dice = Dice(seed);
                while !stop.load(Relaxed) {
                    // A group and its child get a few objects, some of them after the child's end,
                    // and die while other threads reclaim.
                    let group = tree.root().create(&format!("{seed}")).unwrap();
                    let child = group.create("child").unwrap();
                    for n in 0..dice.roll(20) {
                        if n == 9 {
                            child.offline().unwrap();
                        }
                        let memcg = if dice.roll(2) == 0 { &group } else { &child };
                        shelf.add(memcg, NodeId::new(dice.roll(2) as u16), 1);
                        added.fetch_add(1, Relaxed);
                    }
                    let _ = child.offline();
                    group.offline().unwrap();
                }
            });
        }
        for seed in 10..13 {
            let (tree, registry, freed, stop) = (&tree, &registry, &freed, &stop);
            s.spawn(move || {
                let mut dice = Dice(seed);
                while !stop.load(Relaxed) {
                    let node = NodeId::new(dice.roll(2) as u16);
                    let mut work = Work::objects(1 + dice.roll(50));
                    let priority = dice.roll(4) as u8;
                    let progress = if dice.roll(2) == 0 {
                        registry.shrink(tree.root(), node, priority, Reclaim::KSWAPD, &mut work).freed
                    } else {
                        registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false).freed
                    };
                    freed.fetch_add(progress, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Relaxed);
    });
    freed.fetch_add(registry.drop_caches(), Relaxed);
    assert_eq!(shelf.total(), 0, "objects are hidden from reclaim");
    assert_eq!(freed.load(Relaxed), added.load(Relaxed));
    let snapshot = registry.snapshot();
    assert_eq!((snapshot.live_pairs, snapshot.live_groups), (0, 0));
    assert_eq!(tree.len(), 1);
}

/// Counts its calls, and the callbacks after its registration has ended: the registry would catch a
/// panic.
#[derive(Default)]
struct Owned {
    gone: AtomicBool,
    called: AtomicU64,
    late: Arc<AtomicU64>,
}

impl Shrinker for Owned {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.late.fetch_add(self.gone.load(SeqCst).into(), SeqCst);
        self.called.fetch_add(1, Relaxed);
        Count::Objects(1)
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        self.late.fetch_add(self.gone.load(SeqCst).into(), SeqCst);
        Scan::Freed(0)
    }
}

#[test]
fn s14_s15_registrations_begin_and_end_during_passes() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let steady = Arc::new(Owned::default());
    let prepared = registry.builder("steady").alloc().unwrap();
    prepared.occupancy().occupied(tree.root(), N0);
    let _registration = prepared.register(Arc::clone(&steady) as Arc<dyn Shrinker>);
    let stop = AtomicBool::new(false);
    let passes = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
                    passes.fetch_add(1, Relaxed);
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    let prepared = registry.builder("passing").alloc().unwrap();
                    prepared.occupancy().occupied(tree.root(), N0);
                    let shrinker = Arc::new(Owned { late: Arc::clone(&steady.late), ..Owned::default() });
                    let registration = prepared.register(Arc::clone(&shrinker) as Arc<dyn Shrinker>);
                    std::thread::yield_now();
                    registration.unregister().unwrap();
                    shrinker.gone.store(true, SeqCst);
                    assert_eq!(Arc::strong_count(&shrinker), 1, "the registry still has a handle");
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Relaxed);
    });
    // Both threads may be inside the steady shrinker at once, so each pass counted it exactly once.
    assert_eq!(steady.called.load(Relaxed), passes.load(Relaxed));
    assert_eq!(steady.late.load(SeqCst), 0, "callbacks after the end of their registration");
    assert_eq!(registry.snapshot().shrinkers.len(), 1);
}

/// A thread stays inside its count until `leave` is set.
#[derive(Default)]
struct Slow {
    entered: AtomicBool,
    leave: AtomicBool,
}

impl Shrinker for Slow {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.entered.store(true, SeqCst);
        while !self.leave.load(SeqCst) {
            std::thread::yield_now();
        }
        Count::Empty
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

impl Slow {
    /// Registers it with an object in the root.
    fn register(self: &Arc<Self>, registry: &Registry) -> Registration {
        let prepared = registry.builder("slow").alloc().unwrap();
        prepared.occupancy().occupied(registry.root(), N0);
        prepared.register(Arc::clone(self) as Arc<dyn Shrinker>)
    }

    /// Waits until a thread is inside.
    fn wait_until_entered(&self) {
        while !self.entered.load(SeqCst) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn s14_a_registration_waits_for_its_own_callback_only() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let slow = Arc::new(Slow::default());
    let registration = slow.register(&registry);
    let other = registry.builder("other").alloc().unwrap().register(Arc::new(Shelf::new()));
    std::thread::scope(|s| {
        s.spawn(|| registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited()));
        slow.wait_until_entered();
        // Another shrinker ends, and a third is registered and ended, while a thread is inside the
        // slow one.
        drop(other);
        drop(registry.builder("third").alloc().unwrap().register(Arc::new(Shelf::new())));
        let ended = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&ended);
        let waiter = s.spawn(move || {
            registration.unregister().unwrap();
            says.store(true, SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ended.load(SeqCst), "unregistered while its callback runs");
        slow.leave.store(true, SeqCst);
        waiter.join().unwrap();
    });
}

#[test]
fn registering_costs_no_grace_period() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let slow = Arc::new(Slow::default());
    let _registration = slow.register(&registry);
    let (ends, has_ended) = mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(|| registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited()));
        slow.wait_until_entered();
        s.spawn(|| {
            let ends = ends;
            let other: Arc<dyn Shrinker> = Arc::new(Shelf::new());
            let round = || {
                let begun = Instant::now();
                for _ in 0..100 {
                    drop(registry.builder("passing").alloc().unwrap().register(Arc::clone(&other)));
                }
                begun.elapsed()
            };
            ends.send((0..10).map(|_| round()).min()).unwrap();
        });
        // A grace period does not end while a thread is inside.
        let ended = has_ended.recv_timeout(Duration::from_secs(60));
        slow.leave.store(true, SeqCst);
        let least = ended.expect("1,000 registrations end while a thread is inside a callback").unwrap();
        // No registration waits for a fixed time either. A busy machine delays some rounds only.
        assert!(least < Duration::from_millis(200), "100 registrations take {least:?}");
    });
}
