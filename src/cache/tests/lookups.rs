//! Each lookup is counted once, and each hit is a use, on all lookup paths.
//!
//! There are fast and slow paths (own and shared thread numbers, home and overflow bucket, with and
//! without deadline); each must count alike.

use crate::cache::Eviction;
use crate::{ByteSize, Cache, Runtime};
use lowwater_rcu::pin;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// More threads than have a thread number of their own.
const THREADS: u64 = 20;
const KEYS: u64 = 300;

/// A hash function with so few values that most entries are not in their home bucket.
#[derive(Clone, Default)]
struct Few(u64);

impl Hasher for Few {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += u64::from(bytes[0]) % 3;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Looks keys up by `get` and with a pin, on more threads than have a number of their own, and
/// compares the counters with the number of calls.
fn each_is_counted<S: BuildHasher + Clone + Default + Send + Sync + 'static>(order: Eviction, lives: Option<Duration>) {
    let what = format!("{order:?}, {lives:?}");
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let builder = Cache::<u64, u64>::builder(&runtime).eviction(order).hasher(S::default());
    let builder = lives.into_iter().fold(builder, |builder, lives| builder.time_to_live(lives));
    let cache: Cache<u64, u64, S> = builder.weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..KEYS {
        cache.insert(key, key).unwrap();
    }
    let uses = |key: u64| {
        let core = &cache.inner.core;
        core.index.get(core.hash(&key), &pin(), |entry| entry.key == key).unwrap().uses()
    };
    assert!((0..KEYS).all(|key| uses(key) == 0), "{what}: no lookup yet");
    thread::scope(|s| {
        // The first lookup of a new thread, which has not entered a read side before.
        s.spawn(|| assert_eq!(cache.get(&1), Some(1)));
    });
    assert_eq!((uses(0), uses(1), cache.stats().hits), (0, 1, 1), "{what}: the first lookup of a thread");
    assert_eq!((cache.get(&2), cache.get(&2), cache.pin().get(&3)), (Some(2), Some(2), Some(&3)));
    assert_eq!((uses(2), uses(3), cache.stats().hits), (2, 1, 4), "{what}: lookups of a thread that has inserted");
    assert_eq!((cache.get(&KEYS), cache.pin().get(&KEYS), cache.stats().misses), (None, None, 2), "{what}");

    let all_there = Barrier::new(THREADS as usize);
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                all_there.wait();
                for key in 0..2 * KEYS {
                    assert_eq!(cache.get(&key), (key < KEYS).then_some(key));
                    assert_eq!(cache.pin().get(&key).copied(), (key < KEYS).then_some(key));
                }
                // All threads exist at the same time, so that no thread reuses another's number.
                all_there.wait();
            });
        }
    });
    let each = THREADS * KEYS * 2;
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (4 + each, 2 + each), "{what}: lookups of many threads");
    // A use is a load and a store: a thread that is preempted between them stores an older count.
    let short = (0..KEYS).filter(|key| uses(*key) != 3).count() as u64;
    assert!(short <= THREADS, "{what}: {short} keys have not the largest use count");
}

#[test]
fn each_lookup_is_counted_with_and_without_deadlines_in_each_order() {
    type Good = BuildHasherDefault<DefaultHasher>;
    for order in [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance, Eviction::Lru] {
        each_is_counted::<Good>(order, None);
        each_is_counted::<Good>(order, Some(Duration::from_secs(1_000)));
    }
}

#[test]
fn each_lookup_is_counted_for_overflowed_entries() {
    for lives in [None, Some(Duration::from_secs(1_000))] {
        each_is_counted::<BuildHasherDefault<Few>>(Eviction::Adaptive, lives);
    }
}

#[test]
fn a_lookup_of_an_expired_entry_counts_a_miss() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in [1, 2] {
        cache.entry(key).time_to_live(Duration::ZERO).insert(key).unwrap();
    }
    // A deadline passes up to two ticks of 4 ms late.
    thread::sleep(Duration::from_millis(10));
    assert_eq!((cache.get(&1), cache.pin().get(&2)), (None, None));
    // The housekeeper may have removed one that it has yet to count.
    super::eventually(Duration::from_secs(60), "both are counted", || {
        let stats = cache.stats();
        (stats.hits, stats.misses, stats.expired, cache.len()) == (0, 2, 2, 0)
    });
}
