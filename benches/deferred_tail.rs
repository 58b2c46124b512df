//! What does a call of reclaim cost when others have left debts? It should cost what it costs without.
//!
//! A cache of 1.8 million objects, of which none or a million are owed. One call in the foreground, with each policy; the debt is put
//! back after each call, so that every one meets the same. Objects cost nothing here, so what is seen is how many are looked at (a
//! batch each call of the shrinker) and what asking costs; latencies of threads that really allocate are
//! `examples/deferred_tail.rs`'.
//!
//! | row | what |
//! |---|---|
//! | `windup` | a pass as Linux made it to 5.12: 899,072 objects with the debt |
//! | `proportional` | since 5.13: at most a batch more |
//! | `fair` | [`Registry::direct_reclaim`]: 1,024 objects, whatever is owed |

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use lowwater::{Count, MemcgTree, NodeId, Reclaim, Registration, Registry, Scan, ShrinkControl, Shrinker};
use lowwater_shrinker::budget::{Fair, Policy, Proportional, Windup};
use lowwater_shrinker::{RegistryConfig, Work};

const OBJECTS: u64 = 1_800_000;
/// What file systems take in one call.
const BATCH: u64 = 1024;
/// A caller inside its file system.
const NOFS: Reclaim = Reclaim::MAY_BLOCK.union(Reclaim::MAY_IO);

/// As many objects as ever; a scan takes no time.
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

/// Fields are dropped in this order: the registration before what it is registered with.
struct World {
    registration: Registration,
    registry: Registry,
    tree: MemcgTree,
}

impl World {
    fn new(policy: Arc<dyn Policy>) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::with_config(&tree, RegistryConfig::new(1).policy(policy));
        let prepared = registry.builder("inodes").batch(BATCH).alloc().expect("there are ids");
        prepared.occupancy().occupied(tree.root(), NodeId::ZERO);
        Self { registration: prepared.register(Arc::new(Inodes)), registry, tree }
    }

    fn pass(&self, priority: u8, flags: Reclaim) -> u64 {
        self.registry.shrink(self.tree.root(), NodeId::ZERO, priority, flags, &mut Work::unlimited()).scanned
    }

    /// Lets callers that may not reclaim come by until so much is owed.
    fn owe(&self, debt: u64) {
        while self.registry.owed(self.tree.root(), NodeId::ZERO, self.registration.id()) < debt {
            self.pass(5, NOFS);
        }
    }

    fn direct(&self) -> u64 {
        self.registry.direct_reclaim(self.tree.root(), Reclaim::FOREGROUND, &|| false).scanned
    }
}

/// A policy's name, the policy, and the call that is measured with it.
type Row = (&'static str, Arc<dyn Policy>, fn(&World) -> u64);

fn deferred_tail(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("one call");
    let policies: [Row; 3] = [
        ("windup", Arc::new(Windup), |world| world.pass(12, Reclaim::FOREGROUND)),
        ("proportional", Arc::new(Proportional), |world| world.pass(12, Reclaim::FOREGROUND)),
        ("fair", Arc::new(Fair), World::direct),
    ];
    for (name, policy, call) in policies {
        for debt in [0, 1_000_000] {
            let world = World::new(Arc::clone(&policy));
            rows.bench_function(BenchmarkId::new(name, format!("{debt} owed")), |b| {
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
    let criterion = Criterion::default().sample_size(10);
    let short = criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = short.configure_from_args();
    deferred_tail(&mut criterion);
    criterion.final_summary();
}
