//! Model checks of the registry: a pass meets an unregister, and an add.

use super::*;
use crate::shrinker::{Count, Scan, Shrinker};
use crate::ShrinkControl;
use ::loom::thread;
use lowwater_lru_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lowwater_lru_core::sync::with_mutant;

const N0: NodeId = NodeId::ZERO;

/// A cache that minds being called when its owner is gone.
struct Owned {
    gone: AtomicBool,
    objects: AtomicU64,
}

impl Owned {
    fn new(objects: u64) -> Arc<Self> {
        Arc::new(Self { gone: AtomicBool::new(false), objects: AtomicU64::new(objects) })
    }
}

impl Shrinker for Owned {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        assert!(!self.gone.load(Ordering::Relaxed), "called after its registration ended");
        match self.objects.load(Ordering::Relaxed) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        assert!(!self.gone.load(Ordering::Relaxed), "called after its registration ended");
        self.objects.fetch_sub(1, Ordering::Relaxed);
        sc.set_nr_scanned(1);
        Scan::Freed(1)
    }
}

fn pass(registry: &Registry) -> Progress {
    registry.shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited())
}

/// A pass is under way while the registration is dropped.
fn pass_meets_unregister() {
    ::loom::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("owned").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), N0);
        let cache = Owned::new(1);
        let registration = prepared.register(Arc::clone(&cache) as Arc<dyn Shrinker>);
        let reclaimer = {
            let registry = registry.clone();
            thread::spawn(move || {
                pass(&registry);
            })
        };
        registration.unregister().unwrap();
        cache.gone.store(true, Ordering::Relaxed);
        reclaimer.join().unwrap();
        assert_eq!(registry.inner.map.live(), (0, 0), "bits of an id that is gone");
    });
}

#[test]
fn s14_no_callback_runs_after_its_registration_ended() {
    pass_meets_unregister();
}

#[test]
#[should_panic = "called after its registration ended"]
fn s14_a_callback_runs_too_late_if_nobody_waits_for_it() {
    with_mutant("close_without_waiting", pass_meets_unregister);
}

/// A pass finds a list empty while an object is added.
fn pass_meets_add() {
    ::loom::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("owned").alloc().unwrap();
        let occupancy = prepared.occupancy();
        occupancy.occupied(tree.root(), N0);
        let cache = Owned::new(0);
        let registration = prepared.register(Arc::clone(&cache) as Arc<dyn Shrinker>);
        let adder = {
            let (cache, root) = (Arc::clone(&cache), tree.root().clone());
            thread::spawn(move || {
                cache.objects.fetch_add(1, Ordering::Relaxed);
                occupancy.occupied(&root, N0);
            })
        };
        let first = pass(&registry).freed;
        adder.join().unwrap();
        let freed = first + pass(&registry).freed;
        // Before the check, whose failure must not unwind through locks.
        drop((registration, registry, tree));
        assert_eq!(freed, 1, "an object is hidden from reclaim");
    });
}

#[test]
fn s11_an_object_is_never_hidden_from_a_pass() {
    pass_meets_add();
}

#[test]
#[should_panic = "an object is hidden from reclaim"]
fn s11_an_object_is_hidden_if_a_clear_is_not_followed_by_a_count() {
    with_mutant("clear_without_recount", pass_meets_add);
}
