//! Policies, clocks and debt listeners that panic, lie, or use the registry that called them.
//!
//! After a panic no lock, `InFlight` or scope may be kept, which `ends_well` checks.
//!
//! A new callback needs a case for each fault.

use crate::common::Shelf;
use crate::hazard::within;
use crate::reclaimer;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::budget::{Ended, Fair, Kick, Plan, PlanInput, Policy};
use lowwater_shrinker::{
    Clock, Debt, DebtListener, Reclaim, Registration, Registry, RegistryConfig, Scan, Select, Work,
};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

const N0: NodeId = NodeId::ZERO;
/// The index of the clock, after the policy's five methods.
const CLOCK: usize = 5;

/// A registry with a shelf of 100,000 objects.
struct Stage {
    tree: MemcgTree,
    registry: Registry,
    shelf: Arc<Shelf>,
    registration: Registration,
}

fn stage(config: RegistryConfig) -> Stage {
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 100_000);
    Stage { tree, registry, shelf, registration }
}

impl Stage {
    /// Makes each scan of the foreground stop, so that it leaves a debt.
    fn stop_in_the_foreground(&self) {
        let stop = |sc: &mut lowwater_shrinker::ShrinkControl<'_>| {
            (!sc.flags().contains(Reclaim::BACKGROUND)).then_some(Scan::Stop)
        };
        assert!(self.shelf.scan.set(Box::new(stop)).is_ok());
    }

    /// Makes each call that uses a policy, a clock or a debt listener. Returns how many panicked.
    fn reclaim(&self) -> usize {
        let (registry, root) = (&self.registry, self.tree.root());
        let ways: [&dyn Fn(); 8] = [
            &|| _ = registry.shrink(root, N0, 0, Reclaim::FOREGROUND, &mut Work::objects(10)),
            &|| _ = registry.shrink(root, N0, 12, Reclaim::KSWAPD, &mut Work::objects(10)),
            &|| _ = registry.direct_reclaim(root, Reclaim::FOREGROUND, &|| false),
            &|| _ = registry.pay_debts(root, N0, &mut Work::objects(10)),
            &|| _ = registry.reclaim_selected(&Select::all(), ByteSize::new(1)),
            &|| _ = FullScan::new(registry).shrink(root, N0, 0, Reclaim::FOREGROUND, &mut Work::objects(10)),
            &|| _ = registry.survey(),
            &|| _ = (registry.snapshot(), registry.debugfs_count(self.registration.id())),
        ];
        ways.iter().filter(|way| catch_unwind(AssertUnwindSafe(way)).is_err()).count()
    }

    /// Asserts that no lock, `InFlight` or scope was kept.
    fn ends_well(self) {
        self.shelf.add(self.tree.root(), N0, 5);
        assert!(self.registry.first_no_reclaim_scope().is_some(), "a scope was kept");
        assert!(self.registry.drop_caches() >= 5);
        self.registration.unregister().unwrap();
    }
}

/// As [`Fair`], except for one method, which panics in its first six calls: so several of the ways
/// to reclaim panic.
struct Panics {
    /// Calls of the method so far.
    at: AtomicUsize,
    /// The index of the method.
    which: usize,
    reentered: OnceLock<(Weak<Registered>, Memcg)>,
}

/// Objects that a policy or clock may use and drop from inside.
struct Registered {
    registry: Registry,
    dropped: Mutex<Option<Registration>>,
}

impl Panics {
    fn new(which: usize) -> Self {
        Self { at: AtomicUsize::new(0), which, reentered: OnceLock::new() }
    }

    /// Called at the beginning of each method, with the method's index. In the method under test:
    /// uses and drops the registry's objects from inside, and panics in the first six calls.
    fn call(&self, which: usize) {
        if which != self.which {
            return;
        }
        if let Some((registered, memcg)) = self.reentered.get() {
            if let Some(registered) = registered.upgrade() {
                // Reclaim inside a callback does nothing.
                assert_eq!(registered.registry.drop_caches(), 0);
                assert!(registered.registry.first_no_reclaim_scope().is_none());
                let _ = registered.registry.footprint();
                if which != CLOCK {
                    // This calls the clock.
                    let _ = registered.registry.snapshot();
                }
                let child = memcg.create("made inside").unwrap();
                child.offline().unwrap();
                let other = registered.dropped.lock().unwrap().take();
                drop(other);
            }
        }
        let nth = self.at.fetch_add(1, Relaxed);
        assert!(nth >= 6, "the policy's own fault");
    }
}

impl Policy for Panics {
    fn pays(&self, background: bool) -> bool {
        self.call(0);
        Fair.pays(background)
    }
    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        self.call(1);
        Fair.plan(input, debt)
    }
    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        self.call(2);
        Fair.commit(input, debt, plan, scanned, ended)
    }
    fn owed_max(&self, freeable: u64) -> u64 {
        self.call(3);
        Fair.owed_max(freeable)
    }
    fn kick(&self, input: &PlanInput, owed: u64) -> Kick {
        self.call(4);
        Fair.kick(input, owed)
    }
}

impl Clock for Panics {
    fn now_ns(&self) -> u64 {
        self.call(CLOCK);
        1
    }
}

/// Lets one method of the policy, or the clock, panic six times, and checks that each panic reached
/// the caller of reclaim, and that nothing was kept.
fn panics_in(which: usize, config: impl FnOnce(RegistryConfig, Arc<Panics>) -> RegistryConfig) {
    let panics = Arc::new(Panics::new(which));
    let stage = stage(config(RegistryConfig::new(1), panics.clone()));
    stage.stop_in_the_foreground();
    let other = Arc::new(Shelf::new()).register(stage.registry.builder("other").alloc().unwrap());
    let dropped = Mutex::new(Some(other));
    let registered = Arc::new(Registered { registry: stage.registry.clone(), dropped });
    assert!(panics.reentered.set((Arc::downgrade(&registered), stage.tree.root().clone())).is_ok());
    let mut died = 0;
    while panics.at.load(Relaxed) < 6 {
        let before = panics.at.load(Relaxed);
        died += stage.reclaim();
        assert!(panics.at.load(Relaxed) > before, "method {which} is not called");
    }
    assert_eq!(died, 6, "method {which}");
    assert!(registered.dropped.lock().unwrap().is_none());
    stage.ends_well();
}

#[test]
fn a_policy_that_panics_keeps_no_lock_and_no_shrinker() {
    within("policies that panic", || {
        (0..5).for_each(|which| panics_in(which, |config, panics| config.policy(panics)));
    });
}

#[test]
fn a_clock_that_panics_keeps_no_lock_and_no_shrinker() {
    within("clocks that panic", || panics_in(CLOCK, |config, panics| config.clock(panics)));
}

/// A policy with arbitrary results.
struct Lies(u64);

impl Policy for Lies {
    fn pays(&self, _: bool) -> bool {
        self.0 % 2 == 0
    }
    fn plan(&self, _: &PlanInput, _: Debt) -> Plan {
        let n = |shift: u32| [0, 1, u64::MAX][(self.0 >> shift) as usize % 3];
        Plan { delta: n(0), total: n(1), scan_min: n(2), rest: n(3) }
    }
    fn commit(&self, _: &PlanInput, _: Debt, _: &Plan, _: u64, _: Ended) -> Debt {
        Debt { owed: self.owed_max(0), carry: u64::MAX }
    }
    fn owed_max(&self, _: u64) -> u64 {
        [u64::MAX, 0, 7][self.0 as usize % 3]
    }
    fn kick(&self, _: &PlanInput, _: u64) -> Kick {
        [Kick::Now, Kick::Soon, Kick::Never][self.0 as usize % 3]
    }
}

#[test]
fn a_policy_with_wrong_results_terminates() {
    within("policies that lie", || {
        for lie in 0..24 {
            let stage = stage(RegistryConfig::new(1).policy(Arc::new(Lies(lie))));
            stage.stop_in_the_foreground();
            let threads = reclaimer(&stage.registry);
            let _ = stage.tree.root().try_charge(ByteSize::mib(2)).unwrap();
            stage.tree.root().set_max(ByteSize::mib(1));
            for _ in 0..2 {
                assert_eq!(stage.reclaim(), 0, "lie {lie}");
                threads.charged(stage.tree.root());
            }
            drop(threads);
            stage.registry.drop_caches();
            stage.registration.unregister().unwrap();
        }
    });
}

#[test]
fn a_debt_listener_may_do_anything() {
    struct Busy {
        registry: OnceLock<Registry>,
        dropped: Mutex<Option<Registration>>,
        calls: AtomicU32,
    }
    impl DebtListener for Busy {
        fn notify_debt(&self, memcg: &Memcg, node: NodeId, _: Kick) {
            let registry = self.registry.get().unwrap();
            assert_eq!(
                registry.pay_debts(memcg, node, &mut Work::unlimited()).0.scanned,
                0,
                "reclaim inside a callback does nothing"
            );
            assert_eq!(registry.drop_caches(), 0);
            let other = self.dropped.lock().unwrap().take();
            drop(other);
            let late = Arc::new(Shelf::new());
            *self.dropped.lock().unwrap() = Some(late.register(registry.builder("late").alloc().unwrap()));
            late.add(memcg, node, 1);
            let _ = registry.snapshot();
            let call = self.calls.fetch_add(1, Relaxed);
            if call == 3 {
                // Removes itself; the call keeps the listener alive until it returns.
                registry.set_debt_listener(None);
            }
            assert!(call % 2 == 0, "the listener's own fault");
        }
    }
    /// As [`Fair`], but notifies of each debt, however small, at once.
    struct NotifiesNow;
    impl Policy for NotifiesNow {
        fn pays(&self, background: bool) -> bool {
            Fair.pays(background)
        }
        fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
            Fair.plan(input, debt)
        }
        fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
            Fair.commit(input, debt, plan, scanned, ended)
        }
        fn owed_max(&self, freeable: u64) -> u64 {
            Fair.owed_max(freeable)
        }
        fn kick(&self, _: &PlanInput, _: u64) -> Kick {
            Kick::Now
        }
    }
    within("listeners", || {
        let stage = stage(RegistryConfig::new(1).policy(Arc::new(NotifiesNow)));
        stage.stop_in_the_foreground();
        let other = Arc::new(Shelf::new()).register(stage.registry.builder("other").alloc().unwrap());
        let busy =
            Arc::new(Busy { registry: OnceLock::new(), dropped: Mutex::new(Some(other)), calls: AtomicU32::new(0) });
        assert!(busy.registry.set(stage.registry.clone()).is_ok());
        stage.registry.set_debt_listener(Some(busy.clone()));
        let mut died = 0;
        for _ in 0..10 {
            died += stage.reclaim();
        }
        assert_eq!((busy.calls.load(Relaxed), died), (4, 2), "after the fourth call it is not notified");
        let ended = busy.dropped.lock().unwrap().take();
        drop(ended);
        assert!(stage.registry.drop_caches() > 0);
        stage.registration.unregister().unwrap();
        assert_eq!(Arc::strong_count(&busy), 1);
    });
}
