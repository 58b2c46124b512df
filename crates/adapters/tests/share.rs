//! Each kind of adapted cache beside a lowwater `Cache` in one budget: it gives way when it is not
//! used, takes its share when it is, and stays within the budget.
//!
//! A change must ensure that each cache that the crate adapts has a `Kind` here. The crate's
//! README.md, `docs/HAZARDS.md` and `ci/claims.md` quote names of these tests.

#[path = "common/ours.rs"]
mod ours;
#[path = "../../../tests/common/two_of_three.rs"]
mod two_of_three;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lowwater::ByteSize;
use lowwater_adapters::{adapt, evict_by, Adapted, Evict, Weighed};
use ours::{ask_ours, ours, runtime, Keys};
use two_of_three::two_of_three;

const BUDGET: ByteSize = ByteSize::mib(4);
/// The bytes of a value on the heap, large beside the overhead of an entry, which differs.
const VALUE: usize = 4000;
/// Larger than any budget, for a cache that requires a capacity.
const UNBOUNDED: u64 = 1 << 40;
/// Keys of each cache: three times the budget.
const KEYS: u64 = 3 * BUDGET.get() / VALUE as u64;

/// Takes as long as a program that makes a value for a miss. Without it a thread that is preempted
/// in one of foyer's evictions, which start two threads, would miss thousands of operations, and
/// the shares would depend on the load of the machine.
fn make_value() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(20) {
        std::hint::spin_loop();
    }
}

/// As [`ask_ours`], with the time that a value takes.
fn ask_ours_slowly(cache: &lowwater::Cache<u64, Vec<u8>>, key: u64) {
    if cache.peek(&key).is_none() {
        make_value();
    }
    ask_ours(cache, key, VALUE);
}

/// The operations of the tests on a cache of some kind.
trait Kind: Evict + Sized {
    fn empty() -> Self;
    fn is_hit(&self, key: u64) -> bool;
    fn put(&self, key: u64);

    /// Looks a key up, and inserts a value on a miss.
    fn ask(cache: &Adapted<Self>, key: u64) {
        if !cache.is_hit(key) {
            make_value();
            cache.update(|cache| cache.put(key));
        }
    }
}

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<u64, Vec<u8>> for Bytes {
    fn weight(&self, _: &u64, value: &Vec<u8>) -> u64 {
        value.capacity() as u64
    }
}

impl Kind for quick_cache::sync::Cache<u64, Vec<u8>, Bytes> {
    fn empty() -> Self {
        Self::with_weighter(BUDGET.get() as usize / VALUE, BUDGET.get(), Bytes)
    }

    fn is_hit(&self, key: u64) -> bool {
        self.get(&key).is_some()
    }

    fn put(&self, key: u64) {
        self.insert(key, vec![0; VALUE]);
    }
}

impl Kind for foyer_memory::Cache<u64, Vec<u8>> {
    fn empty() -> Self {
        let builder = foyer_memory::CacheBuilder::new(UNBOUNDED as usize).with_shards(1);
        builder.with_weighter(|_: &u64, value: &Vec<u8>| value.capacity()).build()
    }

    fn is_hit(&self, key: u64) -> bool {
        self.get(&key).is_some()
    }

    fn put(&self, key: u64) {
        self.insert(key, vec![0; VALUE]);
    }
}

impl Kind for Weighed<lru::LruCache<u64, Vec<u8>>> {
    fn empty() -> Self {
        Self::new(lru::LruCache::unbounded(), |_, value: &Vec<u8>| value.capacity())
    }

    fn is_hit(&self, key: u64) -> bool {
        self.with(|lru| lru.get(&key).is_some())
    }

    fn put(&self, key: u64) {
        self.insert(key, vec![0; VALUE]);
    }
}

impl Kind for Weighed<hashlink::LruCache<u64, Vec<u8>>> {
    fn empty() -> Self {
        Self::new(hashlink::LruCache::new_unbounded(), |_, value: &Vec<u8>| value.capacity())
    }

    fn is_hit(&self, key: u64) -> bool {
        self.with(|lru| lru.get(&key).is_some())
    }

    fn put(&self, key: u64) {
        self.insert(key, vec![0; VALUE]);
    }
}

type Entries = VecDeque<(u64, Vec<u8>)>;

/// A queue that is described by two closures.
struct Fifo {
    entries: Arc<Mutex<Entries>>,
    evict: Box<dyn Evict>,
}

impl Evict for Fifo {
    fn weight(&self) -> ByteSize {
        self.evict.weight()
    }

    fn shrink_to(&self, target: ByteSize) {
        self.evict.shrink_to(target);
    }
}

impl Kind for Fifo {
    fn empty() -> Self {
        let entries = Arc::new(Mutex::new(VecDeque::<(u64, Vec<u8>)>::new()));
        let (weighed, shrunk) = (Arc::clone(&entries), Arc::clone(&entries));
        let evict = evict_by(
            move || weighed.lock().unwrap().len() * VALUE,
            move |target| {
                let mut entries = shrunk.lock().unwrap();
                let keep = entries.len().min(target.get() as usize / VALUE);
                let gone = entries.len() - keep;
                entries.drain(..gone);
            },
        );
        Self { entries, evict: Box::new(evict) }
    }

    fn is_hit(&self, key: u64) -> bool {
        self.entries.lock().unwrap().iter().any(|entry| entry.0 == key)
    }

    fn put(&self, key: u64) {
        self.entries.lock().unwrap().push_back((key, vec![0; VALUE]));
    }
}

/// Waits for a state that the reclaimer may be about to restore.
fn eventually(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// An unused cache gives its memory to the one that is used.
fn gives_way<C: Kind>(name: &str) {
    let runtime = runtime(BUDGET);
    let cache = adapt(&runtime, name, C::empty()).unwrap();
    for key in 0..KEYS {
        C::ask(&cache, key);
    }
    let full = cache.weight();
    assert!(full.get() * 10 >= BUDGET.get() * 8, "{name} was filled, and holds {full:#}");
    let ours = ours(&runtime);
    let mut keys = Keys::new(1, KEYS);
    for _ in 0..6 * KEYS {
        ask_ours_slowly(&ours, keys.next());
    }
    let left = cache.weight();
    println!("{name}: {left:#} of {full:#} are left");
    assert!(left.get() * 4 <= full.get(), "{name} keeps {left:#} of {full:#} though it is not used");
    // The reclaimer may be between an eviction and the change of the charge. The charge is at most
    // two steps of 16 KiB above the weight (`STEP` in balance.rs); this allows for a third.
    eventually(&format!("{name}: no more is charged"), || cache.charged() <= cache.weight() + ByteSize::kib(48));
}

/// In equal use a cache and ours hold about the same: the cache's part is in `fair`.
fn takes_its_share<C: Kind>(name: &str, fair: &RangeInclusive<f64>) {
    for is_first in [true, false] {
        let is_fair = || fair.contains(&share::<C>(name, is_first));
        assert!(two_of_three(is_fair), "{name} holds too little or too much, first {is_first}");
    }
}

/// Returns the part of both caches' bytes that the cache holds in equal use, as the mean of three
/// runs: it depends on the hashes, by which entries are spread over shards.
fn share<C: Kind>(name: &str, is_first: bool) -> f64 {
    let mut held = [0, 0];
    for seed in 2..5 {
        let runtime = runtime(BUDGET);
        let (cache, ours) = (adapt(&runtime, name, C::empty()).unwrap(), ours(&runtime));
        for key in 0..KEYS {
            match is_first {
                true => C::ask(&cache, key),
                false => ask_ours_slowly(&ours, key),
            }
        }
        let mut random = Keys::new(seed, KEYS);
        for n in 0..16 * KEYS {
            C::ask(&cache, random.next());
            ask_ours_slowly(&ours, random.next());
            if n >= 8 * KEYS && n % 20 == 0 {
                held[0] += cache.weight().get();
                held[1] += ours.stats().bytes.get();
            }
        }
    }
    let share = held[0] as f64 / (held[0] + held[1]) as f64;
    println!("{name}: share {share:.3}, first {is_first}");
    share
}

/// Threads insert into the cache and into ours; the sum of both stays within the budget.
fn holds_the_budget<C: Kind>(name: &str) {
    let runtime = runtime(BUDGET);
    let (cache, ours) = (adapt(&runtime, name, C::empty()).unwrap(), ours(&runtime));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (cache, ours, runtime) = (&cache, &ours, &runtime);
            scope.spawn(move || {
                let mut keys = Keys::new(thread, KEYS);
                for _ in 0..4 * KEYS {
                    C::ask(cache, keys.next());
                    let _ = ours.insert(keys.next(), vec![0; VALUE]);
                    assert!(runtime.root().usage() <= BUDGET);
                    // One value of each thread is in the cache before it is charged; more while
                    // one thread evicts, because the other does not wait for it. 32 values fit.
                    let charged = cache.charged();
                    let weight = cache.weight();
                    let slack = ByteSize::kib(16) * 8;
                    assert!(weight <= BUDGET + slack, "{weight} bytes, {charged} of them charged");
                }
            });
        }
    });
    // The reclaimer may be about to restore a charge that it has lowered too far.
    eventually(&format!("{name}: the weight is charged"), || cache.weight() <= cache.charged());
    // The drop returns all that was charged.
    let group = cache.group().clone();
    eventually(&format!("{name}: the usage is the charge"), || {
        let charged = cache.charged();
        runtime.tree().drain_stock();
        group.usage() == charged
    });
    drop(cache);
    runtime.tree().drain_stock();
    assert_eq!(group.usage(), ByteSize::ZERO, "{name}");
}

/// An update that is larger than the budget finds the room that an idle cache gives up.
fn takes_room_in_one_update<C: Kind>(name: &str, values: u64) {
    let runtime = runtime(BUDGET);
    let (cache, ours) = (adapt(&runtime, name, C::empty()).unwrap(), ours(&runtime));
    (0..KEYS).for_each(|key| ask_ours(&ours, key, VALUE));
    let free = BUDGET - runtime.root().usage();
    assert!(free <= BUDGET / 4, "{free:#} are free");
    cache.update(|cache| (0..values).for_each(|key| cache.put(key)));
    // While the reclaimer evicts from the cache, the update leaves the excess to it.
    eventually(&format!("{name}: the weight is charged"), || cache.weight() <= cache.charged());
    let (held, left) = (cache.weight(), ours.stats().bytes);
    println!("{name}: {held:#} after an update with {values} values, {left:#} of the other cache");
    assert!(held >= free + BUDGET / 16, "{name} holds {held:#}, {free:#} were free");
    assert!(held + left >= BUDGET / 2, "{name} and the other cache hold {held:#} and {left:#}");
    assert!(runtime.root().usage() <= BUDGET);
}

type Quick = quick_cache::sync::Cache<u64, Vec<u8>, Bytes>;
type Foyer = foyer_memory::Cache<u64, Vec<u8>>;
type Lru = Weighed<lru::LruCache<u64, Vec<u8>>>;
type Hashlink = Weighed<hashlink::LruCache<u64, Vec<u8>>>;

/// Lets one test run at a time: on a busy machine the reclaimer is late, and a share another one.
fn alone() -> impl Drop {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn each_cache_gives_way() {
    let _alone = alone();
    gives_way::<Quick>("quick_cache");
    gives_way::<Foyer>("foyer");
    gives_way::<Lru>("lru");
    gives_way::<Hashlink>("hashlink");
    gives_way::<Fifo>("closures");
}

/// quick_cache is missing: it has a capacity of its own.
#[test]
fn each_cache_takes_room_in_one_update() {
    let _alone = alone();
    // Half the budget, twice, and 32 times.
    for values in [KEYS / 6, 2 * KEYS / 3, 32 * KEYS / 3] {
        takes_room_in_one_update::<Foyer>("foyer", values);
        takes_room_in_one_update::<Lru>("lru", values);
        takes_room_in_one_update::<Hashlink>("hashlink", values);
        takes_room_in_one_update::<Fifo>("closures", values);
    }
}

#[test]
fn each_cache_takes_its_share() {
    let _alone = alone();
    let fair = 0.40..=0.60;
    takes_its_share::<Quick>("quick_cache", &fair);
    // Each eviction from foyer starts two threads, which takes 1 to 30 ms on a busy machine.
    // Meanwhile the memory that is needed is evicted from ours, so that foyer holds more.
    takes_its_share::<Foyer>("foyer", &(0.40..=0.67));
    takes_its_share::<Lru>("lru", &fair);
    takes_its_share::<Hashlink>("hashlink", &fair);
    takes_its_share::<Fifo>("closures", &fair);
}

/// Each eviction changes the capacity, which loses ghosts. The hit ratio is compared with that of a
/// cache of a fixed capacity: the loss was 0.051 to 0.062, depending on how often the reclaimer
/// ran.
#[test]
fn quick_cache_loses_few_hits_by_its_evictions() {
    let _alone = alone();
    assert!(two_of_three(|| quick_cache_loss() <= 0.08), "the evictions lose too many hits");
}

/// Returns by how much the hit ratio is below that of a cache of a fixed capacity.
fn quick_cache_loss() -> f64 {
    let runtime = runtime(BUDGET);
    let adapted = adapt(&runtime, "adapted", Quick::empty()).unwrap();
    let alone = Quick::empty();
    let (mut keys, mut hits) = (Keys::new(3, KEYS), [0, 0]);
    for n in 0..40 * KEYS {
        // Two in three keys by Zipf's law, and a scan, which ghosts distinguish from them.
        let key = if n % 3 == 0 { KEYS + n } else { keys.next() };
        hits[0] += u64::from(adapted.is_hit(key));
        hits[1] += u64::from(alone.is_hit(key));
        Kind::ask(&adapted, key);
        if !alone.is_hit(key) {
            alone.put(key);
        }
    }
    let [adapted, alone] = hits.map(|hits| hits as f64 / (40 * KEYS) as f64);
    println!("hit ratio adapted {adapted:.3}, alone {alone:.3}");
    alone - adapted
}

#[test]
fn the_budget_holds() {
    let _alone = alone();
    holds_the_budget::<Quick>("quick_cache");
    holds_the_budget::<Foyer>("foyer");
    holds_the_budget::<Lru>("lru");
    holds_the_budget::<Hashlink>("hashlink");
    holds_the_budget::<Fifo>("closures");
}
