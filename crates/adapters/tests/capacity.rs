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
