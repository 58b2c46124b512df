//! A cache beside shrinkers in the runtime's registry whose answers are false.
//!
//! A registered shrinker is foreign code: a cache beside it must not stop, must not lose its
//! entries, and must be done within `PATIENCE`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater::{Registration, Runtime};
use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};

use super::real::Real;
use super::stream::{Stream, BUDGET, ENTRY};

/// Longer than 1,000 inserts take on a busy machine: it detects inserts that hang.
const PATIENCE: Duration = Duration::from_secs(60);

struct Liar {
    count: Count,
    scan: Scan,
    scans: AtomicU64,
}

impl Shrinker for Liar {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.count
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.scan
    }
}

/// Registers several shrinkers with these answers.
fn register(runtime: &Runtime, liars: usize, count: Count, scan: Scan) -> Vec<(Arc<Liar>, Registration)> {
    let one = |_| {
        let prepared = runtime.registry().builder("liar").memcg_aware(false).alloc().unwrap();
        let liar = Arc::new(Liar { count, scan, scans: AtomicU64::new(0) });
        let registration = prepared.register(Arc::clone(&liar) as Arc<dyn Shrinker>);
        (liar, registration)
    };
    (0..liars).map(one).collect()
}

/// Returns the time for 1,000 inserts into a full cache; the given numbers of liars were registered
/// before the cache, and after it.
fn inserts_beside(before: usize, after: usize, count: Count, scan: Scan) -> Duration {
    let mut liars = Vec::new();
    let mut real = Real::with(&Stream::new(1), |runtime| liars = register(runtime, before, count, scan));
    liars.extend(register(real.runtime(), after, count, scan));
    let entries = BUDGET / ENTRY;
    (0..entries).for_each(|key| assert!(!real.ask(0, key)));
    let begin = Instant::now();
    (0..1_000).for_each(|key| assert!(!real.ask(0, entries + key)));
    let took = begin.elapsed();
    let scans: u64 = liars.iter().map(|(liar, _)| liar.scans.load(Ordering::Relaxed)).sum();
    println!("{before} and {after} of {count:?} {scan:?}: {took:?}, {scans} scans");
    assert!(real.len(0) > entries * 9 / 10, "{} of {entries} are left", real.len(0));
    took
}

#[test]
fn a_cache_works_with_lying_shrinkers() {
    for (count, scan) in [
        (Count::Unknown, Scan::Stop),
        (Count::Objects(u64::MAX), Scan::Stop),
        (Count::Objects(1_000), Scan::Freed(0)),
        (Count::Objects(u64::MAX), Scan::Freed(0)),
        (Count::Objects(1_000), Scan::Freed(8)),
        (Count::Objects(u64::MAX), Scan::Freed(u64::MAX)),
    ] {
        for (before, after) in [(0, 1), (1, 0), (6, 0), (20, 20)] {
            let took = inserts_beside(before, after, count, scan);
            assert!(took < PATIENCE, "{before} and {after} of {count:?} {scan:?}: 1,000 inserts took {took:?}");
        }
    }
}
