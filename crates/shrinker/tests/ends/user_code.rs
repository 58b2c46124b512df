//! A policy, a clock and a debt listener that call the registry back.
//!
//! The registry must hold none of its locks while it calls one of them; otherwise a call in
//! `meddle` would wait for ever.

use crate::{in_time, register, scan, Hooked, N0};
use lowwater_lru_core::{Memcg, MemcgTree, NodeId};
use lowwater_shrinker::budget::{Ended, Fair, Kick, Plan, PlanInput, Policy};
use lowwater_shrinker::{
    Clock, Count, Debt, DebtListener, Reclaim, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker, Work,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// User code that calls its registry back: as a debt listener, and through [`MeddlingPolicy`].
struct Meddler {
    registry: Mutex<Option<Registry>>,
    calls: AtomicUsize,
}

impl Meddler {
    fn meddle(&self) {
        // Taken out, so that nested calls do nothing.
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

/// A policy and a clock.
struct MeddlingPolicy(Arc<Meddler>);

impl Policy for MeddlingPolicy {
    fn pays(&self, background: bool) -> bool {
        self.0.meddle();
        Fair.pays(background)
    }

    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        self.0.meddle();
        Fair.plan(input, debt)
    }

    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        self.0.meddle();
        Fair.commit(input, debt, plan, scanned, ended)
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

        /// Defers all of its objects.
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
