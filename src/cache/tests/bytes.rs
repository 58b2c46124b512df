//! The byte count of a cache equals the sum of its entries' charges, after any history.
//!
//! A history is drawn by proptest. A byte too many or too few for each entry would accumulate in a
//! server that runs for months.
//!
//! A new operation is added to the histories.

use std::time::{Duration, Instant};

use lowwater_rcu::pin;
use lowwater_store::index::Cursor;
use proptest::prelude::*;

use super::super::compaction::state::Compacted;
use super::{cache_of, entry_bytes, eventually};
use crate::cache::Op;
use crate::{ByteSize, Cache, Runtime};

/// Less than most floods insert, so that entries are evicted.
const BUDGET: ByteSize = ByteSize::kib(64);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Step {
    /// Key, bytes, group, milliseconds to live.
    Insert(u64, usize, usize, Option<u64>),
    /// First key and bytes of 100 inserts, so that entries are evicted.
    Flood(u64, usize),
    Get(u64),
    Remove(u64),
    Compute(u64, Op<usize>),
    Load(u64, usize),
    Retain(u64),
    Reclaim(u64),
    DropCaches,
    Compact,
    /// Sleeps, so that deadlines pass and the reaper may run.
    Reap,
    EndGroup(usize),
    DropGroup(usize),
    Clear,
}

/// Draws a step: mostly inserts of various sizes, groups and times; also lookups, removals, ends of
/// groups, reclaim and compaction.
fn step() -> impl Strategy<Value = Step> {
    let (key, bytes) = (0..64_u64, 0..3_000_usize);
    let time = prop_oneof![3 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    let short = Some(Duration::from_millis(1));
    let op = prop_oneof![
        bytes.clone().prop_map(Op::Put),
        bytes.clone().prop_map(move |b| Op::PutFor(b, short)),
        bytes.clone().prop_map(Op::Update),
        Just(Op::Touch(short)),
        Just(Op::Remove),
        Just(Op::Keep)
    ];
    prop_oneof![
        8 => (key.clone(), bytes.clone(), 0..3_usize, time).prop_map(|(k, b, g, t)| Step::Insert(k, b, g, t)),
        2 => (key.clone(), bytes.clone()).prop_map(|(k, b)| Step::Flood(k, b)),
        2 => key.clone().prop_map(Step::Get),
        2 => key.clone().prop_map(Step::Remove),
        2 => (key.clone(), op).prop_map(|(k, op)| Step::Compute(k, op)),
        2 => (key, bytes).prop_map(|(k, b)| Step::Load(k, b)),
        1 => (2..5_u64).prop_map(Step::Retain),
        1 => (1..20_000_u64).prop_map(Step::Reclaim),
        1 => Just(Step::DropCaches),
        1 => Just(Step::Compact),
        1 => Just(Step::Reap),
        1 => (0..3_usize).prop_map(Step::EndGroup),
        1 => (0..3_usize).prop_map(Step::DropGroup),
        1 => Just(Step::Clear),
    ]
}

/// Returns the number of entries in the index, and the sum of their charges.
fn in_index(cache: &Cache<u64, Vec<u8>>) -> (usize, u64) {
    let (mut at, mut entries, mut bytes) = (Cursor::new(), 0, 0);
    while !at.is_done() {
        cache.inner.core.index.visit(&mut at, &pin(), |record| {
            entries += 1;
            bytes += record.charge().get();
        });
    }
    (entries, bytes)
}

/// Returns whether the counters equal the index within `PATIENCE`: they differ while background
/// threads evict and reap.
fn is_exact(cache: &Cache<u64, Vec<u8>>) -> bool {
    let start = Instant::now();
    loop {
        if (cache.len(), cache.stats().bytes.get()) == in_index(cache) {
            return true;
        }
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bytes_are_the_sum_over_entries(steps in prop::collection::vec(step(), 1..60)) {
        let cache = cache_of(BUDGET);
        let runtime = cache.runtime().clone();
        let name = |g: usize| format!("g{g}");
        for step in steps {
            match step.clone() {
                Step::Insert(k, b, g, time) => {
                    // The name of a group that is being dropped is refused; then the default group
                    // is used.
                    let group = runtime.group(&name(g)).unwrap_or_else(|_| runtime.root().clone());
                    let entry = cache.entry(k).group(&group);
                    let _maybe_rejected = match time {
                        Some(ms) => entry.time_to_live(Duration::from_millis(ms)).insert(vec![0; b]),
                        None => entry.insert(vec![0; b]),
                    };
                }
                Step::Flood(k, b) => (k..k + 100).for_each(|k| drop(cache.insert(k, vec![0; b]))),
                Step::Get(k) => drop(cache.get(&k)),
                Step::Remove(k) => drop(cache.remove(&k)),
                Step::Compute(k, op) => {
                    let _maybe_rejected = cache.entry(k).and_compute(|_| match op {
                        Op::Put(b) => Op::Put(vec![0; b]),
                        Op::PutFor(b, time) => Op::PutFor(vec![0; b], time),
                        Op::Update(b) => Op::Update(vec![0; b]),
                        Op::Touch(time) => Op::Touch(time),
                        Op::Remove => Op::Remove,
                        Op::Keep => Op::Keep,
                    });
                }
                Step::Load(k, b) => drop(cache.get_or_insert_with(k, || vec![0; b])),
                Step::Retain(n) => cache.retain(|key, _| key % n == 0),
                Step::Reclaim(b) => drop(runtime.reclaim(runtime.root(), ByteSize::new(b))),
                Step::DropCaches => drop(runtime.drop_caches()),
                Step::Compact => {
                    let core = &cache.inner.core;
                    if core.index.slab().begin_compaction() > 0 {
                        let mut at = Cursor::new();
                        while !at.is_done() {
                            core.compact_part(&mut at, &mut Compacted::default());
                        }
                        core.index.slab().end_compaction();
                    }
                }
                Step::Reap => std::thread::sleep(Duration::from_millis(5)),
                Step::EndGroup(g) => {
                    let _maybe_dying = runtime.find_group(&name(g)).map(|group| runtime.end_group(&group));
                }
                Step::DropGroup(g) => {
                    let _maybe_dying = runtime.find_group(&name(g)).map(|group| runtime.drop_group(&group));
                }
                Step::Clear => cache.clear(),
            }
            prop_assert!(is_exact(&cache), "{:?} counted after {step:?}, {:?} in the index", cache.stats(), in_index(&cache));
        }
        runtime.tree().drain_stock();
        prop_assert!(cache.stats().bytes <= BUDGET);
    }
}

#[test]
fn each_way_an_entry_leaves_is_counted() {
    let cache = cache_of(ByteSize::mib(1));
    let bytes = |cache: &Cache<u64, Vec<u8>>| cache.stats().bytes.get();
    assert_eq!(bytes(&cache), 0);
    cache.insert(1, vec![0; 100]).unwrap();
    cache.insert(2, vec![0; 200]).unwrap();
    assert_eq!(bytes(&cache), 300 + 2 * entry_bytes());
    cache.insert(1, vec![0; 50]).unwrap();
    assert_eq!(bytes(&cache), 250 + 2 * entry_bytes(), "a value was replaced by a smaller one");
    cache.remove(&1);
    assert_eq!(bytes(&cache), 200 + entry_bytes());
    cache.entry(3).time_to_live(Duration::ZERO).insert(vec![0; 10]).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(cache.get(&3), None);
    assert!(is_exact(&cache));
    let group = cache.runtime().group("dropped").unwrap();
    cache.entry(4).group(&group).insert(vec![0; 1_000]).unwrap();
    cache.runtime().drop_group(&group).unwrap();
    let is_left = |expected: u64| !group.is_online() && bytes(&cache) == expected;
    eventually(PATIENCE, "the dropped group's entry is gone", || is_left(200 + entry_bytes()));
    assert_eq!(cache.runtime().drop_caches(), 1);
    assert_eq!((bytes(&cache), cache.len()), (0, 0));
    // More threads than stripes of counters, so that some share a stripe; and this thread removes
    // entries that were counted in other stripes.
    std::thread::scope(|s| {
        for thread in 0..32 {
            let cache = &cache;
            s.spawn(move || (0..100).for_each(|n| drop(cache.insert(100 * thread + n, vec![0; n as usize]))));
        }
    });
    assert!(bytes(&cache) > 0 && is_exact(&cache));
    cache.clear();
    assert_eq!((bytes(&cache), cache.len()), (0, 0));
}

#[test]
fn a_retired_entry_of_many_gibibytes_counts_in_full() {
    let runtime = Runtime::builder().unlimited().build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::gib(20)).build().unwrap();
    cache.insert(1, 0).unwrap();
    let pinned = cache.pin();
    (1..=12).for_each(|value| drop(cache.insert(1, value)));
    assert_eq!(runtime.stats().retired, ByteSize::new(12 * cache.stats().bytes.get()));
    drop(pinned);
}
