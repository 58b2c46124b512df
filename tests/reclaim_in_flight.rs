//! A charge that finds nothing to free, while another thread inside a shrinker's callback has taken
//! the last objects off their list and not freed them yet.
//!
//! Their memory is about to be free, but no counter shows it: a charge that failed at once would
//! refuse an insert for nothing. So the charge waits for the other thread.
//!
//! A change must ensure that a charge waits for the other thread, and no longer than
//! `direct_time_max`.

#[path = "common/wait.rs"]
mod wait;

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Memcg, Runtime};
use lowwater_shrinker::{Count, Reclaim, Scan, ShrinkControl, Shrinker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::until;

const OBJECT: ByteSize = ByteSize::kib(64);

/// A shrinker that takes all its objects off its list at once, and frees them when the test sets
/// `go_on`.
struct Slow {
    memcg: Memcg,
    objects: AtomicU64,
    taken: AtomicBool,
    go_on: AtomicBool,
}

impl Shrinker for Slow {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.objects.load(SeqCst) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let objects = self.objects.swap(0, SeqCst);
        sc.set_nr_scanned(objects);
        if objects > 0 {
            self.taken.store(true, SeqCst);
            until("the test lets the shrinker free", || self.go_on.load(SeqCst));
            self.memcg.uncharge(ByteSize::new(objects * OBJECT.get()));
        }
        Scan::Freed(objects)
    }
}

/// Runs `test` with a full runtime, while a thread is inside the callback and has taken the only
/// object.
fn with_a_call_in_flight(direct_time_max: Duration, test: impl FnOnce(&Runtime, &Slow)) {
    let runtime = Runtime::builder()
        .budget(OBJECT)
        .topology(Arc::new(Fixed::new(1)))
        .direct_time_max(direct_time_max)
        .build()
        .unwrap();
    let root = runtime.root().clone();
    let (taken, go_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let slow = Arc::new(Slow { memcg: root.clone(), objects: AtomicU64::new(1), taken, go_on });
    runtime.charge(&root, OBJECT).unwrap();
    let prepared = runtime.registry().builder("slow").memcg_aware(false).numa_aware(false).alloc().unwrap();
    let registration = prepared.register(Arc::clone(&slow) as Arc<dyn Shrinker>);
    std::thread::scope(|s| {
        // The background reclaimer may take the object first; this thread then finds nothing.
        s.spawn(|| runtime.registry().direct_reclaim(&root, Reclaim::FOREGROUND, &|| slow.taken.load(SeqCst)));
        until("a thread has taken the object", || slow.taken.load(SeqCst));
        test(&runtime, &slow);
        slow.go_on.store(true, SeqCst);
    });
    drop(registration);
}

#[test]
fn a_charge_waits_for_objects_that_are_being_freed() {
    with_a_call_in_flight(Duration::from_secs(30), |runtime, slow| {
        std::thread::scope(|s| {
            let charge = s.spawn(|| runtime.charge(runtime.root(), OBJECT));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!charge.is_finished(), "nothing is free, and a call is in flight");
            slow.go_on.store(true, SeqCst);
            charge.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_charge_waits_no_longer_than_direct_time_max() {
    with_a_call_in_flight(Duration::from_millis(20), |runtime, _| {
        let begin = Instant::now();
        runtime.charge(runtime.root(), OBJECT).unwrap_err();
        assert!(begin.elapsed() >= Duration::from_millis(20), "it waited");
        assert!(begin.elapsed() < Duration::from_secs(10), "it stopped waiting");
    });
}
