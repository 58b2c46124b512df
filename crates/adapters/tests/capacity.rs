//! The capacity of a quick_cache after many evictions, each of which lowers it and sets it back.
//!
//! A change must keep evictions of many sizes in the test: the loss of each depends on its target.

use lowwater::ByteSize;
use lowwater_adapters::Evict;
use quick_cache::sync::Cache;

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<u64, u64> for Bytes {
    fn weight(&self, _: &u64, bytes: &u64) -> u64 {
        *bytes
    }
}

/// quick_cache refuses an entry that is heavier than its part for hot entries, 97 % of the capacity
/// by default. It computes that part anew, and rounds it down, each time its capacity is set.
#[test]
fn quick_cache_takes_large_entries_after_many_evictions() {
    // One shard, and four. The capacities are odd numbers.
    for (items, capacity) in [(16, 60_001), (4 * 32, 240_003)] {
        let cache = Cache::with_weighter(items, capacity, Bytes);
        let mut random = 1_u64;
        for n in 0..20_000 {
            for key in 0..20 {
                cache.insert(20 * n + key, capacity / 30);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let target = capacity / 8 + (random >> 33) % (capacity / 3);
            cache.shrink_to(ByteSize::new(target));
            assert!(cache.weight() <= target, "{} bytes are left of {target}", cache.weight());
        }
        let now = cache.capacity();
        assert!((capacity..capacity + capacity / 20).contains(&now), "the capacity became {now}");
        let large = cache.shard_capacity() * 96 / 100;
        cache.insert(u64::MAX, large);
        assert_eq!(cache.get(&u64::MAX), Some(large), "{} shards refuse a large entry", cache.num_shards());
    }
}

/// A cache that is light enough keeps its entries, although one shard holds more than its part.
#[test]
fn quick_cache_evicts_nothing_above_its_weight() {
    let cache = Cache::with_weighter(4 * 32, 4 << 20, Bytes);
    assert!(cache.num_shards() > 1);
    cache.insert(1, 1 << 19);
    cache.shrink_to(ByteSize::kib(512));
    assert_eq!(cache.get(&1), Some(1 << 19));
}

/// Eight entries in eight shards, by the number in each shard: the heaviest shard decides how far
/// the capacity must fall.
const UNEVEN: [&[u64]; 3] = [&[8], &[4, 1, 1, 1, 1], &[3, 2, 1, 1, 1]];
const ENTRY: u64 = 1 << 20;

/// Returns for each shard of `counts` as many keys as it says.
fn keys_of_shards(counts: &[u64], shard_of: impl Fn(u64) -> usize) -> Vec<u64> {
    let keys_of = |(shard, count): (usize, &u64)| {
        (0..).filter(|key| shard_of(*key) == shard).take(*count as usize).collect::<Vec<_>>()
    };
    counts.iter().enumerate().flat_map(keys_of).collect()
}

/// Checks an eviction of one page from eight entries.
fn evicts_few(cache: &impl Evict, counts: &[u64]) {
    assert_eq!(cache.weight(), ByteSize::new(8 * ENTRY), "{counts:?}");
    let target = ByteSize::new(8 * ENTRY - 4096);
    cache.shrink_to(target);
    let left = cache.weight();
    assert!((ByteSize::new(6 * ENTRY)..=target).contains(&left), "{left} bytes are left of {counts:?} entries");
}

#[test]
fn quick_cache_keeps_the_lighter_shards() {
    for counts in UNEVEN {
        let mut options = quick_cache::OptionsBuilder::new();
        options.shards(8).estimated_items_capacity(8 * 32).weight_capacity(64 * ENTRY);
        let cache: Cache<u64, u64, Bytes> =
            Cache::with_options(options.build().unwrap(), Bytes, Default::default(), Default::default());
        assert_eq!(cache.num_shards(), 8);
        for key in keys_of_shards(counts, |key| cache.shard_index(&key)) {
            cache.insert(key, ENTRY);
        }
        evicts_few(&cache, counts);
        assert_eq!(cache.capacity(), 64 * ENTRY);
    }
}

#[test]
fn foyer_keeps_the_lighter_shards() {
    for counts in UNEVEN {
        let builder = foyer_memory::CacheBuilder::new(1 << 40).with_shards(8);
        let cache: foyer_memory::Cache<u64, u64> = builder.with_weighter(|_, bytes: &u64| *bytes as usize).build();
        for key in keys_of_shards(counts, |key| cache.hash(&key) as usize % cache.shards()) {
            cache.insert(key, ENTRY);
        }
        evicts_few(&cache, counts);
    }
}
