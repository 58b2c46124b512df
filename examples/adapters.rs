//! Other crates' caches under one budget with a `Cache`: `cargo run --release --example adapters`.
//!
//! A quick_cache, a foyer and an lru keep their policies, their keys and their speed. They lack a
//! size that depends on the other caches. Two parts add it:
//!
//! 1. each value carries its charge ([`Charged`]): taken from the budget before the insert,
//!    released when the last owner drops the value;
//! 2. an [`Adapter`] is registered as a shrinker: it reports the weight of its cache, in pages, and
//!    evicts from it on request.
//!
//! No cache has a capacity of its own. Each is filled in turn with more than a third of the budget.
//! Then all four are used alike, and memory moves until each has about a quarter, in whatever order
//! they were filled; then half of the budget is reclaimed at once.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::{Arc, Mutex};

use lowwater::{
    ByteSize, Cache, Charged, Count, Memcg, NodeId, Occupancy, Registration, Runtime, Scan, ShrinkControl, Shrinker,
};

const BUDGET: ByteSize = ByteSize::mib(64);
const BLOB_BYTES: usize = 10_000;
/// Bytes inserted into each cache; four times that is more than the budget.
const BLOBS: u64 = 2400;
/// Keys of each cache, and lookups in each.
const KEYS: u64 = 20_000;
const ROUNDS: u64 = 1 << 18;
/// The unit of the shrinker: a scan of one page evicts about a page's worth of blobs.
const PAGE: u64 = 4096;
/// A capacity for caches that require one, too large to evict anything.
const UNBOUNDED: u64 = 1 << 40;

/// A value and its charge.
type Blob = Charged<Vec<u8>>;

fn new_blob(runtime: &Runtime, group: &Memcg) -> Result<Blob, Box<dyn Error>> {
    let charge = runtime.charge_guard(group, ByteSize::new(BLOB_BYTES as u64))?;
    Ok(Charged::new(vec![0; BLOB_BYTES], charge))
}

/// The operations that an adapted cache must have.
trait Foreign: Send + Sync {
    /// Bytes of its values.
    fn weight(&self) -> u64;
    /// Evicts, by its own policy, until it weighs no more than the argument.
    fn shrink_to(&self, weight: u64);
    /// Looks a key up, which counts as a use.
    fn is_hit(&self, key: u64) -> bool;
    fn insert(&self, key: u64, value: Blob);
}

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<u64, Blob> for Weigh {
    fn weight(&self, _: &u64, blob: &Blob) -> u64 {
        blob.len() as u64
    }
}

impl Foreign for quick_cache::sync::Cache<u64, Blob, Weigh> {
    fn weight(&self) -> u64 {
        self.weight()
    }

    fn shrink_to(&self, weight: u64) {
        self.set_capacity(weight);
        self.set_capacity(UNBOUNDED);
    }

    fn is_hit(&self, key: u64) -> bool {
        self.get(&key).is_some()
    }

    fn insert(&self, key: u64, value: Blob) {
        self.insert(key, value);
    }
}

impl Foreign for foyer_memory::Cache<u64, Blob> {
    fn weight(&self) -> u64 {
        self.usage() as u64
    }

    fn shrink_to(&self, weight: u64) {
        // Fails only for a change that would have no effect.
        let _ = self.resize(weight as usize);
        let _ = self.resize(UNBOUNDED as usize);
    }

    fn is_hit(&self, key: u64) -> bool {
        self.get(&key).is_some()
    }

    fn insert(&self, key: u64, value: Blob) {
        self.insert(key, value);
    }
}

/// An `lru::LruCache` counts entries; all entries here have the same weight.
struct Lru(Mutex<lru::LruCache<u64, Blob>>);

impl Foreign for Lru {
    fn weight(&self) -> u64 {
        (self.0.lock().unwrap().len() * BLOB_BYTES) as u64
    }

    fn shrink_to(&self, weight: u64) {
        let mut old = Vec::new();
        let mut cache = self.0.lock().unwrap();
        while (cache.len() * BLOB_BYTES) as u64 > weight {
            old.extend(cache.pop_lru());
        }
        // Values are dropped without holding the lock.
        drop(cache);
    }

    fn is_hit(&self, key: u64) -> bool {
        self.0.lock().unwrap().get(&key).is_some()
    }

    fn insert(&self, key: u64, value: Blob) {
        let old = self.0.lock().unwrap().push(key, value);
        drop(old);
    }
}

/// Makes another crate's cache a shrinker.
struct Adapter<C> {
    cache: C,
    group: Memcg,
    occupancy: Arc<dyn Occupancy>,
}

impl<C: Foreign + 'static> Adapter<C> {
    fn register(runtime: &Runtime, name: &str, cache: C) -> Result<(Arc<Self>, Registration), Box<dyn Error>> {
        let group = runtime.group(name)?;
        let prepared = runtime.registry().builder(name).numa_aware(false).alloc()?;
        let adapter = Arc::new(Self { cache, group, occupancy: prepared.occupancy() });
        let registration = prepared.register(Arc::clone(&adapter) as Arc<dyn Shrinker>);
        Ok((adapter, registration))
    }

    /// Looks a key up, and inserts a value on a miss.
    fn ask(&self, runtime: &Runtime, key: u64) -> Result<(), Box<dyn Error>> {
        if !self.cache.is_hit(key) {
            self.cache.insert(key, new_blob(runtime, &self.group)?);
            self.occupancy.occupied(&self.group, NodeId::ZERO);
        }
        Ok(())
    }

    fn fill(&self, runtime: &Runtime) -> Result<(), Box<dyn Error>> {
        (0..BLOBS).try_for_each(|key| self.ask(runtime, key))
    }
}

impl<C: Foreign> Shrinker for Adapter<C> {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.cache.weight().div_ceil(PAGE) {
            0 => Count::Empty,
            pages => Count::Objects(pages),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let before = self.cache.weight();
        self.cache.shrink_to(before.saturating_sub(sc.nr_to_scan() * PAGE));
        Scan::Freed(before.saturating_sub(self.cache.weight()) / PAGE)
    }

    fn weigh_objects(&self, _: &ShrinkControl<'_>) -> Option<ByteSize> {
        Some(ByteSize::new(self.cache.weight()))
    }
}

/// The next key: lower keys more often, approximately Zipf's law.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let fraction = (*random >> 33) as f64 / (1_u64 << 31) as f64;
    (KEYS as f64).powf(fraction) as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().budget(BUDGET).build()?;
    let quick = quick_cache::sync::Cache::with_weighter(BLOBS as usize, UNBOUNDED, Weigh);
    let foyer = foyer_memory::Cache::builder(UNBOUNDED as usize)
        .with_shards(4)
        .with_weighter(|_: &u64, blob: &Blob| blob.len())
        .build();
    let (quick, _a) = Adapter::register(&runtime, "quick_cache", quick)?;
    let (foyer, _b) = Adapter::register(&runtime, "foyer", foyer)?;
    let (lru, _c) = Adapter::register(&runtime, "lru", Lru(Mutex::new(lru::LruCache::unbounded())))?;
    let ours = Cache::<u64, Vec<u8>>::builder(&runtime)
        .name("lowwater")
        .group(&runtime.group("lowwater")?)
        .weigher(|_, value| ByteSize::new(value.len() as u64))
        .build()?;

    println!("{:<28} {:>12} {:>8} {:>8} {:>9} {:>8}   all", "KiB", "quick_cache", "foyer", "lru", "lowwater", "budget");
    let row = |what: &str| {
        let kib = |group: &Memcg| group.usage().get() / 1024;
        println!(
            "{what:<28} {:>12} {:>8} {:>8} {:>9} {:>8}   {}",
            kib(&quick.group),
            kib(&foyer.group),
            kib(&lru.group),
            kib(ours.group()),
            BUDGET.get() / 1024,
            kib(runtime.root()),
        );
    };
    quick.fill(&runtime)?;
    row("quick_cache was filled");
    foyer.fill(&runtime)?;
    row("foyer was filled");
    lru.fill(&runtime)?;
    row("lru was filled");
    for key in 0..BLOBS {
        ours.insert(key, vec![0; BLOB_BYTES])?;
    }
    row("lowwater was filled");
    let mut random = 1;
    for round in 1..=ROUNDS {
        quick.ask(&runtime, next(&mut random))?;
        foyer.ask(&runtime, next(&mut random))?;
        lru.ask(&runtime, next(&mut random))?;
        let key = next(&mut random);
        if ours.pin().get(&key).is_none() {
            ours.insert(key, vec![0; BLOB_BYTES])?;
        }
        if round.is_power_of_two() && round >= ROUNDS / 16 {
            row(&format!("{round} lookups of each"));
        }
    }
    runtime.reclaim(runtime.root(), ByteSize::new(BUDGET.get() / 2));
    row("half of it wanted back");
    Ok(())
}
