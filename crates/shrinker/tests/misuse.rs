//! Safe programs that misuse the API: groups of another tree, nodes that do not exist, handles that
//! are leaked or dropped late, callbacks that call back, policies that lie. Nothing hangs, nothing
//! panics unless documented, and no other shrinker's objects are hidden from reclaim.
//!
//! Each case uses safe code only. A new public function needs a case here or, if the case may hang
//! or abort, in `hazards`, which has deadlines and processes for it.

#![cfg(all(feature = "std", not(lowwater_loom)))]
#![forbid(unsafe_code)]

mod common;

use common::{one_shelf, Shelf};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::budget::{Ended, Kick, Plan, PlanInput, Policy};
use lowwater_shrinker::{
    Count, Debt, DebtListener, DirectStop, Job, NoReclaim, Progress, Reclaim, Registration, Registry, RegistryConfig,
    Scan, Select, ShrinkControl, Shrinker, Step, Work,
};
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const N0: NodeId = NodeId::ZERO;
/// A node number beyond the last node of every registry here.
const N9: NodeId = NodeId::new(9);

fn shrink(registry: &Registry, root: &Memcg, node: NodeId) -> Progress {
    registry.shrink(root, node, 0, Reclaim::KSWAPD, &mut Work::unlimited())
}

#[test]
fn reports_for_a_foreign_group_hide_no_objects() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let other = MemcgTree::new(0);
    let foreign = other.root().create("theirs").unwrap();
    // Has the same id as the group that is created next here.
    shelf.occupied(&foreign, N0);
    let ours = tree.root().create("ours").unwrap();
    assert_eq!(ours.id(), foreign.id());
    assert_eq!(registry.snapshot().live_pairs, 0, "another tree's group is none of ours");
    shelf.add(&ours, N0, 10);
    shelf.occupied(&foreign, N0);
    assert_eq!(registry.drop_caches(), 10);
    foreign.offline().unwrap();
    assert_eq!(registry.snapshot().live_pairs, 0);
}

#[test]
fn reclaim_from_another_trees_group_does_nothing() {
    let (_tree, registry, shelf, registration) = one_shelf();
    let other = MemcgTree::new(0);
    let theirs = other.root();
    let _ = theirs.try_charge(ByteSize::new(100)).unwrap();
    shelf.add(registry.root(), N0, 1_000);
    assert_eq!(shrink(&registry, theirs, N0), Progress::default());
    assert_eq!(
        FullScan::new(&registry).shrink(theirs, N0, 0, Reclaim::KSWAPD, &mut Work::unlimited()),
        Progress::default()
    );
    assert_eq!(registry.drop_selected(&Select::all().memcg(theirs)), 0);
    let outcome = registry.direct_reclaim(theirs, Reclaim::FOREGROUND, &|| false);
    assert_eq!((outcome.callbacks, outcome.stopped), (0, DirectStop::NothingLeft));
    assert_eq!(registry.pay_debts(theirs, N0, &mut Work::unlimited()), (Progress::default(), 0));
    assert_eq!(registry.reclaim_selected(&Select::all().memcg(theirs), ByteSize::new(100)), ByteSize::ZERO);
    let mut job = Job::new(theirs.clone(), ByteSize::ZERO);
    let steps = (0..100).take_while(|_| job.step(&registry, N0, 100) == Step::Again).count();
    // A step for each of the 13 priorities, and a few without progress.
    assert!(steps < 20, "{steps} steps");
    assert_eq!((registration.stats().callbacks, shelf.total()), (0, 1_000));
}

#[test]
fn an_invalid_node_hides_no_objects_and_never_panics() {
    let (tree, registry, shelf, registration) = one_shelf();
    let root = tree.root();
    shelf.add(root, N0, 1_000);
    assert_eq!(shrink(&registry, root, N9), Progress::default());
    assert_eq!(
        FullScan::new(&registry).shrink(root, N9, 0, Reclaim::KSWAPD, &mut Work::unlimited()),
        Progress::default()
    );
    assert_eq!(registry.drop_selected(&Select::all().node(N9)), 0);
    assert_eq!(registry.pay_debts(root, N9, &mut Work::unlimited()), (Progress::default(), 0));
    assert_eq!(registry.reclaim_selected(&Select::all().node(N9), ByteSize::new(100)), ByteSize::ZERO);
    assert_eq!(registry.owed(root, N9, registration.id()), 0);
    // The shelf reports a node that the registry does not have: the report sets the bit of the
    // registry's last node.
    shelf.occupied(root, N9);
    let group = root.create("g").unwrap();
    shelf.occupied(&group, N9);
    assert_eq!(registry.snapshot().live_pairs, 2);
    assert_eq!(registry.debugfs_count(registration.id()).unwrap(), "0 1000\n");
    group.offline().unwrap();
    assert_eq!((registry.drop_caches(), registry.snapshot().live_pairs), (1_000, 0));
    shelf.occupied(root, N9);
    registration.unregister().unwrap();
    assert_eq!(registry.snapshot().live_pairs, 0);
}

#[test]
fn leaked_handles_do_not_affect_other_shrinkers() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: it leaks by intent");
    }
    let (tree, registry, shelf, registration) = one_shelf();
    shelf.add(tree.root(), N0, 10);
    // A registration: the shrinker stays registered, and is called.
    std::mem::forget(registration);
    assert_eq!(registry.drop_caches(), 10);
    // An id: it stays allocated. A pass finds its bits, looks the id up, and finds no shrinker.
    let prepared = registry.builder("leaked").alloc().unwrap();
    let id = prepared.id();
    prepared.occupancy().occupied(tree.root(), N0);
    std::mem::forget(prepared);
    assert_ne!(registry.builder("next").alloc().unwrap().id(), id);
    assert_eq!(shrink(&registry, tree.root(), N0), Progress::default());
    // A scope: its thread does not reclaim any more, other threads do.
    shelf.add(tree.root(), N0, 10);
    std::mem::forget(registry.no_reclaim_scope());
    assert_eq!(registry.drop_caches(), 0);
    assert_eq!(std::thread::scope(|s| s.spawn(|| registry.drop_caches()).join().unwrap()), 10);
    // A handle on the registry, and the tree.
    std::mem::forget(registry.clone());
    drop(registry);
    tree.root().create("g").unwrap().offline().unwrap();
    std::mem::forget(tree);
}

/// Dropped when its thread ends, after thread-locals that were first used later: destructors run in
/// the reverse order of first use.
struct Late {
    registry: Registry,
    shelf: Arc<Shelf>,
    registration: Option<Registration>,
    freed: Arc<AtomicU64>,
}

impl Drop for Late {
    fn drop(&mut self) {
        let root = self.registry.root().clone();
        self.shelf.add(&root, N0, 5);
        let scope: NoReclaim<'_> = self.registry.no_reclaim_scope();
        assert_eq!(self.registry.drop_caches(), 0);
        drop(scope);
        self.freed.fetch_add(self.registry.drop_caches(), Relaxed);
        let outcome = self.registry.direct_reclaim(&root, Reclaim::FOREGROUND, &|| false);
        assert_eq!(outcome.stopped, DirectStop::NothingLeft);
        self.registration.take().unwrap().unregister().unwrap();
        let next = self.registry.builder("late").alloc().unwrap().register(Arc::clone(&self.shelf) as Arc<_>);
        drop(next);
    }
}

#[test]
fn a_registry_works_in_the_destructor_of_a_thread_local() {
    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) } }
    let freed = Arc::new(AtomicU64::new(0));
    let again = Arc::clone(&freed);
    std::thread::spawn(move || {
        // First used before this thread has used the library, so its destructor runs after the
        // library's own thread-locals are destroyed.
        LATE.with(|late| drop(late.borrow_mut().take()));
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.add(tree.root(), N0, 1);
        registry.drop_caches();
        let late = Late { registry, shelf, registration: Some(registration), freed: again };
        LATE.with(|place| *place.borrow_mut() = Some(late));
        drop(tree);
    })
    .join()
    .unwrap();
    assert_eq!(freed.load(Relaxed), 5);
}

#[test]
fn a_callback_may_call_everything_and_reclaim_does_nothing() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let (inside, root) = (registry.clone(), tree.root().clone());
    let (other, made) = (Arc::new(Shelf::new()), Arc::new(Mutex::new(Vec::new())));
    let other_registration = Mutex::new(Some(other.register(registry.builder("other").alloc().unwrap())));
    let kept = Arc::clone(&made);
    let calls = AtomicU64::new(0);
    let all = move |memcg: &Memcg| {
        let n = calls.fetch_add(1, Relaxed);
        // None of these calls reclaims: the thread is in a callback.
        assert_eq!(inside.drop_caches(), 0);
        assert_eq!(inside.direct_reclaim(&root, Reclaim::FOREGROUND, &|| false).stopped, DirectStop::InScope);
        assert_eq!(shrink(&inside, &root, N0), Progress::default());
        assert_eq!(FullScan::new(&inside).drop_caches(), 0);
        assert_eq!(inside.pay_debts(&root, N0, &mut Work::unlimited()).0, Progress::default());
        assert_eq!(inside.sweep().given_back, 0);
        assert!(inside.first_no_reclaim_scope().is_none());
        drop(inside.no_reclaim_scope());
        let _ = (inside.snapshot(), inside.survey(), inside.footprint(), inside.debugfs_names());
        // Groups are created, charged, and ended.
        let group = root.create(&format!("made-{n}")).unwrap();
        let _ = group.try_charge(ByteSize::new(10)).unwrap();
        let _ = memcg.try_charge(ByteSize::new(10)).unwrap();
        memcg.uncharge(ByteSize::new(10));
        group.uncharge(ByteSize::new(10));
        group.offline().unwrap();
        // A new shrinker is registered, and the registration of another one is dropped.
        let shelf = Arc::new(Shelf::new());
        let registration = shelf.register(inside.builder("made").alloc().unwrap());
        shelf.add(&root, N0, 1);
        kept.lock().unwrap().push((shelf, registration));
        drop(other_registration.lock().unwrap().take());
        inside.set_debt_listener(None);
    };
    let all = Arc::new(all);
    let again = Arc::clone(&all);
    shelf
        .count
        .set(Box::new(move |sc| {
            again(sc.memcg());
            None
        }))
        .ok()
        .unwrap();
    shelf
        .scan
        .set(Box::new(move |sc| {
            all(sc.memcg());
            None
        }))
        .ok()
        .unwrap();
    shelf.add(tree.root(), N0, 300);
    registry.drop_caches();
    assert_eq!(shelf.total(), 0);
    assert!(made.lock().unwrap().len() > 2);
    registry.drop_caches();
    made.lock().unwrap().clear();
    assert_eq!(registry.snapshot().shrinkers.len(), 1);
}

/// A policy with the given results.
struct Liar(Plan, Debt, Kick);

impl Policy for Liar {
    fn pays(&self, background: bool) -> bool {
        background
    }
    fn plan(&self, _: &PlanInput, _: Debt) -> Plan {
        self.0
    }
    fn commit(&self, _: &PlanInput, _: Debt, _: &Plan, _: u64, _: Ended) -> Debt {
        self.1
    }
    fn owed_max(&self, _: u64) -> u64 {
        u64::MAX
    }
    fn kick(&self, _: &PlanInput, _: u64) -> Kick {
        self.2
    }
}

/// Calls reclaim, which does nothing inside a notification, and removes itself.
struct Eager(Registry);

impl DebtListener for Eager {
    fn notify_debt(&self, memcg: &Memcg, node: NodeId, _: Kick) {
        self.0.pay_debts(memcg, node, &mut Work::unlimited());
        self.0.drop_caches();
        self.0.set_debt_listener(None);
    }
}

#[test]
fn a_policy_with_extreme_results_terminates_and_debts_saturate() {
    for total in [0, 1, u64::MAX] {
        for scan_min in [0, 1, u64::MAX] {
            for owed in [0, u64::MAX] {
                let plan = Plan { delta: u64::MAX, total, scan_min, rest: u64::MAX };
                let debt = Debt { owed, carry: owed };
                let tree = MemcgTree::new(0);
                let config = RegistryConfig::new(1).policy(Arc::new(Liar(plan, debt, Kick::Now)));
                let registry = Registry::with_config(&tree, config);
                registry.set_debt_listener(Some(Arc::new(Eager(registry.clone()))));
                let shelf = Arc::new(Shelf::new());
                let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
                shelf.add(tree.root(), N0, 1_000);
                for flags in [Reclaim::KSWAPD, Reclaim::FOREGROUND] {
                    registry.shrink(tree.root(), N0, 3, flags, &mut Work::objects(100));
                    registry.shrink(tree.root(), N0, 3, flags, &mut Work::objects(100));
                }
                let group = tree.root().create("g").unwrap();
                shelf.occupied(&group, N0);
                group.offline().unwrap();
                assert!(registry.owed(tree.root(), N0, registration.id()) <= owed);
                registry.pay_debts(tree.root(), N0, &mut Work::unlimited());
                registry.drop_caches();
            }
        }
    }
}

/// A policy that panics in `plan` while its flag is set.
struct Bad(AtomicBool);

impl Policy for Bad {
    fn pays(&self, _: bool) -> bool {
        true
    }
    fn plan(&self, input: &PlanInput, _: Debt) -> Plan {
        assert!(!self.0.load(Relaxed), "the policy's own fault");
        Plan { delta: input.freeable, total: input.freeable, scan_min: 1, rest: 0 }
    }
    fn commit(&self, _: &PlanInput, _: Debt, _: &Plan, _: u64, _: Ended) -> Debt {
        Debt::NONE
    }
    fn owed_max(&self, freeable: u64) -> u64 {
        freeable
    }
}

#[test]
fn a_panicking_policy_or_listener_keeps_no_lock_and_no_in_flight() {
    let tree = MemcgTree::new(0);
    let policy = Arc::new(Bad(AtomicBool::new(true)));
    let registry = Registry::with_config(&tree, RegistryConfig::new(1).policy(Arc::clone(&policy) as Arc<_>));
    let shelf = Arc::new(Shelf::new());
    let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 100);
    assert!(catch_unwind(AssertUnwindSafe(|| registry.drop_caches())).is_err());
    assert_eq!(registration.stats().in_flight, 0);
    policy.0.store(false, Relaxed);
    assert_eq!(registry.drop_caches(), 100);

    struct Panics;
    impl DebtListener for Panics {
        fn notify_debt(&self, _: &Memcg, _: NodeId, _: Kick) {
            panic!("the listener's own fault");
        }
    }
    let (tree, registry, shelf, registration) = one_shelf();
    registry.set_debt_listener(Some(Arc::new(Panics)));
    shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
    shelf.add(tree.root(), N0, 10_000);
    let direct = || registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert!(catch_unwind(AssertUnwindSafe(direct)).is_err());
    assert_eq!(registration.stats().in_flight, 0);
    assert!(registry.owed(tree.root(), N0, registration.id()) > 0, "the debt was recorded before the notification");
    registry.set_debt_listener(None);
    assert_eq!(direct().stopped, DirectStop::NothingLeft);
    registration.unregister().unwrap();
}

/// While it is dropped, looks for itself in the registry's statistics, and allocates an id.
struct Dying {
    registry: Registry,
    id: Arc<AtomicU64>,
    seen: Arc<Mutex<Option<(bool, bool)>>>,
}

impl Shrinker for Dying {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Empty
    }
    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        let id = self.id.load(Relaxed);
        let is_named = self.registry.snapshot().shrinkers.iter().any(|stats| u64::from(stats.id.get()) == id);
        let next = self.registry.builder("heir").alloc().unwrap();
        *self.seen.lock().unwrap() = Some((is_named, u64::from(next.id().get()) == id));
    }
}

#[test]
fn an_id_is_reused_only_after_its_shrinker_is_dropped() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let (id, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let dying = Dying { registry: registry.clone(), id: Arc::clone(&id), seen: Arc::clone(&seen) };
    let registration = registry.builder("dying").alloc().unwrap().register(Arc::new(dying));
    id.store(registration.id().get().into(), Relaxed);
    let own = registration.id();
    registration.unregister().unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        Some((false, false)),
        "it was withdrawn before it was dropped, and its id was still in use"
    );
    assert_eq!(registry.builder("next").alloc().unwrap().id(), own);
}

#[test]
fn a_list_reports_only_to_its_own_registry() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let second = Registry::new(&tree, 1);
    let registration = second.builder("second").alloc().unwrap().register(Arc::clone(&shelf) as Arc<_>);
    shelf.add(tree.root(), N0, 10);
    // The second registry gets no reports; nothing is freed twice.
    assert_eq!((second.drop_caches(), registry.drop_caches()), (0, 10));
    registration.unregister().unwrap();
}

#[test]
fn dropped_registries_leave_no_hooks_in_the_tree() {
    let tree = MemcgTree::new(0);
    let before = tree.footprint();
    for _ in 0..100 {
        let registry = Registry::new(&tree, 1);
        tree.root().create("g").unwrap().offline().unwrap();
        drop(registry);
    }
    assert_eq!(tree.footprint(), before, "no hook of a registry that is gone");
}
