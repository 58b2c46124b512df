//! Reclaimers that are dropped inside callbacks, and reclaimer threads on which user code panics.
//!
//! The threads must survive every panic, and no drop may wait for a thread that waits for it.

use crate::{empty, in_time, register, scan, slot, until, Hook, Hooked, OnDrop, Slot, MARKS, N0, PATIENCE};
use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::budget::{Ended, Fair, Plan, PlanInput, Policy};
use lowwater_shrinker::{Debt, ReclaimReason, Reclaimer, Registration, Registry, RegistryConfig};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

/// A registry with a reclaimer, in a slot from which a callback may drop it.
fn reclaimed() -> (MemcgTree, Registry, Slot<Reclaimer>) {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    let slot = Arc::new(Mutex::new(Some(reclaimer)));
    (tree, registry, slot)
}

/// Charges a byte, so that there is something to reclaim, and wakes the reclaimer.
fn wake(slot: &Slot<Reclaimer>, root: &Memcg) {
    let _charged = root.try_charge(ByteSize::new(1)).unwrap();
    slot.lock().unwrap().as_ref().unwrap().wake(root, ReclaimReason::Manual(ByteSize::new(1)));
}

#[test]
fn two_reclaimers_that_drop_each_other_do_not_deadlock() {
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

/// A panic payload with a `Drop` that panics.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload's own fault");
        }
    }
}

/// Asserts that the reclaimer's thread is alive, by having it serve another shrinker.
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

/// A policy that panics while its flag is set, and counts these panics.
struct Moody(Arc<AtomicBool>, Arc<AtomicUsize>);

impl Policy for Moody {
    fn pays(&self, background: bool) -> bool {
        Fair.pays(background)
    }

    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        if self.0.load(SeqCst) {
            self.1.fetch_add(1, SeqCst);
            panic!("the policy's own fault");
        }
        Fair.plan(input, debt)
    }

    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        Fair.commit(input, debt, plan, scanned, ended)
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
        until("the policy is called", || panics.load(SeqCst) > 0);
        moody.store(false, SeqCst);
        serves_another(&registry, &reclaimer);
        until("no callback is in flight any more", || asked.stats().in_flight == 0);
        drop(asked);
        empty(&reclaimer);
    });
}

/// A topology that panics in `cpus_of`, and when it is dropped; counts both.
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
fn a_panicking_topology_panics_in_start() {
    in_time(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let registry = Registry::new(&MemcgTree::default(), 1);
        // `cpus_of` is called on the thread that starts the reclaimer, so its panic reaches the
        // caller, and no thread is left waiting.
        let topology: Arc<dyn Topology> = Arc::new(Broken(Arc::clone(&panics)));
        let asked = Arc::clone(&topology);
        let start = AssertUnwindSafe(|| Reclaimer::start(&registry, asked, MARKS));
        let Err(payload) = catch_unwind(start) else { panic!("the topology panics") };
        assert_eq!(payload.downcast_ref(), Some(&"the topology's own fault"));
        assert_eq!(panics.load(SeqCst), 1);
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(topology))) else { panic!("its drop panics") };
        // Its drop panics.
        std::mem::forget(payload);
        // A reclaimer can be started afterwards.
        let reclaimer =
            Arc::new(Mutex::new(Some(Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap())));
        serves_another(&registry, &reclaimer);
        empty(&reclaimer);
    });
}
