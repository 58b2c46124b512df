//! The cost of a reclaim call when earlier calls have left deferred objects. It should equal the
//! cost without them.
//!
//! A cache of 1.8 million objects, of which none to a million are deferred (owed). One call in the
//! foreground, with each policy; the deferred count is restored before each call, so that all calls
//! see nearly the same state. Scanning an object takes no time here, so the result shows how many
//! are scanned (one batch per call of the shrinker), and the cost of the calls.
//! `examples/deferred_tail.rs` measures latencies of threads that really allocate.
//!
//! | row | policy |
//! |---|---|
//! | `windup` | Linux up to 5.12: 899,072 objects with the deferred ones |
//! | `proportional` | Linux since 5.13: at most a batch more |
//! | `fair` | [`Registry::direct_reclaim`]: 1,024 objects, regardless of the deferred count |
//!
//! A change must ensure that the objects are the same in all rows, so that only the debts differ.
//! `ci/bench.sh` repeats the name of the benchmark group.

mod settings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use lowwater::{Count, MemcgTree, NodeId, Reclaim, Registration, Registry, Scan, ShrinkControl, Shrinker};
use lowwater_shrinker::budget::{Fair, Policy, Proportional, Windup};
use lowwater_shrinker::{RegistryConfig, Work};

const OBJECTS: u64 = 1_800_000;
/// The batch size of file systems.
const BATCH: u64 = 1024;
/// The most deferred objects before a call beyond the debt of its row: less than the least debt, so
/// that no two rows have the same.
const OVER_MAX: u64 = 8_000;
/// The flags of a caller inside a file system (`GFP_NOFS`), for which [`Inodes`] only defers.
const NOFS: Reclaim = Reclaim::MAY_BLOCK.union(Reclaim::MAY_IO);

/// A shrinker whose number of objects never changes, and whose scans take no time.
struct Inodes;

impl Shrinker for Inodes {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(OBJECTS)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        if sc.flags().contains(Reclaim::MAY_FS) {
            Scan::Freed(sc.nr_to_scan())
        } else {
            Scan::Stop
        }
    }
}

/// A registry with one shrinker. Fields are dropped in this order: the registration before the
/// registry.
struct World {
    registration: Registration,
    registry: Registry,
    tree: MemcgTree,
}

impl World {
    fn new(policy: Arc<dyn Policy>) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::with_config(&tree, RegistryConfig::new(1).policy(policy));
        let prepared = registry.builder("inodes").batch(BATCH).alloc().expect("a shrinker id is free");
        prepared.occupancy().occupied(tree.root(), NodeId::ZERO);
        Self { registration: prepared.register(Arc::new(Inodes)), registry, tree }
    }

    fn pass(&self, priority: u8, flags: Reclaim) -> u64 {
        self.registry.shrink(self.tree.root(), NodeId::ZERO, priority, flags, &mut Work::unlimited()).scanned
    }

    /// Restores the number of deferred objects: at least `debt`, and at most [`OVER_MAX`] more.
    fn owe(&self, debt: u64) {
        // Pays, where calls defer more than they scan (`Proportional`).
        while self.owed() > debt + OVER_MAX {
            self.pass(1, Reclaim::FOREGROUND);
        }
        // Each pass defers some 7,000, because it may not reclaim.
        while self.owed() < debt {
            self.pass(9, NOFS);
        }
        assert!(self.owed() <= debt + OVER_MAX, "{} objects are owed, for a debt of {debt}", self.owed());
    }

    fn owed(&self) -> u64 {
        self.registry.owed(self.tree.root(), NodeId::ZERO, self.registration.id())
    }

    fn direct(&self) -> u64 {
        self.registry.direct_reclaim(self.tree.root(), Reclaim::FOREGROUND, &|| false).scanned
    }
}

/// The name of a row, its policy, and the call that is measured.
type Row = (&'static str, Arc<dyn Policy>, fn(&World) -> u64);

/// Registers a row for each policy, without debts and with up to a million objects.
fn deferred_tail(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("one call, objects owed");
    let policies: [Row; 3] = [
        ("windup", Arc::new(Windup), |world| world.pass(12, Reclaim::FOREGROUND)),
        ("proportional", Arc::new(Proportional), |world| world.pass(12, Reclaim::FOREGROUND)),
        ("fair", Arc::new(Fair), World::direct),
    ];
    for (name, policy, call) in policies {
        for debt in [0, 10_000, 100_000, 1_000_000] {
            let world = World::new(Arc::clone(&policy));
            rows.bench_function(BenchmarkId::new(name, debt), |b| {
                b.iter_custom(|calls| {
                    let mut time = Duration::ZERO;
                    for _ in 0..calls {
                        world.owe(debt);
                        let start = Instant::now();
                        std::hint::black_box(call(&world));
                        time += start.elapsed();
                    }
                    time
                });
            });
        }
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    deferred_tail(&mut criterion);
    criterion.final_summary();
}
