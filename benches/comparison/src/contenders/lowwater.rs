//! The contender lowwater: this library's cache, with the default options. Other contenders are
//! bounded by entries and ours by bytes, so the budget for a number of entries is found by trial
//! (`budget`).
//!
//! It must use public options only, as a user would. `ci/measured/comparison.py` finds its rows by
//! `NAME` and `SHRINK`.

use std::collections::HashMap;

use lowwater::{ByteSize, Cache, Memcg, Runtime, Watermarks};
use parking_lot::Mutex;

use crate::contender::{hasher, Contender, Hash};

type Entries = Cache<u64, u64, Hash>;

/// Our cache, in a runtime of its own. Its budget is in bytes, and is chosen so that the cache
/// never holds more entries than the contenders may: see [`budget`].
pub struct Lowwater {
    cache: Entries,
    runtime: Runtime,
    groups: Vec<Memcg>,
    bytes_per_entry: f64,
}

/// How far below its limit the reclaimer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Marks {
    /// The default watermarks.
    Default,
    /// No gap: the cache fills to its limit, and each insert evicts for itself.
    AtTheLimit,
}

impl Lowwater {
    /// Creates `tenants` groups, for [`insert_for`](Self::insert_for).
    pub fn with_tenants(mut self, tenants: usize) -> Self {
        let group = |n: usize| self.runtime.group(&format!("tenant{n}")).expect("a plain name, and room for an id");
        self.groups = (0..tenants).map(group).collect();
        self
    }

    /// Creates a further cache in the same runtime.
    pub fn beside(&self) -> Self {
        Self::of(self.runtime.clone())
    }

    /// Inserts a value that belongs to a tenant.
    pub fn insert_for(&self, tenant: usize, key: u64, value: u64) {
        // A refused value is not stored; `refused` counts it.
        let _refused = self.cache.entry(key).group(&self.groups[tenant]).insert(value);
    }

    fn with(entries: usize, marks: Marks) -> Self {
        let budget = budget(entries, marks);
        Self { bytes_per_entry: budget as f64 / entries as f64, ..Self::of(runtime(budget, marks)) }
    }

    fn of(runtime: Runtime) -> Self {
        let builder = Cache::<u64, u64>::builder(&runtime).hasher(hasher());
        let cache = builder.weigher(|_, _| ByteSize::ZERO).build().expect("a shrinker id is free");
        Self { cache, runtime, groups: Vec::new(), bytes_per_entry: Entries::ENTRY_BYTES.get() as f64 }
    }
}

impl Contender for Lowwater {
    const NAME: &'static str = "lowwater";
    const SHRINK: Option<&'static str> = Some("set_budget");

    fn new(entries: usize) -> Self {
        Self::with(entries, Marks::Default)
    }

    fn exact(entries: usize) -> Self {
        Self::with(entries, Marks::AtTheLimit)
    }

    fn roomy(entries: usize) -> Self {
        Self::of(runtime(2 * Entries::ENTRY_BYTES.get() * entries as u64, Marks::Default))
    }

    /// Creates all caches in one runtime, as our caches are intended to be used.
    fn several(count: usize, entries: usize) -> Vec<Self> {
        let bytes = Entries::ENTRY_BYTES.get() * (count * entries) as u64;
        let runtime = runtime(bytes, Marks::Default);
        (0..count).map(|_| Self::of(runtime.clone())).collect()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.cache.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        // A refused value is not stored; `refused` counts it.
        let _refused = self.cache.insert(key, value);
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn shrink(&self, entries: usize) {
        self.runtime.set_budget(ByteSize::new((self.bytes_per_entry * entries as f64) as u64));
    }

    fn refused(&self) -> u64 {
        self.cache.stats().rejected
    }
}

fn runtime(budget: u64, marks: Marks) -> Runtime {
    let builder = Runtime::builder().budget(ByteSize::new(budget));
    let builder = match marks {
        Marks::Default => builder,
        Marks::AtTheLimit => builder.watermarks(Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO }),
    };
    builder.build().expect("a budget and a thread")
}

/// Returns the budget with which the cache holds `entries` and never more. Starts with the
/// documented size of an entry, and corrects the budget by experiment: twice as many keys are
/// inserted, and the largest number held at one time counts. After `TRIES_MAX` experiments the last
/// correction is taken unchecked.
fn budget(entries: usize, marks: Marks) -> u64 {
    static KNOWN: Mutex<Option<HashMap<(usize, Marks), u64>>> = Mutex::new(None);
    /// The part of `entries` by which the largest number may fall short.
    const WITHIN: f64 = 0.002;
    const TRIES_MAX: u32 = 6;

    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    *known.entry((entries, marks)).or_insert_with(|| {
        let mut budget = Entries::ENTRY_BYTES.get() * entries as u64;
        for _ in 0..TRIES_MAX {
            let held = most_held(entries, budget, marks).max(1);
            let over = held as f64 / entries as f64;
            if held == entries || (1.0 - WITHIN..=1.0).contains(&over) {
                break;
            }
            budget = ((budget as f64 / over) as u64).max(1);
        }
        budget
    })
}

fn most_held(entries: usize, budget: u64, marks: Marks) -> usize {
    let cache = Lowwater::of(runtime(budget, marks));
    let stride = (entries / 1000).max(1) as u64;
    let mut most = 0;
    for key in 0..2 * entries as u64 {
        cache.insert(key, key);
        if key % stride == 0 {
            most = most.max(cache.len());
        }
    }
    most.max(cache.len())
}
