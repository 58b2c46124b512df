//! Runs one load of the cache for `ci/instructions.sh`, which counts the instructions of
//! [`counted`]. Seeds, keys and their order are fixed. The watermarks are equal to the budget, so
//! that the reclaimer does not run, and the inserting thread itself evicts. Then all the work of an
//! eviction is done by the thread that is counted.
//!
//! `committed.txt` has the counts that the script compares with; a change of a load here makes them
//! invalid and needs `--commit`.

use std::sync::Arc;

use ahash::RandomState;
use clap::{Parser, ValueEnum};
use lowwater::{topology, ByteSize, Cache, Memcg, Runtime, Watermarks};

/// Entries of the large cache.
const ENTRIES: u64 = 20_000;
/// Entries of the small cache.
const SMALL_ENTRIES: u64 = 1_000;
/// Keys of a Zipf load for each entry of its cache.
const KEYS_PER_ENTRY: u64 = 10;
/// Operations of a Zipf load before the counted ones, for each entry of its cache.
const WARM_UP_PER_ENTRY: u64 = 5;
const ZIPF_EXPONENT: f64 = 0.99;
/// Inserts in a row for the same group.
const INSERTS_IN_A_ROW: u64 = 64;
/// The factor from a number to its key: odd, so that different numbers have different keys.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Parser)]
struct Options {
    load: Load,
    operations: u64,
}

/// The loads. `ci/instructions.sh`, `ci/measured/cache.py` and `committed.txt` have their names, as
/// the command line spells them (`get-or-insert`).
#[derive(Clone, Copy, ValueEnum)]
enum Load {
    /// `get` of a present key.
    Hit,
    /// `get` of an absent key.
    Miss,
    /// `insert` of a new key into a full cache.
    Insert,
    /// `Insert` for 10 groups, 64 inserts for each in turn.
    Insert10,
    /// `Insert10` for 1,000 groups.
    Insert1000,
    /// `get`, and `insert` after a miss; Zipf 0.99, ten keys for each entry.
    Mix,
    /// `Mix` with `get_or_insert_with` in place of `get` and `insert`.
    GetOrInsert,
    /// `Mix` in a cache of 1,000 entries.
    SmallMix,
    /// `insert` of a present key.
    Overwrite,
}

type TestCache = Cache<u64, u64, RandomState>;

struct Setup {
    runtime: Runtime,
    cache: TestCache,
}

impl Setup {
    fn new(entries: u64) -> Self {
        let budget = ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get());
        let runtime = Runtime::builder()
            .budget(budget)
            .watermarks(Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO })
            .topology(Arc::new(topology::Fixed::new(1)))
            .build()
            .expect("a runtime");
        let cache = Cache::builder(&runtime)
            .weigher(|_: &u64, _: &u64| ByteSize::ZERO)
            .hasher(RandomState::with_seeds(1, 2, 3, 4))
            .build()
            .expect("a cache");
        Self { runtime, cache }
    }

    /// Builds a cache and inserts twice as many keys as it has room for.
    fn full() -> Self {
        let setup = Self::new(ENTRIES);
        (0..2 * ENTRIES).for_each(|number| setup.insert(key(number)));
        setup
    }

    fn insert(&self, key: u64) {
        self.cache.insert(key, key).expect("room for an entry");
    }

    /// Returns present keys.
    fn present(&self) -> Vec<u64> {
        (0..2 * ENTRIES).map(key).filter(|key| self.cache.peek(key).is_some()).collect()
    }

    fn groups(&self, count: u64) -> Vec<Memcg> {
        (0..count).map(|number| self.runtime.group(&format!("group{number}")).expect("a group")).collect()
    }
}

fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

/// Keys by Zipf's law, by the inverse of its distribution.
struct Zipf {
    cumulative: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        let weights = (1..=keys).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT));
        let cumulative = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { cumulative: cumulative.collect(), state: 1 }
    }

    fn next(&mut self) -> u64 {
        // Knuth's linear congruential generator; its high bits are the random ones.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.state >> 11) as f64 / (1_u64 << 53) as f64;
        let total = self.cumulative.last().copied().unwrap_or_default();
        key(self.cumulative.partition_point(|sum| *sum < uniform * total) as u64)
    }
}

/// Applies `operation` to all `items`.
///
/// Instructions are counted while this function runs. `ci/instructions.sh` finds it by its name
/// (`*counted*`): it must not be inlined, and no function that is called inside, and is not
/// inlined, may have `counted` in its name.
#[inline(never)]
fn counted<T: Copy>(items: &[T], mut operation: impl FnMut(T)) {
    items.iter().for_each(|item| operation(*item));
}

fn insert_new(groups_max: u64, operations: u64) {
    let setup = Setup::full();
    let groups = setup.groups(groups_max);
    let insert = |number: u64| {
        let group = groups.get((number / INSERTS_IN_A_ROW) as usize % groups.len().max(1));
        let entry = setup.cache.entry(key(number));
        let entry = group.into_iter().fold(entry, |entry, group| entry.group(group));
        entry.insert(number).expect("room for an entry");
    };
    // Inserts for every group, so that the lists and counters of each group exist before the count.
    let first = 2 * ENTRIES + groups_max * INSERTS_IN_A_ROW;
    (2 * ENTRIES..first).for_each(insert);
    let numbers: Vec<u64> = (first..first + operations).collect();
    counted(&numbers, insert);
}

fn mix(entries: u64, operations: u64, operation: impl Fn(&TestCache, u64)) {
    let setup = Setup::new(entries);
    let mut zipf = Zipf::new(entries * KEYS_PER_ENTRY);
    (0..entries * WARM_UP_PER_ENTRY).for_each(|_| operation(&setup.cache, zipf.next()));
    let keys: Vec<u64> = (0..operations).map(|_| zipf.next()).collect();
    counted(&keys, |key| operation(&setup.cache, key));
}

fn get_then_insert(cache: &TestCache, key: u64) {
    if cache.get(&key).is_none() {
        cache.insert(key, key).expect("room for an entry");
    }
}

fn main() {
    let Options { load, operations } = Options::parse();
    let present =
        |setup: &Setup| -> Vec<u64> { setup.present().into_iter().cycle().take(operations as usize).collect() };
    match load {
        Load::Hit => {
            let (setup, mut hits) = (Setup::full(), 0);
            counted(&present(&setup), |key| hits += u64::from(setup.cache.get(&key).is_some()));
            assert_eq!(hits, operations);
        }
        Load::Miss => {
            let (setup, mut hits) = (Setup::full(), 0);
            let absent: Vec<u64> = (0..operations).map(|number| key(4 * ENTRIES + number)).collect();
            counted(&absent, |key| hits += u64::from(setup.cache.get(&key).is_some()));
            assert_eq!(hits, 0);
        }
        Load::Insert => insert_new(0, operations),
        Load::Insert10 => insert_new(10, operations),
        Load::Insert1000 => insert_new(1_000, operations),
        Load::Mix => mix(ENTRIES, operations, get_then_insert),
        Load::GetOrInsert => mix(ENTRIES, operations, |cache, key| {
            cache.get_or_insert_with(key, || key);
        }),
        Load::SmallMix => mix(SMALL_ENTRIES, operations, get_then_insert),
        Load::Overwrite => {
            let setup = Setup::full();
            counted(&present(&setup), |key| setup.insert(key));
        }
    }
}
