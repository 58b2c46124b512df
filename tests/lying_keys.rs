//! Keys that change their hash or equality while they are in a cache: entries that cannot be found
//! stay charged to the budget, and are freed with the cache at the latest.
//!
//! `Hash` and `Eq` are safe code and may be wrong; the budget must hold and nothing may leak all
//! the same.

#![forbid(unsafe_code)]

#[path = "common/usage.rs"]
mod usage;

use lowwater::cache::{Computed, Op};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use std::cell::Cell;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use usage::used;

const BUDGET: ByteSize = ByteSize::mib(1);
const WEIGHT: u64 = 1_000;
/// A bound in bytes of retired entries while no reader holds them back: a bag per thread cache, and
/// those that a thread is dropping.
const NOT_DROPPED: u64 = 4 << 20;
/// The same while a thread that reads entries is not scheduled: see `RuntimeStats::retired`.
const HELD_BACK: u64 = 16 << 20;
/// The limit for checks that wait for the reaper, or for a thread that is not scheduled.
const PATIENCE: Duration = Duration::from_secs(60);

/// The misbehavior of all keys of one test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// Another hash at each call.
    Hash,
    /// The hash changes only when the test increases `World::moved`.
    Moved,
    /// Equality is random.
    Eq,
    /// `Hash` panics at random.
    HashPanics,
    /// `Eq` panics at random.
    EqPanics,
    /// All of these except `Moved`.
    All,
}

/// State that the keys and values of one test share.
struct World {
    lie: Lie,
    calls: AtomicU64,
    /// Added to each misbehaving key's number before it is hashed.
    moved: AtomicU64,
    /// Keys below this do not misbehave.
    honest: u64,
    /// One of this many calls of `Hash` or `Eq` panics, if they panic at all.
    panics_one_in: u64,
    live: AtomicUsize,
    made: AtomicUsize,
    dropped: AtomicUsize,
}

struct Key(u64, Arc<World>);
struct Value(Arc<World>);

impl World {
    /// Creates a world whose keys panic so rarely that an index grows in the end: growth hashes a
    /// thousand keys, and fails if one of them panics.
    fn seldom(lie: Lie) -> Arc<Self> {
        Arc::new(Self { panics_one_in: 2_000, ..Arc::into_inner(Self::new(lie)).unwrap() })
    }

    fn new(lie: Lie) -> Arc<Self> {
        let [calls, moved] = [0, 0].map(AtomicU64::new);
        let [live, made, dropped] = [0, 0, 0].map(AtomicUsize::new);
        Arc::new(Self { lie, calls, moved, honest: 0, panics_one_in: 8, live, made, dropped })
    }

    /// Returns a pseudo-random number, another one for each call.
    fn call(&self) -> u64 {
        let call = self.calls.fetch_add(1, Relaxed);
        call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    fn value(self: &Arc<Self>) -> Value {
        self.made.fetch_add(1, Relaxed);
        self.live.fetch_add(1, Relaxed);
        Value(Arc::clone(self))
    }

    fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed) as u64 * WEIGHT
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self(self.0, Arc::clone(&self.1))
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.0.value()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(number, world) = self;
        if *number < world.honest {
            return number.hash(state);
        }
        match world.lie {
            Lie::Hash => world.call().hash(state),
            Lie::All if world.call() % 4 == 0 => world.call().hash(state),
            Lie::HashPanics | Lie::All if world.call() % world.panics_one_in == 0 => std::panic::panic_any(KeyFault),
            _ => (number + world.moved.load(Relaxed)).hash(state),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let Self(number, world) = self;
        if *number >= world.honest {
            match world.lie {
                Lie::Eq | Lie::All if world.call() % 2 == 0 => return world.call() % 2 == 0,
                Lie::EqPanics | Lie::All if world.call() % world.panics_one_in == 0 => std::panic::panic_any(KeyFault),
                _ => {}
            }
        }
        *number == other.0
    }
}

impl Eq for Key {}

type Lying = Cache<Key, Value>;

/// Builds a runtime with a short time for each charge, as many inserts here find nothing to evict.
fn runtime() -> Runtime {
    runtime_that_waits(Duration::from_micros(50))
}

/// Builds a runtime with inserts that wait up to `time` for an eviction.
fn runtime_that_waits(time: Duration) -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).direct_time_max(time).build().unwrap()
}

fn cache(runtime: &Runtime) -> Lying {
    Cache::<Key, Value>::builder(runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap()
}

/// The payload of a panic in a key's own code.
struct KeyFault;

/// Calls `f`, and returns `None` if a key panics: such panics reach the caller, and are no fault of
/// the cache. They are not printed. Any other panic is passed on.
fn try_it<R>(f: impl FnOnce() -> R) -> Option<R> {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<KeyFault>() {
                tell(info);
            }
        }));
    });
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<KeyFault>() => None,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Asserts that live values are within the charged bytes and [`HELD_BACK`], and waits until they
/// are within the charged bytes and [`NOT_DROPPED`].
fn assert_within(world: &World, cache: &Lying, what: &str) {
    let began = Instant::now();
    loop {
        let (live, used) = (world.live_bytes(), used(cache.runtime()));
        let most = used + if began.elapsed() < PATIENCE { HELD_BACK } else { NOT_DROPPED };
        assert!(live <= most, "{:?}, {what}: {live} bytes are alive, and {most} may be", world.lie);
        if live <= used + NOT_DROPPED {
            return;
        }
        // A reclaimer that is not scheduled while it reads entries holds back more.
        cache.collect();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until nothing is charged and no value is alive; each value was dropped exactly once. A
/// drop counts `live` first: another thread may be between the two counts.
fn assert_over(world: &World, runtime: &Runtime) {
    let counts = || (world.live.load(Relaxed), world.dropped.load(Relaxed));
    let expected = (0, world.made.load(Relaxed));
    let began = Instant::now();
    while used(runtime) > 0 || counts() != expected {
        assert!(
            began.elapsed() < PATIENCE,
            "{:?}: {} bytes stay, {:?} are alive and were dropped, expected {expected:?}",
            world.lie,
            used(runtime),
            counts()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Collects until no reader, which may be one of another test, holds removed entries back.
fn collect_all(cache: &Lying) {
    let began = Instant::now();
    while cache.collect() > ByteSize::ZERO {
        assert!(began.elapsed() < PATIENCE, "removed entries stay");
        std::thread::yield_now();
    }
}

const LIES: [Lie; 6] = [Lie::Hash, Lie::Moved, Lie::Eq, Lie::HashPanics, Lie::EqPanics, Lie::All];

#[test]
fn inserts_that_evict_stay_within_the_budget() {
    for lie in LIES {
        let (world, runtime) = (World::seldom(lie), runtime());
        let cache = cache(&runtime);
        let (mut kept, mut refused) = (0, 0);
        for n in 0..20_000 {
            // The hashes of all existing keys change every 5,000 inserts.
            if lie == Lie::Moved && n % 5_000 == 0 {
                world.moved.fetch_add(1 << 40, Relaxed);
            }
            match try_it(|| cache.insert(Key(n, Arc::clone(&world)), world.value())) {
                Some(Ok(_)) => kept += 1,
                Some(Err(_)) => refused += 1,
                None => {}
            }
            if refused > 200 {
                break;
            }
            if n % 64 == 0 {
                assert_within(&world, &cache, "inserts");
            }
            assert!(runtime.root().usage() <= BUDGET);
        }
        assert!(kept > 500, "{lie:?}: {kept} were kept, {refused} refused");
        assert_within(&world, &cache, "after inserts");
        drop(cache);
        assert_over(&world, &runtime);
    }
}

#[test]
fn every_kind_of_removal_keeps_exact_bytes() {
    let each = WEIGHT + Lying::ENTRY_BYTES.get();
    for lie in LIES {
        let (world, runtime) = (World::new(lie), runtime());
        let cache = cache(&runtime);
        let key = |n| Key(n, Arc::clone(&world));
        let operations: [(&str, &dyn Fn(u64)); 10] = [
            ("insert", &|n| drop(cache.insert(key(n), world.value()))),
            ("remove", &|n| drop(cache.remove(&key(n)))),
            ("compute", &|n| drop(cache.entry(key(n)).and_compute(|_| Op::Put(world.value())))),
            ("compute remove", &|n| drop(cache.entry(key(n)).and_compute(|_| Op::Remove))),
            ("expire", &|n| {
                let place = cache.entry(key(n)).time_to_live(Duration::from_millis(1));
                drop(place.insert(world.value()));
            }),
            ("get", &|n| drop(cache.get(&key(n)))),
            ("pin", &|n| {
                let pinned = cache.pin();
                let found = pinned.get(&key(n));
                cache.remove(&key(n));
                assert!(found.is_none_or(|value| Arc::ptr_eq(&value.0, &world)));
                assert!(pinned.iter().all(|(_, value)| Arc::ptr_eq(&value.0, &world)));
            }),
            ("reclaim", &|n| {
                // Not each time: with entries that cannot be found, one call takes 50 ms.
                if n % 10 == 0 {
                    runtime.reclaim(runtime.root(), ByteSize::new(10 * each));
                }
            }),
            ("load", &|n| drop(cache.get_or_insert_with(key(n), || world.value()))),
            ("retain", &|n| cache.retain(|key, _| key.0 % 97 != n % 97)),
        ];
        for round in 0..8 {
            for (name, operation) in &operations {
                for n in 0..40 {
                    if n % 20 == 0 {
                        world.moved.fetch_add(u64::from(lie == Lie::Moved), Relaxed);
                    }
                    let _met = try_it(|| operation((round * 7 + n) % 100));
                }
                // The reaper removes expired entries concurrently, and they are charged for an
                // instant longer.
                let begin = Instant::now();
                loop {
                    let (charged, len) = (used(&runtime), cache.len() as u64);
                    if charged == len * each {
                        break;
                    }
                    assert!(
                        begin.elapsed() < PATIENCE,
                        "{lie:?}, {name}: {charged} bytes of {len} entries are charged"
                    );
                    std::thread::yield_now();
                }
                assert_within(&world, &cache, name);
            }
        }
        drop(cache);
        assert_over(&world, &runtime);
    }
}

#[test]
fn clear_removes_entries_that_lookups_do_not_find() {
    for lie in [Lie::Hash, Lie::Moved, Lie::Eq] {
        let (world, runtime) = (World::new(lie), runtime());
        let cache = cache(&runtime);
        for n in 0..500 {
            drop(cache.insert(Key(n, Arc::clone(&world)), world.value()));
        }
        world.moved.fetch_add(1 << 40, Relaxed);
        cache.clear();
        assert_eq!((cache.len(), used(&runtime)), (0, 0), "{lie:?}");
        collect_all(&cache);
        assert_over(&world, &runtime);
    }
}

#[test]
fn the_reaper_removes_expired_entries_with_changed_hashes() {
    let (world, runtime) = (World::new(Lie::Moved), runtime());
    let cache = cache(&runtime);
    for n in 0..500 {
        let place = cache.entry(Key(n, Arc::clone(&world))).time_to_live(Duration::from_millis(300));
        place.insert(world.value()).unwrap();
    }
    world.moved.fetch_add(1 << 40, Relaxed);
    assert_over(&world, &runtime);
    assert_eq!(cache.len(), 0);
}

#[test]
fn drop_group_removes_entries_with_changed_hashes() {
    let (world, runtime) = (World::new(Lie::Moved), runtime());
    let (cache, group) = (cache(&runtime), runtime.group("liars").unwrap());
    for n in 0..300 {
        cache.entry(Key(n, Arc::clone(&world))).group(&group).insert(world.value()).unwrap();
    }
    world.moved.fetch_add(1 << 40, Relaxed);
    runtime.drop_group(&group).unwrap();
    let began = Instant::now();
    while runtime.find_group("liars").is_some() || !cache.is_empty() {
        let len = cache.len();
        assert!(began.elapsed() < PATIENCE, "{len} entries stay");
        std::thread::sleep(Duration::from_millis(1));
    }
    collect_all(&cache);
    assert_over(&world, &runtime);
}

#[test]
fn findable_entries_are_evicted_when_others_cannot_be_found() {
    for evictions in [
        lowwater::cache::Eviction::Adaptive,
        lowwater::cache::Eviction::S3Fifo,
        lowwater::cache::Eviction::Sieve,
        lowwater::cache::Eviction::SecondChance,
        lowwater::cache::Eviction::Lru,
    ] {
        let world = World { honest: 1 << 20, ..Arc::into_inner(World::new(Lie::Moved)).unwrap() };
        // Longer than a busy machine suspends this thread, mostly.
        let (world, runtime) = (Arc::new(world), runtime_that_waits(Duration::from_millis(100)));
        let builder = Cache::<Key, Value>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT));
        let cache = builder.eviction(evictions).build().unwrap();
        let key = |n| Key(n, Arc::clone(&world));
        // Half of the budget is used by entries that no lookup finds.
        for n in 0..500 {
            cache.insert(key((1 << 30) + n), world.value()).unwrap();
        }
        world.moved.fetch_add(1 << 40, Relaxed);
        let mut refused = 0;
        for n in 0..5_000 {
            refused += u32::from(cache.insert(key(n), world.value()).is_err());
            // At once, as each refused insert takes long.
            assert!(refused < 50, "{evictions:?}: {refused} of {n} were refused");
        }
        let found = (0..5_000).filter(|&n| cache.contains_key(&key(n))).count();
        assert!(found > 200, "{evictions:?}: {found} are there");
        drop(cache);
        assert_over(&world, &runtime);
    }
}

/// A key that equals keys of the same number and of no higher rank: whether two keys are equal may
/// depend on their sides.
#[derive(Clone)]
struct Ranked {
    number: u64,
    rank: u64,
}

impl Hash for Ranked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.rank >= other.rank
    }
}

impl Eq for Ranked {}

#[test]
fn a_computation_with_an_asymmetric_key_ends() {
    let runtime = runtime();
    let cache = Cache::<Ranked, u64>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap();
    let key = |number, rank| Ranked { number, rank };
    for (number, present, computed, expected) in [(1, 0, 1, Computed::Replaced(7)), (2, 1, 0, Computed::Inserted)] {
        cache.insert(key(number, present), 7).unwrap();
        let mut calls = 0;
        let result = cache.entry(key(number, computed)).and_compute(|_| {
            calls += 1;
            assert!(calls < 100, "called again and again for rank {computed}");
            Op::Put(8)
        });
        assert_eq!(result.unwrap(), expected, "rank {computed}");
        assert_eq!(calls, 1, "rank {computed}");
        assert_eq!(cache.get(&key(number, computed)), Some(8), "rank {computed}");
    }
}

/// A key that equals other ones at every second comparison.
#[derive(Clone)]
struct Alternating(Arc<AtomicU64>);

impl Hash for Alternating {
    fn hash<H: Hasher>(&self, state: &mut H) {
        7.hash(state);
    }
}

impl PartialEq for Alternating {
    fn eq(&self, _: &Self) -> bool {
        self.0.fetch_add(1, Relaxed) % 2 == 1
    }
}

impl Eq for Alternating {}

#[test]
fn a_computation_with_a_key_of_alternating_equality_ends() {
    for begin in [0, 1] {
        let runtime = runtime();
        let cache = Cache::<Alternating, u64>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap();
        let key = Alternating(Arc::default());
        cache.insert(key.clone(), 7).unwrap();
        let operations = [Op::Put(8), Op::Update(9), Op::Touch(None), Op::Put(10), Op::Remove];
        for (n, op) in operations.into_iter().enumerate() {
            key.0.store(begin, Relaxed);
            let mut calls = 0;
            let result = cache.entry(key.clone()).and_compute(|_| {
                calls += 1;
                assert!(calls < 100, "called again and again for operation {n} from {begin}");
                op
            });
            assert!(result.is_ok(), "operation {n} from {begin}");
        }
        let each = WEIGHT + Cache::<Alternating, u64>::ENTRY_BYTES.get();
        assert_eq!(used(&runtime), cache.len() as u64 * each, "from {begin}");
    }
}

/// A key of a cache that grows while an entry is removed. The hash of one key, `Growth::removed`,
/// panics on the thread that removes it, so that the thread searches the index for its entry.
#[derive(Clone)]
struct Grown(u64, Arc<Growth>);

struct Growth {
    removed: u64,
    /// The removal waits, from its call of `Hash` on, until an insert hashes its key for the time
    /// with this number; then the insert pauses, so that the search ends before the insert does.
    pauses_at: u64,
    is_removing: AtomicBool,
    rehashes: AtomicU64,
}

thread_local! {
    static REMOVES: Cell<bool> = const { Cell::new(false) };
}

impl Hash for Grown {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(number, growth) = self;
        if *number == growth.removed && REMOVES.get() {
            growth.is_removing.store(true, Release);
            while growth.rehashes.load(Acquire) < growth.pauses_at {
                std::thread::yield_now();
            }
            std::panic::resume_unwind(Box::new(KeyFault));
        }
        if *number == growth.removed && growth.is_removing.load(Acquire) {
            let rehash = growth.rehashes.fetch_add(1, Release) + 1;
            if rehash == growth.pauses_at {
                std::thread::sleep(Duration::from_millis(30));
            }
        }
        number.hash(state);
    }
}

impl PartialEq for Grown {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Grown {}

/// A split of the index that the search for the entry passes moves the entry behind the search.
#[test]
fn retain_removes_an_entry_that_a_split_hides_from_its_search() {
    // The first growths of the key's segment after 1,000 entries: splits are among them. Keys of
    // both sides.
    for (pauses_at, removed) in (8..=12).flat_map(|growth| (10..15).map(move |key| (growth, key))) {
        let (is_removing, rehashes) = (AtomicBool::new(false), AtomicU64::new(0));
        let growth = Arc::new(Growth { removed, pauses_at, is_removing, rehashes });
        let runtime = Runtime::builder().unlimited().topology(Arc::new(Fixed::new(1))).build().unwrap();
        let cache = Cache::<Grown, u64>::builder(&runtime)
            .weigher(|_, _| ByteSize::ZERO)
            .hasher(BuildHasherDefault::<DefaultHasher>::default())
            .build()
            .unwrap();
        let insert = |n| assert!(cache.insert(Grown(n, Arc::clone(&growth)), n).is_ok());
        (0..100).for_each(insert);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                REMOVES.set(true);
                cache.retain(|key, _| key.0 != removed);
            });
            while !growth.is_removing.load(Acquire) {
                std::thread::yield_now();
            }
            (100..).take_while(|_| growth.rehashes.load(Acquire) < pauses_at).for_each(insert);
        });
        let stays = cache.pin().iter().any(|(key, _)| key.0 == removed);
        assert!(!stays, "key {removed}, whose segment grows for the time number {pauses_at}");
    }
}
