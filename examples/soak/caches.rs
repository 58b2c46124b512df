//! A keyed cache whose tenants come and go, under changing pressure.
//!
//! A worker does a step at a time; `check` runs while all workers stand still, so that sums are
//! exact.
//!
//! Each step must leave the cache valid, as a check may follow it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater::pressure::{Level, PressureConfig};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};

use crate::pace::Random;
use crate::Step;

const BUDGET: ByteSize = ByteSize::mib(16);
const VALUE_BYTES: u64 = 300;
/// About twice as many as the budget holds, so that entries are evicted.
const KEYS: u64 = 100_000;
/// Few, so that workers meet in the same tenants.
const TENANTS: u64 = 40;
/// The allowed delay of background work.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Caches {
    runtime: Runtime,
    cache: Cache<u64, Box<[u8]>>,
}

impl Caches {
    pub fn new() -> Self {
        let ms = Duration::from_millis;
        let pressure =
            PressureConfig { debounce: ms(50), quiet: ms(300), step_time: ms(100), ..PressureConfig::default() };
        let runtime = Runtime::builder().budget(BUDGET).pressure(pressure).topology(Arc::new(Fixed::new(2)));
        let runtime = runtime.build().expect("a budget and three threads");
        let cache = Cache::<u64, Box<[u8]>>::builder(&runtime).weigher(|_, v| ByteSize::new(v.len() as u64));
        let cache = cache.build().expect("a shrinker id is free");
        Self { runtime, cache }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Inserts values for tenants; at intervals a tenant ends and is created again with other
    /// limits.
    pub fn tenants(&self, seed: u64) -> Step<'_> {
        let mut random = Random::new(seed);
        Box::new(move || {
            let tenant = random.of(TENANTS);
            // Another worker may end the group meanwhile: then its entries become the parent's.
            let Ok(group) = self.runtime.group(&format!("tenant/{tenant}")) else { return };
            for _ in 0..20 {
                let key = random.of(KEYS);
                match random.of(8) {
                    0 => drop(self.cache.remove(&key)),
                    1 => drop(
                        self.cache.entry(key).group(&group).time_to_live(Duration::from_millis(200)).insert(value()),
                    ),
                    2..=4 => drop(self.cache.get(&key)),
                    // There may be no room; then the insert returns the value.
                    _ => drop(self.cache.entry(key).group(&group).insert(value())),
                }
            }
            match random.of(50) {
                0 => drop(self.runtime.end_group(&group)),
                1 => group.set_max(ByteSize::kib(64 + random.of(4096))),
                2 => group.set_low(ByteSize::kib(random.of(512))),
                3 => group.set_max(ByteSize::MAX),
                _ => {}
            }
        })
    }

    /// Pressure by hand, changes of the budget, drops.
    pub fn pressure(&self) -> Step<'_> {
        let mut random = Random::new(99);
        let mut due = Instant::now();
        Box::new(move || {
            // At most 50 ms, as a check waits for the end of a step.
            std::thread::sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
            if Instant::now() < due {
                return;
            }
            due = Instant::now() + Duration::from_millis(100 + random.of(400));
            let pressure = self.runtime.pressure().expect("pressure is monitored");
            match random.of(10) {
                0 => pressure.raise(Level::Critical),
                1 | 2 => pressure.raise(Level::Medium),
                3 => self.runtime.set_budget(ByteSize::mib(4 + random.of(12))),
                4 => self.runtime.set_budget(BUDGET),
                5 => drop(self.runtime.drop_caches()),
                6 => drop(self.runtime.reclaim(self.runtime.root(), ByteSize::mib(1))),
                _ => drop(self.runtime.stats()),
            }
        })
    }

    /// Checks that charged bytes match the entries, and that the budget holds.
    pub fn check(&self) {
        let start = Instant::now();
        loop {
            // Reclaimer threads continue while the workers stand still: the figures must be exact
            // when the reclaimers pause.
            self.runtime.tree().drain_stock();
            let each = VALUE_BYTES + Cache::<u64, Box<[u8]>>::ENTRY_BYTES.get();
            let (used, there) = (self.runtime.root().usage().get(), self.cache.len() as u64 * each);
            if used == there {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{used} bytes are charged, and {there} are there");
            std::thread::yield_now();
        }
        assert!(self.runtime.root().usage() <= BUDGET, "the budget is {BUDGET}");
        let stats = self.runtime.stats();
        assert!(stats.registry.shrinkers.iter().all(|s| s.panics == 0 && !s.quarantined), "no callback panics");
    }

    /// Ends all tenants and drops everything; returns the remaining bytes of the library's
    /// structures.
    pub fn empty(&self) -> u64 {
        self.cache.clear();
        for tenant in 0..TENANTS {
            if let Some(group) = self.runtime.find_group(&format!("tenant/{tenant}")) {
                self.runtime.end_group(&group).expect("the group has no children");
            }
        }
        let start = Instant::now();
        // Two groups stay: the root and `tenant`, the parent of all tenants.
        while self.runtime.registry().sweep() != Default::default() || self.runtime.tree().len() > 2 {
            assert!(start.elapsed() < PATIENCE, "{} groups are still there", self.runtime.tree().len());
        }
        // A reclaimer thread may have isolated the last objects, and be about to drop them.
        while !self.cache.is_empty() {
            assert!(start.elapsed() < PATIENCE, "{} entries are still there", self.cache.len());
            std::thread::yield_now();
        }
        self.runtime.tree().footprint().get() + self.runtime.registry().footprint().get()
    }
}

fn value() -> Box<[u8]> {
    vec![7; VALUE_BYTES as usize].into()
}
