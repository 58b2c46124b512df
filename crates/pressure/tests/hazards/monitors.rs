//! Monitors that are used and dropped in callbacks, late in a thread's life, and leaked.
//!
//! A monitor's thread calls user code (the trim hook), and the monitor's drop joins the thread: a
//! hook and a drop that waited for each other would hang. So each test has a time limit.

use crate::hazard::{at_the_end_of_a_thread, in_a_process, within, PATIENCE};
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_pressure::{BackgroundReclaim, Level, Monitor, MonitorConfig, Trim};
use lowwater_shrinker::{Count, Registration, Registry, Scan, ShrinkControl, Shrinker};
use std::any::Any;
use std::mem::forget;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A shrinker with one object, whose first scan calls a hook.
struct Hooked(Mutex<Option<Hook>>);

impl Hooked {
    fn new(hook: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Box::new(hook)))))
    }
}

impl Shrinker for Hooked {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(1)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let hook = self.0.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        sc.set_nr_scanned(1);
        Scan::Freed(0)
    }
}

fn register(registry: &Registry, shrinker: Arc<dyn Shrinker>) -> Registration {
    let prepared = registry.builder("hooked").alloc().unwrap();
    prepared.occupancy().occupied(registry.root(), N0);
    prepared.register(shrinker)
}

type Slot<T> = Arc<Mutex<Option<T>>>;

fn slot<T>() -> Slot<T> {
    Arc::new(Mutex::new(None))
}

/// Takes the value out of the slot, and drops it after the slot's lock is released.
fn empty<T>(slot: &Slot<T>) {
    let taken = slot.lock().unwrap().take();
    drop(taken);
}

#[test]
fn a_monitor_that_is_dropped_in_a_callback_its_hook_waits_for_is_not_joined() {
    within("the end of a monitor", || {
        let (tree, registry) = tree_and_registry();
        let (entered, may_go) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let trim = {
            let (entered, may_go, once) = (Arc::clone(&entered), Arc::clone(&may_go), AtomicBool::new(false));
            Trim::new(move || {
                if !once.swap(true, SeqCst) {
                    entered.wait();
                    until("the callback returns", || may_go.load(SeqCst));
                }
            })
        };
        let config = MonitorConfig { trim: trim.threshold(ByteSize::new(1)), ..MonitorConfig::default() };
        let reclaimer = reclaimer(&registry);
        let monitor = Monitor::start(tree.root(), ByteSize::MAX, reclaimer, config).unwrap();
        monitor.freed(ByteSize::mib(1));
        entered.wait();
        let slot = Arc::new(Mutex::new(Some(monitor)));
        let other = Registry::new(&MemcgTree::default(), 1);
        let mine = {
            let slot = Arc::clone(&slot);
            register(&other, Hooked::new(move || empty(&slot)))
        };
        let start = Instant::now();
        other.drop_caches();
        drop(mine);
        assert!(start.elapsed() < PATIENCE / 2, "the thread was joined inside a callback");
        may_go.store(true, SeqCst);
    });
}

/// The least that the trait asks for.
#[derive(Debug)]
struct Caches;

impl BackgroundReclaim for Caches {
    fn reclaim_to(&self, _: &Memcg, _: ByteSize) {}
}

#[test]
fn a_monitor_may_be_used_and_dropped_by_its_own_hook() {
    within("the end of a monitor", || {
        let (tree, registry) = tree_and_registry();
        let reclaimers: [Arc<dyn BackgroundReclaim>; 2] = [reclaimer(&registry), Arc::new(Caches)];
        for reclaimer in reclaimers {
            let (slot, done) = (slot::<Monitor>(), Arc::new(AtomicBool::new(false)));
            let trim = {
                let (slot, done) = (Arc::clone(&slot), Arc::clone(&done));
                Trim::new(move || {
                    if let Some(monitor) = &*slot.lock().unwrap() {
                        monitor.freed(ByteSize::new(1));
                        monitor.raise(lowwater_pressure::Level::Low);
                        let _stats = monitor.stats();
                    }
                    empty(&slot);
                    done.store(true, SeqCst);
                })
            };
            let config = MonitorConfig { trim: trim.threshold(ByteSize::new(1)), ..MonitorConfig::default() };
            *slot.lock().unwrap() = Some(Monitor::start(tree.root(), ByteSize::MAX, reclaimer, config).unwrap());
            if let Some(monitor) = &*slot.lock().unwrap() {
                monitor.freed(ByteSize::mib(1));
            }
            until("the hook returns", || done.load(SeqCst));
            until("the monitor is gone", || slot.lock().unwrap().is_none());
        }
    });
}

#[test]
fn a_trim_hook_may_panic_in_its_drop() {
    within("the end of a monitor", || {
        let (tree, registry) = tree_and_registry();
        let grenade = Mutex::new(Some(Box::new(Grenade) as Box<dyn Any + Send>));
        let trim = Trim::new(move || assert!(grenade.lock().is_ok()));
        let config = MonitorConfig { trim, ..MonitorConfig::default() };
        let reclaimer = reclaimer(&registry);
        // The thread has the last handle on the hook, and is joined by this drop.
        drop(Monitor::start(tree.root(), ByteSize::MAX, reclaimer, config).unwrap());
    });
}

/// A value captured by a hook, whose drop panics.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload's own fault");
        }
    }
}

#[test]
fn a_trim_hook_may_end_its_monitor() {
    within("the end of a monitor", || {
        let (tree, registry) = tree_and_registry();
        let monitor: Arc<Mutex<Option<Arc<Monitor>>>> = Arc::default();
        let (held, calls) = (monitor.clone(), Arc::new(AtomicU32::new(0)));
        let count = calls.clone();
        let trim = Trim::new(move || {
            let call = count.fetch_add(1, Relaxed);
            // In the second call the last handle is dropped, on the monitor's own thread.
            let monitor = match call {
                0 => held.lock().unwrap().clone(),
                _ => held.lock().unwrap().take(),
            };
            let monitor = monitor.expect("the monitor is set");
            monitor.raise(Level::Low);
            monitor.freed(ByteSize::mib(9));
            monitor.set_budget(ByteSize::mib(3));
            let _ = (monitor.stats(), monitor.budget());
        });
        let trim = trim.threshold(ByteSize::ZERO).interval(std::time::Duration::ZERO);
        let config = MonitorConfig { trim, ..MonitorConfig::default() };
        let started = Monitor::start(tree.root(), ByteSize::mib(4), reclaimer(&registry), config).unwrap();
        *monitor.lock().unwrap() = Some(Arc::new(started));
        while calls.load(Relaxed) < 2 || monitor.lock().unwrap().is_some() {
            let there = monitor.lock().unwrap().clone();
            if let Some(there) = there.filter(|_| calls.load(Relaxed) == 0) {
                there.freed(ByteSize::new(1));
            }
            std::thread::yield_now();
        }
        drop((registry, tree));
    });
}

/// A shrinker that holds 100 objects and counts its calls.
#[derive(Default)]
struct Hundred(AtomicU32);

impl Shrinker for Hundred {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.0.fetch_add(1, Relaxed);
        Count::Objects(100)
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        self.0.fetch_add(1, Relaxed);
        Scan::Freed(1)
    }
}

/// The case of a foreign tree in [`Monitor::start`].
#[test]
fn a_monitor_of_another_trees_group_reclaims_nothing_of_it() {
    within("monitors", || {
        let (tree, registry) = tree_and_registry();
        let hundred = Arc::new(Hundred::default());
        let registration = register(&registry, hundred.clone());
        let (other, threads) = (MemcgTree::new(0), reclaimer(&registry));
        let _ = other.root().try_charge(ByteSize::mib(2)).unwrap();
        let monitor = Monitor::start(other.root(), ByteSize::mib(2), threads, MonitorConfig::default()).unwrap();
        for level in [Level::Critical, Level::Low] {
            monitor.raise(level);
            monitor.freed(ByteSize::mib(1));
        }
        monitor.set_budget(ByteSize::mib(1));
        assert!(other.root().max() <= ByteSize::mib(2));
        drop(monitor);
        assert_eq!((hundred.0.load(Relaxed), tree.root().max()), (0, ByteSize::MAX));
        registration.unregister().unwrap();
    });
}

/// The monitor is dropped inside a callback, on the thread that called `drop_caches`.
#[test]
fn a_monitor_may_be_used_and_dropped_in_a_callback() {
    within("the end of a monitor inside of a callback", || {
        let (tree, registry) = tree_and_registry();
        let slot = slot::<Monitor>();
        let threads = reclaimer(&registry);
        let registration = {
            let slot = Arc::clone(&slot);
            let uses_and_drops = move || {
                if let Some(monitor) = &*slot.lock().unwrap() {
                    monitor.raise(Level::Low);
                    let _ = (monitor.stats(), monitor.budget());
                }
                empty(&slot);
            };
            register(&registry, Hooked::new(uses_and_drops))
        };
        let monitor = Monitor::start(tree.root(), ByteSize::mib(4), threads, MonitorConfig::default()).unwrap();
        *slot.lock().unwrap() = Some(monitor);
        registry.drop_caches();
        assert!(slot.lock().unwrap().is_none());
        assert_eq!(registration.stats().panics, 0);
    });
}

#[test]
fn a_monitor_is_used_started_and_dropped_late_in_a_threads_life() {
    at_the_end_of_a_thread("monitors that are started and stopped", || {
        let (tree, registry) = tree_and_registry();
        let early = reclaimer(&registry);
        let config = || MonitorConfig { trim: Trim::new(|| ()).threshold(ByteSize::ZERO), ..MonitorConfig::default() };
        let monitor = Monitor::start(tree.root(), ByteSize::mib(4), early.clone(), config()).unwrap();
        let kept = config();
        Box::new(move || {
            monitor.raise(Level::Critical);
            monitor.freed(ByteSize::mib(1));
            let late = reclaimer(&registry);
            let second = Monitor::start(tree.root(), ByteSize::mib(4), late, config()).unwrap();
            drop((second, monitor, kept));
            drop(early);
            drop((registry, tree));
        })
    });
}

#[test]
fn a_leaked_monitor_blocks_no_other_code() {
    in_a_process("monitors::a_leaked_monitor_blocks_no_other_code", || {
        within("reclaim beside leaks", || {
            let (tree, registry) = tree_and_registry();
            let registration = register(&registry, Hooked::new(|| ()));
            for n in 0..3 {
                // Leaked threads, which keep running on a tree of their own.
                let (other_tree, other) = tree_and_registry();
                let threads = reclaimer(&other);
                forget(MonitorConfig::default());
                let config = MonitorConfig::default();
                forget(Monitor::start(other_tree.root(), ByteSize::mib(1), threads.clone(), config).unwrap());
                if n > 0 {
                    forget((threads, other, other_tree));
                }
                registry.drop_caches();
            }
            assert!(registration.stats().callbacks >= 3);
            registration.unregister().unwrap();
            drop((registry, tree));
        });
    });
}
