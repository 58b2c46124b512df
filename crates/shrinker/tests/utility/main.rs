//! Reclaim by utility, with shrinkers and reports that lie, panic, end or come from the wrong
//! place.
//!
//! A pool is a shelf of numbers with a size in bytes (`common`); `assert_second_pays` is the usual
//! check: of two equal pools the one with misses keeps its objects.
//!
//! A test must not depend on which of two pairs of equal rank is the victim: only the order in the
//! table decides.

#![cfg(all(feature = "std", not(lowwater_loom)))]
#![forbid(unsafe_code)]

mod callers;
mod choices;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../base/tests/hazard/mod.rs"]
mod hazard;
mod liars;
mod reports;
mod table;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use common::{CountFn, ScanFn, Shelf};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{
    Miss, MissReporter, Progress, Reclaim, Registration, Registry, RegistryConfig, ShrinkControl, Work,
};

const N0: NodeId = NodeId::ZERO;

/// Bytes of an object.
const OBJECT: u64 = 1_000;

/// The root's limit, in objects and in bytes.
const BUDGET_OBJECTS: u64 = 10_000;
const BUDGET: ByteSize = ByteSize::new(BUDGET_OBJECTS * OBJECT);

/// A tree with a budget, and a registry that selects victims by utility.
fn world(nodes: usize) -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    tree.root().set_max(BUDGET);
    let registry = Registry::with_config(&tree, RegistryConfig::new(nodes).by_utility(true));
    (tree, registry)
}

/// A registered shelf, its registration, and its reporter.
struct Pool {
    shelf: Arc<Shelf>,
    registration: Registration,
    reporter: MissReporter,
}

impl Pool {
    fn new(tree: &MemcgTree, registry: &Registry, name: &str) -> Self {
        Self::with(tree, registry, name, Shelf::new())
    }

    fn with(tree: &MemcgTree, registry: &Registry, name: &str, shelf: Shelf) -> Self {
        let shelf = Arc::new(shelf);
        shelf.hear_of_deaths(tree);
        let prepared = registry.builder(name).reports_misses(true).alloc().unwrap();
        let reporter = prepared.miss_reporter();
        let registration = shelf.register(prepared);
        Self { shelf, registration, reporter }
    }

    /// Reports `n` misses at a short distance.
    fn misses(&self, memcg: &Memcg, n: u32) {
        (0..n).for_each(|_| self.reporter.miss(memcg, Miss::at(ByteSize::new(10 * OBJECT))));
    }

    fn callbacks(&self) -> u64 {
        self.shelf.counts.load(Relaxed) + self.shelf.scans.load(Relaxed)
    }
}

/// A pool that weighs its objects and uncharges those that it frees; [`fill`] charges them.
fn weighed(tree: &MemcgTree, registry: &Registry, name: &str) -> Pool {
    let pool = Pool::with(tree, registry, name, Shelf::of_bytes(OBJECT));
    weigh_all(&pool.shelf);
    pool
}

/// Makes a shelf weigh its objects.
fn weigh_all(shelf: &Arc<Shelf>) {
    let this = Arc::downgrade(shelf);
    let weigh = move |sc: &ShrinkControl<'_>| {
        let shelf = this.upgrade()?;
        Some(ByteSize::new(shelf.len(sc.memcg(), sc.node()) * OBJECT))
    };
    assert!(shelf.weigh.set(Box::new(weigh)).is_ok());
}

/// Charges `n` objects to the root, and puts them on the shelf.
fn fill(shelf: &Shelf, tree: &MemcgTree, n: u64) {
    std::mem::forget(tree.root().try_charge(ByteSize::new(n * OBJECT)).unwrap());
    shelf.add(tree.root(), N0, n);
}

/// A shelf with replaced counts, scans and weights.
fn shelf(
    count: Option<CountFn>,
    scan: Option<ScanFn>,
    weigh: impl Fn(&ShrinkControl<'_>) -> Option<ByteSize> + Send + Sync + 'static,
) -> Shelf {
    let shelf = Shelf::new();
    count.into_iter().for_each(|count| assert!(shelf.count.set(count).is_ok()));
    scan.into_iter().for_each(|scan| assert!(shelf.scan.set(scan).is_ok()));
    assert!(shelf.weigh.set(Box::new(weigh)).is_ok());
    shelf
}

fn honest_weight(_: &ShrinkControl<'_>) -> Option<ByteSize> {
    Some(ByteSize::new(1_000 * OBJECT))
}

/// Runs one call that frees at most 8 objects (`BATCH_MAX` in `src/least_useful/victim.rs`; of more
/// than 2,047 objects, the background frees up to 32); the 64 bound the objects that it scans for
/// them.
fn batch(registry: &Registry, memcg: &Memcg, flags: Reclaim) -> Progress {
    registry.shrink_least_useful(memcg, None, flags, &mut Work::one_batch(64))
}

fn batches(n: u32, registry: &Registry, memcg: &Memcg, flags: Reclaim) {
    for _ in 0..n {
        batch(registry, memcg, flags);
    }
}

/// Asserts for two pools of 1,000 objects each, of which the first has the misses, that the second
/// is the victim.
fn assert_second_pays(registry: &Registry, memcg: &Memcg, pools: [&Pool; 2], what: &str) {
    let before = pools.map(|pool| pool.shelf.total());
    // The background counts all candidates, the foreground only one for each batch.
    batch(registry, memcg, Reclaim::KSWAPD);
    batches(50, registry, memcg, Reclaim::FOREGROUND);
    let paid = [0, 1].map(|n| before[n] - pools[n].shelf.total());
    // A quarter of 50 batches of 8 is enough: some batches may find no victim, or come from the
    // first pool, before its misses count.
    assert!(paid[1] >= 100 && paid[1] > 8 * paid[0], "{what}: they paid {paid:?}");
}

/// Two pools with 1,000 objects each of a group. Both are counted, by a batch that frees up to 8.
fn two_pools(tree: &MemcgTree, registry: &Registry, memcg: &Memcg) -> [Pool; 2] {
    let pools = ["first", "second"].map(|name| Pool::with(tree, registry, name, shelf(None, None, honest_weight)));
    pools.iter().for_each(|pool| pool.shelf.add(memcg, N0, 1_000));
    batch(registry, memcg, Reclaim::KSWAPD);
    pools
}
