//! Registrations that end inside callbacks, their own or another shrinker's.
//!
//! The guarantee under test is S14 of docs/INVARIANTS.md: after the end no visit begins, and no end
//! waits inside a callback.
//!
//! A new way to end a registration gets its case here.

use crate::{empty, in_time, register, scan, slot, until, Hooked, Slot, N0, PATIENCE};
use lowwater_lru_core::MemcgTree;
use lowwater_shrinker::{Count, Reclaim, Registration, Registry, Scan, ShrinkControl, Shrinker, Work};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Barrier};
use std::time::Duration;

/// Has a million objects, and unregisters itself in its first scan.
struct Endless {
    mine: Slot<Registration>,
    scans: AtomicUsize,
}

impl Shrinker for Endless {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(1_000_000)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.scans.fetch_add(1, SeqCst);
        empty(&self.mine);
        Scan::Freed(sc.nr_to_scan())
    }
}

/// `n` shrinkers, each of which drops the next one's registration in its callback, while all
/// callbacks are running.
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
fn s14_two_shrinkers_that_unregister_each_other_do_not_deadlock() {
    in_time(|| {
        for _ in 0..200 {
            ring(&[Registry::new(&MemcgTree::default(), 1)], 2);
        }
    });
}

#[test]
fn s14_three_shrinkers_that_unregister_each_other_in_a_ring_do_not_deadlock() {
    in_time(|| {
        for _ in 0..100 {
            ring(&[Registry::new(&MemcgTree::default(), 1)], 3);
        }
    });
}

#[test]
fn s14_shrinkers_of_two_registries_that_unregister_each_other_do_not_deadlock() {
    in_time(|| {
        for _ in 0..100 {
            let registries = [(); 2].map(|()| Registry::new(&MemcgTree::default(), 1));
            ring(&registries, 2);
            ring(&registries, 4);
        }
    });
}

#[test]
fn s14_random_unregistrations_inside_callbacks_terminate() {
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
fn s14_a_shrinker_that_ended_in_a_scan_gets_no_further_batch() {
    in_time(|| {
        let registry = Registry::new(&MemcgTree::default(), 1);
        let mine = slot::<Registration>();
        let endless = Arc::new(Endless { mine: Arc::clone(&mine), scans: AtomicUsize::new(0) });
        let prepared = registry.builder("endless").memcg_aware(false).numa_aware(false).alloc().unwrap();
        *mine.lock().unwrap() = Some(prepared.register(Arc::clone(&endless) as _));
        registry.shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
        assert_eq!(endless.scans.load(SeqCst), 1);
    });
}

#[test]
fn s14_an_end_that_may_wait_does() {
    in_time(|| {
        let registry = Registry::new(&MemcgTree::default(), 1);
        let (is_begun, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let hooked = {
            let (is_begun, is_over) = (Arc::clone(&is_begun), Arc::clone(&is_over));
            Hooked::new(move || {
                is_begun.store(true, SeqCst);
                // Long enough that an end that does not wait is noticed.
                std::thread::sleep(Duration::from_millis(50));
                is_over.store(true, SeqCst);
            })
        };
        let registration = register(&registry, hooked);
        let id = registration.id();
        std::thread::scope(|s| {
            s.spawn(|| scan(&registry, id));
            until("the callback begins", || is_begun.load(SeqCst));
            drop(registration);
            assert!(is_over.load(SeqCst), "a callback in flight was not waited for");
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
                assert!(taken.unregister().is_ok(), "no callback is in flight");
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
