//! Several caches under one budget: memory goes to where it earns most.

use std::sync::Arc;

use lowwater::cache::Eviction;
use lowwater::{topology, ByteSize, Cache, Runtime};

const BUDGET: ByteSize = ByteSize::mib(32);
const VALUE: u64 = 1_000;
const ORDERS: [Eviction; 5] =
    [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance, Eviction::Lru];

fn runtime() -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(topology::Fixed::new(1))).build().unwrap()
}

fn cache(runtime: &Runtime, name: &str, own_group: bool, order: Eviction) -> Cache<u64, ()> {
    let builder = Cache::builder(runtime).name(name).eviction(order).weigher(|_, ()| ByteSize::new(VALUE));
    match own_group {
        true => builder.group(&runtime.group(name).unwrap()).build().unwrap(),
        false => builder.build().unwrap(),
    }
}

/// A linear congruential generator: the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// The lower the oftener: nearly Zipf with exponent 1.
    fn zipf(&mut self, end: u64) -> u64 {
        let fraction = (self.below(1 << 30) as f64 + 1.0) / (1_u64 << 30) as f64;
        ((end as f64).powf(fraction) as u64 - 1).min(end - 1)
    }
}

fn ask(cache: &Cache<u64, ()>, key: u64) -> bool {
    let hit = cache.get(&key).is_some();
    if !hit {
        cache.insert(key, ()).unwrap();
    }
    hit
}

/// The hit ratio of a cache with so many hot entries, in the last quarter of 400,000 requests, beside one that has filled the budget
/// and is idle.
fn beside_an_idle_one(hot: u64, own_groups: bool, order: Eviction) -> f64 {
    let runtime = runtime();
    let idle = cache(&runtime, "idle", own_groups, order);
    let busy = cache(&runtime, "busy", own_groups, order);
    for key in 0..40_000 {
        ask(&idle, key);
    }
    let (mut random, mut hits) = (Random(1), 0);
    for n in 0..400_000 {
        hits += u32::from(ask(&busy, random.below(hot)) && n >= 300_000);
    }
    f64::from(hits) / 100_000.0
}

#[test]
fn an_idle_cache_gives_way_to_a_busy_one() {
    for order in ORDERS {
        for own_groups in [false, true] {
            for hot in [100, 1_000, 5_000, 20_000] {
                let ratio = beside_an_idle_one(hot, own_groups, order);
                println!("{order:?} {hot} own={own_groups}: {ratio}");
                assert!(ratio >= 0.95, "{ratio} of {hot} hot entries, {order:?}, own groups: {own_groups}");
            }
        }
    }
}

/// The share of the second of two caches that ask alike, each for more than half of the budget.
fn share_of_the_second(zipf: bool, order: Eviction) -> f64 {
    let runtime = runtime();
    let caches = ["first", "second"].map(|name| cache(&runtime, name, false, order));
    for key in 0..40_000 {
        ask(&caches[0], key % 30_000);
    }
    let mut random = Random(7);
    let mut held = [0; 2];
    for n in 0..600_000 {
        for (cache, held) in caches.iter().zip(&mut held) {
            ask(cache, if zipf { random.zipf(100_000) } else { random.below(30_000) });
            *held += if n >= 300_000 && n % 100 == 0 { cache.len() } else { 0 };
        }
    }
    held[1] as f64 / (held[0] + held[1]) as f64
}

#[test]
fn two_in_equal_use_share_equally_whoever_came_first() {
    for order in ORDERS {
        for zipf in [false, true] {
            let share = share_of_the_second(zipf, order);
            println!("{order:?} zipf={zipf}: {share}");
            assert!((0.45..=0.55).contains(&share), "{share}, {order:?}, zipf: {zipf}");
        }
    }
}

/// The hit ratio of three caches that work, in per cent, beside one that scans or not.
fn of_three_that_work(scan: bool) -> f64 {
    let runtime = runtime();
    let work = ["a", "b", "c"].map(|name| cache(&runtime, name, false, Eviction::default()));
    let scans = cache(&runtime, "scan", false, Eviction::default());
    let (mut random, mut hits) = (Random(5), 0);
    for n in 0..400_000 {
        for cache in &work {
            hits += u32::from(ask(cache, random.zipf(20_000)) && n >= 200_000);
        }
        if scan {
            ask(&scans, n);
        }
    }
    println!("scan holds {} of {:?}", scans.len(), work.each_ref().map(Cache::len));
    f64::from(hits) / 6_000.0
}

#[test]
fn a_scan_costs_the_others_a_point_at_most() {
    let (without, beside) = (of_three_that_work(false), of_three_that_work(true));
    println!("{without} without, {beside} beside a scan");
    assert!(beside >= without - 1.0, "{beside} beside a scan, {without} without");
}
