//! Misuse of adapted caches: leaks, panics, re-entrance, weights that are lies, another runtime's
//! group.
//!
//! A foreign cache and its user code are not trusted: the budget holds whatever they return or do.
//!
//! A change must ensure that each fault is followed by a check of the bytes: the charge against the
//! weight, or the usage against the budget. `docs/HAZARDS.md` quotes names of these tests.

#[path = "../../base/tests/hazard/mod.rs"]
mod hazard;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use lowwater::lru_core::MemcgError;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_adapters::{adapt, adapt_in, evict_by, AdaptError, Adapted, Evict, OldestFirst, Weighed};

/// Longer than the reclaimer stands in a cache on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const BUDGET: ByteSize = ByteSize::mib(4);
const BLOCK: usize = 16 << 10;
const MIB: u64 = 1 << 20;

fn runtime() -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

/// Blocks of memory, the oldest first.
#[derive(Default)]
struct Blocks(Mutex<Vec<Vec<u8>>>);

impl Blocks {
    fn push(&self, count: usize) {
        self.0.lock().unwrap().extend((0..count).map(|_| vec![0; BLOCK]));
    }
}

impl Evict for Blocks {
    fn weight(&self) -> ByteSize {
        ByteSize::from(self.0.lock().unwrap().len() * BLOCK)
    }

    fn shrink_to(&self, target: ByteSize) {
        self.0.lock().unwrap().truncate(target.get() as usize / BLOCK);
    }
}

/// Fills a cache of the runtime, so that memory is needed.
fn need_memory(runtime: &Runtime) -> Cache<u64, Vec<u8>> {
    let cache = Cache::<u64, Vec<u8>>::builder(runtime).weigher(|_, value: &Vec<u8>| value.capacity()).build().unwrap();
    for round in 0..400 {
        let _ = cache.insert(round % 200, vec![0; BLOCK]);
        let _ = cache.get(&(round % 200));
    }
    cache
}

#[test]
fn a_cache_that_is_leaked_stays_charged_and_gives_way() {
    let runtime = runtime();
    let blocks = adapt(&runtime, "blocks", Blocks::default()).unwrap();
    blocks.update(|blocks| blocks.push(200));
    let (group, charged) = (blocks.group().clone(), blocks.charged());
    std::mem::forget(blocks);
    assert!(group.usage() >= charged);
    runtime.reclaim(runtime.root(), BUDGET);
    assert_eq!(group.usage(), group.in_stock(), "the entries of a leaked cache are evicted");
}

#[test]
fn a_cache_that_panics_when_it_evicts_is_left_alone() {
    let runtime = runtime();
    let liar = adapt(&runtime, "panics", evict_by(|| 1_usize << 20, |_| panic!("no eviction today"))).unwrap();
    liar.settle();
    let blocks = adapt(&runtime, "blocks", Blocks::default()).unwrap();
    blocks.update(|blocks| blocks.push(100));
    need_memory(&runtime);
    let begun = Instant::now();
    // While the reclaimer evicts, this thread does not.
    while blocks.weight() > ByteSize::ZERO {
        assert!(begun.elapsed() < PATIENCE, "the other one is still evicted");
        runtime.reclaim(runtime.root(), BUDGET);
    }
    assert!(runtime.root().usage() <= BUDGET);
}

#[test]
fn a_weight_that_is_a_lie_is_charged_up_to_the_budget_and_harms_no_other() {
    let runtime = runtime();
    let weight = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&weight);
    let liar = adapt(&runtime, "lies", evict_by(move || told.load(Ordering::Relaxed), |_| ())).unwrap();
    for says in [u64::MAX, 0, 1, u64::MAX - 1, 1 << 63, BUDGET.get(), 4097, 0] {
        weight.store(says, Ordering::Relaxed);
        liar.settle();
        assert!(liar.charged() <= BUDGET, "{} are charged", liar.charged());
        assert!(runtime.root().usage() <= BUDGET);
    }
    liar.settle();
    assert_eq!(liar.charged(), ByteSize::ZERO);
    let cache = need_memory(&runtime);
    assert!(!cache.is_empty());
}

/// A value that adds to its cache when it is dropped.
struct AddsInDrop;

static ADDS: OnceLock<Adapted<Weighed<Fifo>>> = OnceLock::new();

impl Drop for AddsInDrop {
    fn drop(&mut self) {
        if let Some(cache) = ADDS.get().filter(|cache| cache.with(|fifo| fifo.0.len() < 100)) {
            cache.update(|cache| drop(cache.insert(0, vec![])));
        }
    }
}

/// A list of entries, the oldest first: the least cache that `Weighed` takes.
struct Fifo(Vec<(u64, Vec<AddsInDrop>)>);

impl OldestFirst for Fifo {
    type Key = u64;
    type Value = Vec<AddsInDrop>;

    fn push(&mut self, key: u64, value: Vec<AddsInDrop>) -> Option<(u64, Vec<AddsInDrop>)> {
        self.0.push((key, value));
        None
    }

    fn pop_oldest(&mut self) -> Option<(u64, Vec<AddsInDrop>)> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

#[test]
fn a_value_may_use_its_cache_when_it_is_dropped() {
    let runtime = runtime();
    let cache = Weighed::new(Fifo(Vec::new()), |_, _| 64_u64 << 10);
    ADDS.set(adapt(&runtime, "adds", cache).unwrap()).unwrap();
    let cache = ADDS.get().unwrap();
    for n in 0..100 {
        cache.update(|cache| drop(cache.insert(n, vec![AddsInDrop])));
    }
    runtime.reclaim(runtime.root(), BUDGET);
    assert!(runtime.root().usage() <= BUDGET);
    let begun = Instant::now();
    // The reclaimer may be about to subtract the weight of an entry that it has taken out.
    while cache.weight() != ByteSize::kib(64) * cache.with(|fifo| fifo.0.len()) as u64 {
        assert!(begun.elapsed() < PATIENCE, "{} for {} entries", cache.weight(), cache.with(|fifo| fifo.0.len()));
        std::thread::yield_now();
    }
}

#[test]
fn a_group_of_another_runtime_is_refused() {
    let (runtime, other) = (runtime(), runtime());
    let group = other.group("theirs").unwrap();
    let refused = adapt_in(&runtime, "blocks", &group, Blocks::default()).unwrap_err();
    assert!(matches!(refused, AdaptError::Group(MemcgError::Foreign)), "{refused}");
    assert!(matches!(adapt(&runtime, "", Blocks::default()), Err(AdaptError::Group(MemcgError::BadName))));
    // Two caches may have one name, and then one group.
    let both = [(); 2].map(|()| adapt(&runtime, "same", Blocks::default()).unwrap());
    assert_eq!(both[0].group(), both[1].group());
}

#[test]
fn an_insert_that_finds_no_room_is_evicted_again() {
    let runtime = runtime();
    let blocks = adapt(&runtime, "blocks", Blocks::default()).unwrap();
    blocks.group().set_max(ByteSize::mib(1));
    blocks.update(|blocks| blocks.push(1000));
    // While the reclaimer evicts from the cache, the update leaves the excess to it.
    let begun = Instant::now();
    while blocks.weight() > ByteSize::mib(1) {
        assert!(begun.elapsed() < PATIENCE, "{:#} are left", blocks.weight());
        std::thread::yield_now();
    }
    // The blocks for which the limit has room stay: it is not evicted down to nothing.
    assert!(blocks.weight() >= ByteSize::kib(512), "{:#} are left", blocks.weight());
    assert!(blocks.group().usage() <= ByteSize::mib(1));
}

#[test]
#[should_panic(expected = "no weight")]
fn a_cache_with_entries_cannot_be_weighed() {
    let full = Fifo(vec![(1, vec![])]);
    let _ = Weighed::new(full, |_, _| 1_u64);
}

#[test]
fn an_update_that_panics_is_charged() {
    let runtime = runtime();
    let blocks = adapt(&runtime, "blocks", Blocks::default()).unwrap();
    let update = || {
        blocks.update(|blocks| {
            blocks.push(10);
            panic!("after the insert");
        })
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(update)).unwrap_err();
    assert!(blocks.charged() >= blocks.weight());
    assert_eq!(blocks.weight(), ByteSize::from(10 * BLOCK));
}

/// The caches have a capacity of their own, in entries.
#[test]
fn entries_that_a_bounded_cache_evicts_by_itself_leave_their_weight() {
    fn check<C: OldestFirst<Key = u64, Value = String>>(cache: C) {
        let cache = Weighed::new(cache, |_, text: &String| text.len());
        for n in 0..100 {
            let out = cache.insert(n, "x".repeat(n as usize + 1));
            assert_eq!(out.map(|(key, _)| key), n.checked_sub(3), "the oldest one goes");
        }
        assert_eq!(cache.weight(), ByteSize::new(98 + 99 + 100));
        assert_eq!(cache.insert(98, String::new()).unwrap().1.len(), 99, "replaced, and none is evicted");
        assert_eq!(cache.weight(), ByteSize::new(98 + 100));
    }
    check(lru::LruCache::new(3.try_into().unwrap()));
    check(hashlink::LruCache::new(3));
    let none = Weighed::new(hashlink::LruCache::<u64, String>::new(0), |_, text: &String| text.len());
    assert_eq!(none.insert(1, "x".into()).unwrap().0, 1);
    assert_eq!(none.weight(), ByteSize::ZERO);
}

/// The weight of a key is its capacity, which a clone of a `String` does not keep.
#[test]
fn a_key_leaves_with_the_weight_it_came_with() {
    fn check<C: OldestFirst<Key = String, Value = u64>>(cache: C, remove: fn(&mut C, &str) -> Option<(String, u64)>) {
        let key = |name: &str, capacity| {
            let mut key = String::with_capacity(capacity);
            key.push_str(name);
            key
        };
        let cache = Weighed::new(cache, |key: &String, _: &u64| key.capacity());
        let weight = || cache.weight();
        assert!(cache.insert(key("a", 1024), 1).is_none());
        assert_eq!(cache.remove_with(|cache| remove(cache, "a")).map(|(_, value)| value), Some(1));
        assert_eq!(weight(), ByteSize::ZERO, "after a removal");
        for capacity in [1024, 64, 512] {
            let _replaced = cache.insert(key("a", capacity), 1);
        }
        assert_eq!(cache.remove_with(|cache| remove(cache, "a")).map(|(_, value)| value), Some(1));
        assert_eq!(weight(), ByteSize::ZERO, "after a removal of a replaced entry");
        for (name, out) in [("a", None), ("b", None), ("c", None), ("d", Some("a"))] {
            assert_eq!(cache.insert(key(name, 1024), 1).map(|(key, _)| key).as_deref(), out);
        }
        assert_eq!(weight(), ByteSize::kib(3), "of `b` to `d`");
    }
    check(lru::LruCache::new(3.try_into().unwrap()), |cache, key| cache.pop_entry(key));
    check(hashlink::LruCache::new(3), |cache, key| cache.remove_entry(key));
}

/// The weight is no sum of a key's and a value's part, so the pair must leave as it came.
#[test]
fn a_replaced_entry_leaves_with_its_own_key() {
    fn check<C: OldestFirst<Key = String, Value = usize>>(cache: C) {
        let cache = Weighed::new(cache, |key: &String, value: &usize| (key.capacity() + value).next_power_of_two());
        for n in 0..100 {
            let mut key = String::with_capacity(100 + 50 * (n % 3));
            key.push('a');
            assert_eq!(cache.insert(key, 100 * (n % 2)).is_some(), n > 0);
        }
        // 100 and 100 bytes, with the capacity of the last key.
        assert_eq!(cache.weight(), ByteSize::new(256));
        cache.shrink_to(ByteSize::new(1));
        assert_eq!(cache.weight(), ByteSize::ZERO);
    }
    check(lru::LruCache::new(3.try_into().unwrap()));
    check(hashlink::LruCache::new(3));
}

/// A value; the first one that is dropped while `PANICS` is set panics.
struct PanicsInDrop;

static PANICS: AtomicBool = AtomicBool::new(false);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        assert!(!PANICS.swap(false, Ordering::SeqCst), "in a drop");
    }
}

#[test]
fn a_foyer_cache_whose_values_panic_keeps_its_capacity() {
    // One shard: after a panic foyer does not wait for the threads of other shards, and the last of
    // them may set the lower capacity.
    let builder =
        foyer_memory::CacheBuilder::new(1 << 30).with_shards(1).with_weighter(|_: &u64, _: &PanicsInDrop| BLOCK);
    let cache: foyer_memory::Cache<u64, PanicsInDrop> = builder.build();
    for key in 0..20 {
        cache.insert(key, PanicsInDrop);
    }
    PANICS.store(true, Ordering::SeqCst);
    Evict::shrink_to(&cache, ByteSize::from(4 * BLOCK));
    assert!(!PANICS.load(Ordering::SeqCst), "one has panicked");
    let left = Evict::weight(&cache);
    assert!(left < ByteSize::from(20 * BLOCK));
    for key in 100..120 {
        cache.insert(key, PanicsInDrop);
    }
    assert_eq!(Evict::weight(&cache), left + ByteSize::from(20 * BLOCK), "nothing bounds it");
}

/// A cache whose weigher, once it is armed, evicts all entries and inserts another one, while it
/// weighs an entry that leaves.
static RETURNS: OnceLock<Weighed<lru::LruCache<u64, u64>>> = OnceLock::new();

#[test]
fn an_entry_that_leaves_during_an_eviction_and_an_insert_leaves_an_exact_weight() {
    const WEIGHT: u64 = 100;
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&is_armed);
    let cache = RETURNS.get_or_init(|| {
        Weighed::new(lru::LruCache::unbounded(), move |_, _: &u64| {
            if armed.swap(false, Ordering::Relaxed) {
                let cache = RETURNS.get().unwrap();
                cache.shrink_to(ByteSize::ZERO);
                cache.insert(2, 2);
            }
            WEIGHT
        })
    });
    cache.insert(1, 1);
    is_armed.store(true, Ordering::Relaxed);
    assert!(cache.remove_with(|lru| lru.pop_entry(&1)).is_some());
    assert_eq!(cache.weight(), ByteSize::new(WEIGHT), "of entry 2");
    cache.shrink_to(ByteSize::ZERO);
    assert_eq!(cache.weight(), ByteSize::ZERO);
}

/// A value that inserts a new one when it is dropped, for as long as `LIVES` is above 0.
struct Revives(u64);

static REVIVED: OnceLock<Weighed<lru::LruCache<u64, Revives>>> = OnceLock::new();
static LIVES: AtomicU64 = AtomicU64::new(0);

impl Drop for Revives {
    fn drop(&mut self) {
        let lives = LIVES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lives| lives.checked_sub(1));
        if let (Ok(lives), Some(cache)) = (lives, REVIVED.get()) {
            assert!(cache.insert(1000 + lives, Revives(self.0)).is_none());
        }
    }
}

/// An eviction in which entries are inserted evicts no more than it was asked for.
#[test]
fn values_that_insert_themselves_again_do_not_prolong_an_eviction() {
    const LIVES_MAX: u64 = 10_000;
    let cache = REVIVED.get_or_init(|| Weighed::new(lru::LruCache::unbounded(), |_, value: &Revives| value.0));
    let evict = |target| {
        LIVES.store(LIVES_MAX, Ordering::SeqCst);
        cache.shrink_to(ByteSize::new(target));
        LIVES_MAX - LIVES.swap(0, Ordering::SeqCst)
    };
    for key in 0..100 {
        assert!(cache.insert(key, Revives(10)).is_none());
    }
    assert_eq!(evict(900), 10, "values were dropped");
    assert_eq!((cache.weight(), cache.with(|lru| lru.len())), (ByteSize::new(1000), 100));
    // Without the new values, it evicts all of them.
    cache.shrink_to(ByteSize::ZERO);
    assert_eq!((cache.weight(), cache.with(|lru| lru.len())), (ByteSize::ZERO, 0));
    // Entries without a weight, beside one that leaves its weight behind.
    for key in 0..100 {
        assert!(cache.insert(key, Revives(u64::from(key == 0))).is_none());
    }
    assert!(cache.with(|lru| lru.pop(&0)).is_some());
    let dropped = evict(0);
    assert!((99..=100).contains(&dropped), "{dropped} values of 99 were dropped");
}

type Plain = Weighed<lru::LruCache<u64, Vec<u8>>>;

fn plain() -> Plain {
    Weighed::new(lru::LruCache::unbounded(), |_, value: &Vec<u8>| value.capacity())
}

#[test]
fn a_cache_may_be_used_and_dropped_late_on_a_thread() {
    hazard::at_the_end_of_a_thread("adapted caches", || {
        let runtime = runtime();
        let cache = adapt(&runtime, "lru", plain()).unwrap();
        let owned = Arc::new(());
        let owns = Arc::clone(&owned);
        let closures = evict_by(move || Arc::strong_count(&owns) * BLOCK, |_| ());
        let closures = adapt(&runtime, "closures", closures).unwrap();
        cache.update(|cache| drop(cache.insert(1, vec![0; BLOCK])));
        Box::new(move || {
            cache.update(|cache| drop(cache.insert(2, vec![0; BLOCK])));
            assert_eq!(cache.weight(), ByteSize::from(2 * BLOCK));
            closures.settle();
            assert!(closures.charged() >= ByteSize::from(2 * BLOCK));
            runtime.reclaim(cache.group(), BUDGET);
            assert_eq!(cache.weight(), ByteSize::ZERO);
            cache.update(|cache| drop(cache.insert(3, vec![0; BLOCK])));
            drop((cache, closures));
            runtime.tree().drain_stock();
            assert_eq!((runtime.root().usage(), Arc::strong_count(&owned)), (ByteSize::ZERO, 1));
        })
    });
}

/// A cache that drops its own handle, and those of other caches, in each of its methods.
struct DropsHandles(Arc<Mutex<Vec<Box<dyn Send>>>>, AtomicU64);

impl DropsHandles {
    fn drop_one(&self) {
        let handle = self.0.lock().unwrap().pop();
        drop(handle);
    }
}

impl Evict for DropsHandles {
    fn weight(&self) -> ByteSize {
        self.drop_one();
        ByteSize::new(self.1.load(Ordering::Relaxed))
    }

    fn shrink_to(&self, target: ByteSize) {
        self.drop_one();
        self.1.fetch_min(target.get(), Ordering::Relaxed);
    }
}

#[test]
fn a_cache_may_be_dropped_in_a_callback() {
    hazard::within("drops", || {
        let runtime = runtime();
        let handles: Arc<Mutex<Vec<Box<dyn Send>>>> = Arc::default();
        let owned = Arc::new(());
        let drops = DropsHandles(Arc::clone(&handles), AtomicU64::new(MIB));
        let own = adapt(&runtime, "own", drops).unwrap();
        for n in 0..20 {
            let lru = adapt(&runtime, &format!("lru {n}"), plain()).unwrap();
            lru.update(|lru| drop(lru.insert(n, vec![0; BLOCK])));
            let owns = Arc::clone(&owned);
            let closures = evict_by(move || Arc::strong_count(&owns) * BLOCK, |_| ());
            let closures = adapt(&runtime, "closures", closures).unwrap();
            handles.lock().unwrap().extend([Box::new(lru) as Box<dyn Send>, Box::new(closures)]);
            // In the caller's update, and in a scan.
            own.update(|own| own.1.store(MIB, Ordering::Relaxed));
            runtime.reclaim(runtime.root(), ByteSize::kib(64));
        }
        let group = own.group().clone();
        // The last of them is the cache's own handle, which the cache drops inside a scan.
        handles.lock().unwrap().insert(0, Box::new(own));
        let begun = Instant::now();
        while !handles.lock().unwrap().is_empty() || runtime.root().usage() > ByteSize::ZERO {
            runtime.reclaim(runtime.root(), BUDGET);
            runtime.tree().drain_stock();
            assert!(
                begun.elapsed() < PATIENCE / 2,
                "{} are left, {} charged",
                handles.lock().unwrap().len(),
                group.usage()
            );
        }
        assert_eq!((Arc::strong_count(&handles), Arc::strong_count(&owned)), (1, 1), "a cache was kept");
    });
}

#[test]
fn weights_at_their_maximum_saturate() {
    let cache = Weighed::new(lru::LruCache::unbounded(), |_, _: &u64| u64::MAX);
    for n in 0..3 {
        let _old = cache.insert(n, n);
    }
    assert_eq!(cache.weight(), ByteSize::MAX);
    assert!(cache.remove_with(|lru| lru.pop_entry(&1)).is_some());
    // The sum has lost the weight of the other two: they stay until the cache evicts again.
    cache.shrink_to(ByteSize::ZERO);
    assert_eq!((cache.weight(), cache.with(|lru| lru.len())), (ByteSize::ZERO, 2));
    assert!(cache.insert(4, 4).is_none());
    cache.shrink_to(ByteSize::ZERO);
    assert_eq!((cache.weight(), cache.with(|lru| lru.len())), (ByteSize::ZERO, 2));
}
