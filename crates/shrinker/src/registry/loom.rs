//! Model checks of the registry: a pass beside the end of a registration, beside an add, and beside
//! a registration; shrinkers that end each other; threads that pay one debt; and two passes that
//! find objects in their second counts.
//!
//! Models are as small as possible, as loom runs every interleaving: one node, the root group, one
//! or two shrinkers, two threads. A `fails_with_` test repeats a check without one step of the
//! code, and the check must fail.

use super::in_flight::InFlight;
use super::*;
use crate::control::{Reclaim, ShrinkControl};
use crate::shrinker::{Count, Scan, Shrinker};
use crate::stats::VisitCounts;
use crate::work::{Progress, Work};
use ::loom::thread;
use alloc::sync::Arc;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lowwater_base::sync::with_mutant;
use lowwater_lru_core::{MemcgTree, NodeId};

const N0: NodeId = NodeId::ZERO;

/// A cache that asserts that it is not called after its owner is gone.
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

/// A pass runs while the registration is dropped.
fn pass_meets_unregister() {
    lowwater_base::sync::model(|| {
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
        assert_eq!(registry.core.map.live(), (0, 0), "bits of an id that is gone");
    });
}

#[test]
fn s14_no_callback_runs_after_its_registration_ended() {
    pass_meets_unregister();
}

#[test]
#[should_panic = "called after its registration ended"]
fn s14_fails_with_close_without_waiting() {
    with_mutant("close_without_waiting", pass_meets_unregister);
}

/// A cache that counts its running callbacks.
#[derive(Default)]
struct Busy(AtomicU64);

impl Shrinker for Busy {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.0.fetch_sub(1, Ordering::Relaxed);
        Count::Unknown
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

/// A callback may be in flight when its registration ends without waiting: the id is reused only
/// after the callback has returned.
fn callback_meets_nowait() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("busy").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), N0);
        let cache = Arc::new(Busy::default());
        let registration = prepared.register(Arc::clone(&cache) as Arc<dyn Shrinker>);
        let reclaimer = {
            let registry = registry.clone();
            thread::spawn(move || {
                let sc = ShrinkControl::count(registry.root(), N0, Reclaim::KSWAPD);
                registry.core.lookup(0).map(|guard| guard.count(&sc).is_ok())
            })
        };
        registration.unregister_nowait();
        let is_found = registry.core.lookup(0).is_some();
        let next = registry.builder("next").alloc().unwrap();
        let early = next.id().get() == 0 && cache.0.load(Ordering::Relaxed) > 0;
        drop(next);
        reclaimer.join().unwrap();
        let handles = Arc::strong_count(&cache);
        let id = registry.builder("last").alloc().unwrap().id().get();
        let live = registry.core.map.live();
        // Before the checks: a failed check must not unwind through locks.
        drop((registry, tree));
        assert!(!is_found, "a callback begins after the end");
        assert!(!early, "an id is another's while a callback of its last owner runs");
        assert_eq!((id, live, handles), (0, (0, 0), 1), "an end is not finished");
    });
}

#[test]
fn s14_s17_an_end_that_does_not_wait_is_finished_by_the_last_callback() {
    callback_meets_nowait();
}

#[test]
#[should_panic = "an id is another's while a callback of its last owner runs"]
fn s17_fails_with_end_while_inside() {
    with_mutant("end_while_inside", callback_meets_nowait);
}

#[test]
#[should_panic = "an end is not finished"]
fn s14_fails_with_leave_without_ending() {
    with_mutant("leave_without_ending", callback_meets_nowait);
}

/// Two threads, each inside one shrinker, drop the registration of the other thread's shrinker.
fn two_end_each_other() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let [a, b] = ["a", "b"].map(|name| registry.builder(name).alloc().unwrap().register(Owned::new(1)));
        let enters_and_ends = |registry: &Registry, id: u32, ends: Registration| {
            let guard = registry.core.lookup(id);
            drop(ends);
            drop(guard);
        };
        let other = {
            let registry = registry.clone();
            thread::spawn(move || enters_and_ends(&registry, 0, b))
        };
        enters_and_ends(&registry, 1, a);
        other.join().unwrap();
        let id = registry.builder("last").alloc().unwrap().id().get();
        assert_eq!((registry.core.shrinker_stats().len(), id), (0, 0));
    });
}

#[test]
fn s14_callbacks_that_unregister_each_other_do_not_deadlock() {
    two_end_each_other();
}

/// As [`two_end_each_other`], with the `InFlight`s alone, for the mutant: when loom finds its
/// deadlock, it must not unwind through registrations.
fn two_close_each_other() {
    lowwater_base::sync::model(|| {
        let in_flights = Arc::new([InFlight::<()>::default(), InFlight::<()>::default()]);
        let enters_and_closes = |in_flights: &[InFlight<()>; 2], mine: usize| {
            // Not dropped when loom unwinds: the drop would access a thread-local of the model.
            let scope = core::mem::ManuallyDrop::new(crate::CallbackScope::enter());
            let is_inside = in_flights[mine].try_get();
            let _refused = in_flights[1 - mine].kill_and_wait();
            if is_inside {
                assert!(in_flights[mine].put(&VisitCounts::default()).is_none(), "no end was left");
            }
            drop(core::mem::ManuallyDrop::into_inner(scope));
        };
        let other = {
            let in_flights = Arc::clone(&in_flights);
            thread::spawn(move || enters_and_closes(&in_flights, 0))
        };
        enters_and_closes(&in_flights, 1);
        other.join().unwrap();
    });
}

#[test]
fn s14_two_in_flights_are_killed_from_inside_each_other() {
    two_close_each_other();
}

#[test]
#[should_panic = "deadlock"]
fn s14_fails_with_close_waits_in_a_callback() {
    with_mutant("close_waits_in_a_callback", two_close_each_other);
}

/// A pass finds a list empty while an object is added.
fn pass_meets_add() {
    lowwater_base::sync::model(|| {
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
        // Before the check: a failed check must not unwind through locks.
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
fn s11_fails_with_clear_without_recount() {
    with_mutant("clear_without_recount", pass_meets_add);
}

#[test]
#[should_panic = "called after its registration ended"]
fn s14_fails_with_enter_closed() {
    with_mutant("enter_closed", pass_meets_unregister);
}

/// A pass beside the registration of a shrinker whose lists are filled before, as `report` tells
/// the registry.
fn pass_beside_register(report: fn(&Registry, &Prepared)) {
    lowwater_base::sync::model(move || {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("late").alloc().unwrap();
        report(&registry, &prepared);
        let cache = Owned::new(1);
        let reclaimer = {
            let registry = registry.clone();
            thread::spawn(move || pass(&registry).freed)
        };
        let registration = prepared.register(Arc::clone(&cache) as Arc<dyn Shrinker>);
        let freed = reclaimer.join().unwrap();
        let freed = freed + pass(&registry).freed;
        // Before the check: a failed check must not unwind through locks.
        drop((registration, registry, tree));
        assert_eq!(freed, 1, "an object is hidden from reclaim");
    });
}

/// The report sets the bit.
fn pass_meets_register() {
    pass_beside_register(|registry, prepared| prepared.occupancy().occupied(registry.root(), N0));
}

#[test]
fn s11_s20_a_late_registered_shrinker_is_reached() {
    pass_meets_register();
}

#[test]
#[should_panic = "an object is hidden from reclaim"]
fn s11_fails_with_clear_unregistered() {
    with_mutant("clear_unregistered", pass_meets_register);
}

/// As above, but there was no memory for the bit, so the node is dirty: the pass resyncs.
fn resync_meets_register() {
    pass_beside_register(|registry, _| registry.core.map.mark_dirty(N0));
}

#[test]
fn s11_a_late_registered_shrinker_is_reached_by_a_resync() {
    resync_meets_register();
}

#[test]
#[should_panic = "an object is hidden from reclaim"]
fn s11_fails_with_resync_uncounted() {
    with_mutant("resync_uncounted", resync_meets_register);
}

/// A shrinker with 1,000 objects, which defers without [`Reclaim::MAY_FS`], and counts the objects
/// that it was requested to scan.
struct Plenty(AtomicU64);

impl Shrinker for Plenty {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        if !sc.flags().contains(Reclaim::MAY_FS) {
            sc.will_defer();
        }
        Count::Objects(1000)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.0.fetch_add(sc.nr_to_scan(), Ordering::Relaxed);
        Scan::Freed(sc.nr_to_scan())
    }
}

/// Two threads pay at once. At priority 4 the debt is 125 objects, of which each thread pays at
/// most 64, so both take a part. The paid objects and the rest must add up to the debt.
fn payers_meet() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("plenty").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), N0);
        let cache = Arc::new(Plenty(AtomicU64::new(0)));
        let registration = prepared.register(Arc::clone(&cache) as Arc<dyn Shrinker>);
        registry.shrink(tree.root(), N0, 4, Reclaim::MAY_BLOCK, &mut Work::unlimited());
        let debt = registry.owed(tree.root(), N0, registration.id());
        let pay = |registry: &Registry| registry.pay_debts(registry.root(), N0, &mut Work::objects(64));
        let other = {
            let registry = registry.clone();
            thread::spawn(move || {
                pay(&registry);
            })
        };
        pay(&registry);
        other.join().unwrap();
        let left = registry.owed(tree.root(), N0, registration.id());
        let paid = cache.0.load(Ordering::Relaxed);
        drop((registration, registry, tree));
        assert_eq!(paid + left, debt, "a debt is paid twice, or lost");
    });
}

#[test]
fn s5_concurrent_payers_share_the_debt() {
    payers_meet();
}

#[test]
#[should_panic = "a debt is paid twice, or lost"]
fn s5_fails_with_take_debt_without_exchange() {
    with_mutant("take_debt_without_exchange", payers_meet);
}

/// A shrinker with 1,000 objects, which defers without [`Reclaim::MAY_FS`]. In the first count of
/// the background, and of a foreground with that flag, they do not exist yet.
struct Late([AtomicBool; 2]);

impl Shrinker for Late {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        if !sc.flags().contains(Reclaim::MAY_FS) {
            sc.will_defer();
            return Count::Objects(1000);
        }
        let is_counted = &self.0[usize::from(sc.flags().contains(Reclaim::BACKGROUND))];
        match is_counted.swap(true, Ordering::Relaxed) {
            true => Count::Objects(1000),
            false => Count::Empty,
        }
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

/// Each pass clears the bit, and its second count sets it again. One pass must not remove the debt
/// while the other has the bit clear.
#[test]
fn s18_second_counts_that_find_objects_keep_the_debt() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("late").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), N0);
        let registration = prepared.register(Arc::new(Late(Default::default())));
        registry.shrink(tree.root(), N0, 4, Reclaim::MAY_BLOCK, &mut Work::unlimited());
        let debt = registry.owed(tree.root(), N0, registration.id());
        let pass = |registry: &Registry, flags| {
            registry.shrink(registry.root(), N0, 12, flags, &mut Work::unlimited());
        };
        let other = {
            let registry = registry.clone();
            thread::spawn(move || pass(&registry, Reclaim::KSWAPD))
        };
        pass(&registry, Reclaim::FOREGROUND);
        other.join().unwrap();
        let left = registry.owed(tree.root(), N0, registration.id());
        drop((registration, registry, tree));
        assert_eq!(left, debt, "the debt of a live pair is lost");
    });
}
