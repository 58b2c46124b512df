//! Registrations and reclaimers that end inside callbacks: nothing waits for itself, nothing is called afterwards,
//! and all that a shrinker has captured is dropped once.
//!
//! Each test that would hang runs on a thread of its own and fails when a deadline has passed.

#![forbid(unsafe_code)]
#![cfg(all(feature = "std", not(lowwater_loom)))]

use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::budget::{Ended, Fair, Kick, Plan, PlanInput, Policy};
use lowwater_shrinker::{
    Clock, Count, Debt, DebtListener, Reclaim, ReclaimReason, Reclaimer, Registration, Registry, RegistryConfig, Scan,
    Select, ShrinkControl, Shrinker, ShrinkerId, Watermarks, Work,
};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// Longer than any machine takes, unless something never happens.
const PATIENCE: Duration = Duration::from_secs(20);
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
const N0: NodeId = NodeId::ZERO;

/// Runs `f` on a thread of its own, and fails if it takes longer than any machine does.
fn in_time<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(tell.send(f())));
    match told.recv_timeout(PATIENCE) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock: not done within {PATIENCE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A shrinker with one object, whose first scan calls a hook.
#[derive(Default)]
struct Hooked {
    hook: Mutex<Option<Hook>>,
    calls: AtomicUsize,
    /// Dropped with the shrinker.
    probe: Mutex<Option<Arc<()>>>,
    #[expect(dead_code, reason = "it is there to be dropped")]
    on_drop: OnDrop,
}

/// Calls its hook when it is dropped.
#[derive(Default)]
struct OnDrop(Mutex<Option<Hook>>);

impl Hooked {
    fn new(hook: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { hook: Mutex::new(Some(Box::new(hook))), ..Self::default() })
    }
}

impl Shrinker for Hooked {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.calls.fetch_add(1, SeqCst);
        Count::Objects(1)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.calls.fetch_add(1, SeqCst);
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        sc.set_nr_scanned(1);
        Scan::Freed(0)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(hook) = self.0.get_mut().unwrap().take() {
            hook();
        }
    }
}

fn register(registry: &Registry, shrinker: Arc<Hooked>) -> Registration {
    let prepared = registry.builder("hooked").alloc().unwrap();
    prepared.occupancy().occupied(registry.root(), N0);
    prepared.register(shrinker)
}

/// Has the shrinker of this id scan.
fn scan(registry: &Registry, id: ShrinkerId) {
    let _freed = registry.drop_selected(&Select::all().shrinker(id));
}

type Slot<T> = Arc<Mutex<Option<T>>>;

fn slot<T>() -> Slot<T> {
    Arc::new(Mutex::new(None))
}

/// Takes out what is there and drops it without the slot's lock.
fn empty<T>(slot: &Slot<T>) {
    let taken = slot.lock().unwrap().take();
    drop(taken);
}

/// `n` shrinkers, each of which drops the next one's registration in its callback, while all are inside of theirs.
fn ring(registries: &[Registry], n: usize) {
    let slots: Vec<Slot<Registration>> = (0..n).map(|_| slot()).collect();
    let probes: Vec<_> = (0..n).map(|_| Arc::new(())).collect();
    let together = Arc::new(Barrier::new(n));
    let ids: Vec<_> = (0..n)
        .map(|at| {
            let (next, together) = (Arc::clone(&slots[(at + 1) % n]), Arc::clone(&together));
            let hooked = Hooked::new(move || {
                together.wait();
                empty(&next);
            });
            *hooked.probe.lock().unwrap() = Some(Arc::clone(&probes[at]));
            let registration = register(&registries[at % registries.len()], hooked);
            let id = registration.id();
            *slots[at].lock().unwrap() = Some(registration);
            id
        })
        .collect();
    std::thread::scope(|s| {
        for (at, id) in ids.iter().enumerate() {
            s.spawn(move || scan(&registries[at % registries.len()], *id));
        }
    });
    for probe in probes {
        assert_eq!(Arc::strong_count(&probe), 1, "a shrinker was not dropped by the last thread to leave it");
    }
    for registry in registries {
        let stats = registry.snapshot();
        assert_eq!((stats.shrinkers.len(), stats.live_pairs), (0, 0));
        assert_eq!(registry.builder("next").alloc().unwrap().id().get(), 0, "ids come back");
    }
}

#[test]
fn s14_two_shrinkers_that_end_each_other_do_not_wait_for_each_other() {
    in_time(|| {
        for _ in 0..200 {
            ring(&[Registry::new(&MemcgTree::default(), 1)], 2);
        }
    });
}

#[test]
fn s14_three_shrinkers_that_end_each_other_in_a_ring_do_not_wait() {
    in_time(|| {
        for _ in 0..100 {
            ring(&[Registry::new(&MemcgTree::default(), 1)], 3);
        }
    });
}

#[test]
fn s14_shrinkers_of_two_registries_that_end_each_other_do_not_wait() {
    in_time(|| {
        for _ in 0..100 {
            let registries = [(); 2].map(|()| Registry::new(&MemcgTree::default(), 1));
            ring(&registries, 2);
            ring(&registries, 4);
        }
    });
}

#[test]
fn s14_threads_that_end_shrinkers_at_random_inside_callbacks_come_to_an_end() {
    in_time(|| {
        let registry = Registry::new(&MemcgTree::default(), 1);
        let slots: Arc<Vec<Slot<Registration>>> = Arc::new((0..8).map(|_| slot()).collect());
        std::thread::scope(|s| {
            for thread in 0..4_usize {
                let (registry, slots) = (registry.clone(), Arc::clone(&slots));
                s.spawn(move || {
                    for round in 0..500 {
                        let (mine, theirs) = ((thread + round) % 8, (thread * 3 + round * 5) % 8);
                        let ends = Arc::clone(&slots);
                        let registration = register(&registry, Hooked::new(move || empty(&ends[theirs])));
                        let id = registration.id();
                        let old = slots[mine].lock().unwrap().replace(registration);
                        drop(old);
                        scan(&registry, id);
                        let _progress =
                            registry.shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
                    }
                });
            }
        });
        slots.iter().for_each(empty);
        assert_eq!(registry.snapshot().live_pairs, 0);
        assert_eq!(registry.builder("next").alloc().unwrap().id().get(), 0);
    });
}

#[test]
fn s14_a_registration_that_is_dropped_inside_its_own_callback_ends_when_the_callback_returns() {
    in_time(|| {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let (mine, probe) = (slot::<Registration>(), Arc::new(()));
        let hooked = {
            let (mine, probe, registry) = (Arc::clone(&mine), Arc::clone(&probe), registry.clone());
            Hooked::new(move || {
                empty(&mine);
                assert_eq!(Arc::strong_count(&probe), 3, "the shrinker is there while its callback runs");
                assert_eq!(registry.snapshot().shrinkers.len(), 0);
                assert_ne!(registry.builder("next").alloc().unwrap().id().get(), 0, "its id is in use");
            })
        };
        *hooked.probe.lock().unwrap() = Some(Arc::clone(&probe));
        let registration = register(&registry, Arc::clone(&hooked));
        let id = registration.id();
        *mine.lock().unwrap() = Some(registration);
        scan(&registry, id);
        let calls = hooked.calls.load(SeqCst);
        registry.drop_caches();
        assert_eq!(hooked.calls.load(SeqCst), calls, "no callback begins after the end");
        drop(hooked);
        assert_eq!(Arc::strong_count(&probe), 1);
        assert_eq!(registry.builder("next").alloc().unwrap().id().get(), 0);
    });
}

#[test]
fn s14_an_end_that_may_wait_does() {
    in_time(|| {
        let registry = Registry::new(&MemcgTree::default(), 1);
        let inside = Arc::new(AtomicBool::new(false));
        let hooked = {
            let inside = Arc::clone(&inside);
            Hooked::new(move || {
                inside.store(true, SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                inside.store(false, SeqCst);
            })
        };
        let registration = register(&registry, hooked);
        let id = registration.id();
        std::thread::scope(|s| {
            s.spawn(|| scan(&registry, id));
            until("the callback begins", || inside.load(SeqCst));
            drop(registration);
            assert!(!inside.load(SeqCst), "a callback in flight was not waited for");
        });
    });
}

#[test]
fn an_end_inside_a_callback_is_refused_only_where_it_would_have_to_wait() {
    in_time(|| {
        let registry = Registry::new(&MemcgTree::default(), 1);
        let (busy, idle) = (slot::<Registration>(), slot::<Registration>());
        let (tell, told) = mpsc::channel::<()>();
        let (leave, wait) = mpsc::channel::<()>();
        let blocks = Hooked::new(move || {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        let blocks = register(&registry, blocks);
        let blocks_id = blocks.id();
        *busy.lock().unwrap() = Some(blocks);
        *idle.lock().unwrap() = Some(register(&registry, Hooked::new(|| ())));
        let ends = {
            let (busy, idle) = (Arc::clone(&busy), Arc::clone(&idle));
            Hooked::new(move || {
                let taken = idle.lock().unwrap().take().unwrap();
                assert!(taken.unregister().is_ok(), "nobody is inside");
                let taken = busy.lock().unwrap().take().unwrap();
                let (error, back) = taken.unregister().unwrap_err();
                assert!(error.to_string().contains("callback"), "{error}");
                *busy.lock().unwrap() = Some(back);
            })
        };
        let ends = register(&registry, ends);
        std::thread::scope(|s| {
            s.spawn(|| scan(&registry, blocks_id));
            told.recv_timeout(PATIENCE).unwrap();
            scan(&registry, ends.id());
            assert_eq!(ends.stats().panics, 0);
            leave.send(()).unwrap();
        });
        let back = busy.lock().unwrap().take().unwrap();
        assert!(back.unregister().is_ok(), "it is registered still");
    });
}

/// A registry with a reclaimer, and the slot from which a callback may drop it.
fn reclaimed() -> (MemcgTree, Registry, Slot<Reclaimer>) {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    let slot = Arc::new(Mutex::new(Some(reclaimer)));
    (tree, registry, slot)
}

fn wake(slot: &Slot<Reclaimer>, root: &Memcg) {
    let _charged = root.try_charge(ByteSize::new(1)).unwrap();
    slot.lock().unwrap().as_ref().unwrap().wake(root, ReclaimReason::Manual(ByteSize::new(1)));
}

#[test]
fn two_reclaimers_that_end_each_other_do_not_join_each_other() {
    in_time(|| {
        let worlds = [reclaimed(), reclaimed()];
        let together = Arc::new(Barrier::new(2));
        let done = Arc::new(AtomicUsize::new(0));
        let _registrations = [0, 1].map(|at: usize| {
            let (other, together, done) = (Arc::clone(&worlds[1 - at].2), Arc::clone(&together), Arc::clone(&done));
            let hooked = Hooked::new(move || {
                together.wait();
                empty(&other);
                done.fetch_add(1, SeqCst);
            });
            register(&worlds[at].1, hooked)
        });
        let slots: Vec<_> = worlds.iter().map(|(tree, _, slot)| (tree.root(), slot)).collect();
        // Both are woken before one of them can end the other.
        slots.iter().for_each(|(root, slot)| wake(slot, root));
        until("both callbacks return", || done.load(SeqCst) == 2);
    });
}

#[test]
fn a_reclaimer_that_is_dropped_in_a_callback_its_thread_waits_for_is_not_joined() {
    in_time(|| {
        let (tree, registry, reclaimer) = reclaimed();
        let (entered, may_go) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let theirs = {
            let (entered, may_go) = (Arc::clone(&entered), Arc::clone(&may_go));
            Hooked::new(move || {
                entered.wait();
                until("the other callback returns", || may_go.load(SeqCst));
            })
        };
        let theirs = register(&registry, theirs);
        wake(&reclaimer, tree.root());
        entered.wait();
        let other = Registry::new(&MemcgTree::default(), 1);
        let mine = {
            let reclaimer = Arc::clone(&reclaimer);
            register(&other, Hooked::new(move || empty(&reclaimer)))
        };
        let start = Instant::now();
        scan(&other, mine.id());
        assert!(start.elapsed() < PATIENCE / 2, "the thread was joined inside a callback");
        may_go.store(true, SeqCst);
        drop(theirs);
    });
}

/// A panic's payload whose own drop panics.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload's own fault");
        }
    }
}

/// Is the thread alive that the reclaimer has? It serves another shrinker.
fn serves_another(registry: &Registry, reclaimer: &Slot<Reclaimer>) {
    let served = Arc::new(AtomicBool::new(false));
    let hooked = {
        let served = Arc::clone(&served);
        Hooked::new(move || served.store(true, SeqCst))
    };
    let _registration = register(registry, hooked);
    until("the reclaimer's thread serves another shrinker", || {
        wake(reclaimer, registry.root());
        served.load(SeqCst)
    });
}

#[test]
fn a_payload_whose_drop_panics_does_not_end_the_reclaimers_thread() {
    in_time(|| {
        let (_tree, registry, reclaimer) = reclaimed();
        let entered = Arc::new(AtomicBool::new(false));
        let throws = {
            let entered = Arc::clone(&entered);
            Hooked::new(move || {
                entered.store(true, SeqCst);
                std::panic::panic_any(Grenade)
            })
        };
        let throws = register(&registry, throws);
        wake(&reclaimer, registry.root());
        until("it throws", || entered.load(SeqCst) && throws.stats().quarantined);
        serves_another(&registry, &reclaimer);
        empty(&reclaimer);
    });
}

#[test]
fn a_shrinker_whose_drop_panics_on_the_reclaimers_thread_does_not_end_it() {
    in_time(|| {
        let (_tree, registry, reclaimer) = reclaimed();
        let (mine, dropped) = (slot::<Registration>(), Arc::new(AtomicBool::new(false)));
        let hooked = {
            let (mine, dropped) = (Arc::clone(&mine), Arc::clone(&dropped));
            let hook: Hook = Box::new(move || {
                until("the registration is there", || mine.lock().unwrap().is_some());
                empty(&mine);
            });
            let on_drop: Hook = Box::new(move || {
                dropped.store(true, SeqCst);
                std::panic::panic_any(Grenade)
            });
            let on_drop = OnDrop(Mutex::new(Some(on_drop)));
            Arc::new(Hooked { hook: Mutex::new(Some(hook)), on_drop, ..Hooked::default() })
        };
        let registration = register(&registry, hooked);
        *mine.lock().unwrap() = Some(registration);
        wake(&reclaimer, registry.root());
        until("the shrinker is dropped", || dropped.load(SeqCst));
        serves_another(&registry, &reclaimer);
        empty(&reclaimer);
    });
}

/// A policy that panics as long as it is told to.
struct Moody(Arc<AtomicBool>, Arc<AtomicUsize>);

impl Policy for Moody {
    fn pays(&self, background: bool) -> bool {
        Fair.pays(background)
    }

    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan {
        if self.0.load(SeqCst) {
            self.1.fetch_add(1, SeqCst);
            panic!("the policy's own fault");
        }
        Fair.plan(ask, debt)
    }

    fn commit(&self, ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        Fair.commit(ask, debt, plan, scanned, ended)
    }

    fn owed_max(&self, freeable: u64) -> u64 {
        Fair.owed_max(freeable)
    }
}

#[test]
fn a_policy_that_panics_does_not_end_the_reclaimers_thread() {
    in_time(|| {
        let (moody, panics) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let policy = Arc::new(Moody(Arc::clone(&moody), Arc::clone(&panics)));
        let registry = Registry::with_config(&MemcgTree::default(), RegistryConfig::new(1).policy(policy));
        let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
        let reclaimer = Arc::new(Mutex::new(Some(reclaimer)));
        let asked = register(&registry, Hooked::new(|| ()));
        wake(&reclaimer, registry.root());
        until("the policy is asked", || panics.load(SeqCst) > 0);
        moody.store(false, SeqCst);
        serves_another(&registry, &reclaimer);
        until("nobody is inside any more", || asked.stats().in_flight == 0);
        drop(asked);
        empty(&reclaimer);
    });
}

/// A topology that panics when it is asked for processors, and when it is dropped.
#[derive(Debug)]
struct Broken(Arc<AtomicUsize>);

impl Topology for Broken {
    fn nodes(&self) -> usize {
        1
    }

    fn current(&self) -> NodeId {
        N0
    }

    fn cpus_of(&self, _: NodeId) -> &[usize] {
        self.0.fetch_add(1, SeqCst);
        panic!("the topology's own fault");
    }

    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        10
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        std::panic::panic_any(Grenade);
    }
}

#[test]
fn a_topology_that_panics_meets_the_caller_of_start() {
    in_time(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let registry = Registry::new(&MemcgTree::default(), 1);
        // Asked on the thread that starts: the first panic is the question's, and no thread is left behind that waits.
        let topology: Arc<dyn Topology> = Arc::new(Broken(Arc::clone(&panics)));
        let asked = Arc::clone(&topology);
        let start = AssertUnwindSafe(|| Reclaimer::start(&registry, asked, MARKS));
        let Err(payload) = catch_unwind(start) else { panic!("the topology panics") };
        assert_eq!(payload.downcast_ref(), Some(&"the topology's own fault"));
        assert_eq!(panics.load(SeqCst), 1);
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(topology))) else { panic!("its drop panics") };
        std::mem::forget(payload);
        // A reclaimer can be started all the same.
        let reclaimer =
            Arc::new(Mutex::new(Some(Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap())));
        serves_another(&registry, &reclaimer);
        empty(&reclaimer);
    });
}

/// User code of a registry that calls the registry back: as a clock, as a policy, and as who hears of debts.
struct Meddler {
    registry: Mutex<Option<Registry>>,
    calls: AtomicUsize,
}

impl Meddler {
    fn meddle(&self) {
        // Taken out, so that what it calls and calls it again does nothing.
        let Some(registry) = self.registry.lock().unwrap().take() else { return };
        self.calls.fetch_add(1, SeqCst);
        let registration = register(&registry, Hooked::new(|| ()));
        let _stats = (registry.snapshot(), registry.survey(), registry.footprint(), registration.stats());
        let _freed = registry.drop_caches();
        let _swept = registry.sweep();
        let _outcome = registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| false);
        registry.set_debt_listener(None);
        drop(registration);
        *self.registry.lock().unwrap() = Some(registry);
    }
}

struct MeddlingPolicy(Arc<Meddler>);

impl Policy for MeddlingPolicy {
    fn pays(&self, background: bool) -> bool {
        self.0.meddle();
        Fair.pays(background)
    }

    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan {
        self.0.meddle();
        Fair.plan(ask, debt)
    }

    fn commit(&self, ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        self.0.meddle();
        Fair.commit(ask, debt, plan, scanned, ended)
    }

    fn owed_max(&self, freeable: u64) -> u64 {
        self.0.meddle();
        Fair.owed_max(freeable)
    }

    fn kick(&self, _: &PlanInput, _: u64) -> Kick {
        self.0.meddle();
        Kick::Now
    }
}

impl Clock for MeddlingPolicy {
    fn now_ns(&self) -> u64 {
        self.0.meddle();
        1
    }
}

impl DebtListener for Meddler {
    fn notify_debt(&self, _: &Memcg, _: NodeId, _: Kick) {
        self.meddle();
    }
}

#[test]
fn a_policy_a_clock_and_a_debt_listener_may_use_the_registry() {
    in_time(|| {
        let meddler = Arc::new(Meddler { registry: Mutex::new(None), calls: AtomicUsize::new(0) });
        let policy = Arc::new(MeddlingPolicy(Arc::clone(&meddler)));
        let config = RegistryConfig::new(1).policy(Arc::clone(&policy) as _).clock(policy);
        let registry = Registry::with_config(&MemcgTree::default(), config);
        registry.set_debt_listener(Some(Arc::clone(&meddler) as _));
        *meddler.registry.lock().unwrap() = Some(registry.clone());

        /// Leaves all of it as a debt.
        struct Later;
        impl Shrinker for Later {
            fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
                sc.will_defer();
                Count::Objects(1_000)
            }
            fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
                Scan::Stop
            }
        }
        let prepared = registry.builder("later").alloc().unwrap();
        prepared.occupancy().occupied(registry.root(), N0);
        let _later = prepared.register(Arc::new(Later));
        let asked = register(&registry, Hooked::new(|| ()));
        let _progress = registry.shrink(registry.root(), N0, 0, Reclaim::FOREGROUND, &mut Work::unlimited());
        let _outcome = registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| false);
        scan(&registry, asked.id());
        assert!(meddler.calls.load(SeqCst) > 5, "this test shows nothing");
        *meddler.registry.lock().unwrap() = None;
    });
}
