//! The memory of an empty cache, and of a tenant's first entry, by a counting allocator: within the
//! bounds, and no more than footprints report.
//!
//! A process may have ten thousand caches, and a million tenants with one entry, so each byte here
//! counts.
//!
//! A bound may be lowered; a change that raises one must be explained.

use allocation_counter::{measure, AllocationInfo};
use lowwater::{ByteSize, Cache, Runtime};

/// The allocator's overhead per allocation, at most: a header of 8 bytes, and up to 8 so that the
/// next is aligned.
const ADDED: u64 = 16;

const CACHES: usize = 1_000;
/// Loads that tasks await, and published metrics, have a field each.
const EMPTY_MAX: u64 = 1_024 + if cfg!(any(feature = "async", feature = "metrics")) { 16 } else { 0 };
/// The part of a shared chunk that a cache's first entries take, beside the allocator's memory.
const PART: u64 = 256;
const TENANTS: usize = 10_000;
const FIRST_ENTRY_MAX: u64 = 256;

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::gib(1)).build().unwrap()
}

fn cache(runtime: &Runtime) -> Cache<u64, u64> {
    Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

/// Live bytes, and the allocator's overhead for them.
fn held(allocated: &AllocationInfo) -> u64 {
    u64::try_from(allocated.bytes_current).unwrap() + added(allocated)
}

fn added(allocated: &AllocationInfo) -> u64 {
    u64::try_from(allocated.count_current).unwrap() * ADDED
}

#[test]
fn an_empty_cache_costs_a_kilobyte_at_most() {
    let runtime = runtime();
    // The first cache and entry make allocations that all others share; they do not count.
    cache(&runtime).insert(0, 0).unwrap();
    let mut caches = Vec::with_capacity(CACHES);
    let allocated = measure(|| caches.extend((0..CACHES).map(|_| cache(&runtime))));
    let each = held(&allocated) / CACHES as u64;
    println!("{each} bytes an empty cache, {} of them added by the allocator", added(&allocated) / CACHES as u64);
    assert!(each <= EMPTY_MAX, "{each} bytes an empty cache");
}

#[test]
fn a_tenants_first_entry_costs_256_bytes_at_most() {
    let runtime = runtime();
    let cache = cache(&runtime);
    cache.insert(0, 0).unwrap();
    let tenants: Vec<_> = (0..TENANTS).map(|n| runtime.group(&format!("tenant{n}")).unwrap()).collect();
    let footprint = || {
        let parts = [cache.footprint(), runtime.registry().footprint(), runtime.tree().footprint()];
        parts.iter().map(|bytes| bytes.get()).sum::<u64>()
    };
    let before = footprint();
    let allocated = measure(|| {
        for (n, tenant) in tenants.iter().enumerate() {
            cache.entry(1 + n as u64).group(tenant).insert(0).unwrap();
        }
    });
    assert_eq!(cache.len(), TENANTS + 1);
    // Chunks of entries come from the system, not from the allocator.
    let told = footprint() - before;
    assert!(u64::try_from(allocated.bytes_current).unwrap() <= told, "{allocated:?}, and {told} bytes are reported");
    let each = (told + added(&allocated)) / TENANTS as u64;
    println!(
        "{each} bytes a tenant's first entry, {} of them added by the allocator",
        added(&allocated) / TENANTS as u64
    );
    assert!(each <= FIRST_ENTRY_MAX, "{each} bytes a tenant's first entry");
}

#[test]
fn the_eviction_history_is_allocated_at_the_first_eviction() {
    let runtime = Runtime::builder().budget(ByteSize::mib(2)).build().unwrap();
    let cache = cache(&runtime);
    (0..10_000).for_each(|key| drop(cache.insert(key, 0)));
    assert_eq!((cache.stats().evictions, runtime.stats().ghosts), (0, ByteSize::ZERO));
    (10_000..100_000).for_each(|key| drop(cache.insert(key, 0)));
    assert!(cache.stats().evictions > 0 && runtime.stats().ghosts > ByteSize::ZERO);
}

#[test]
fn a_small_caches_footprint_equals_its_allocations() {
    let runtime = runtime();
    // After these the runtime's lists of caches and of shrinkers have capacity for a few more, so
    // they do not grow during the measurement.
    let others: Vec<_> = (0..5).map(|_| cache(&runtime)).collect();
    others[0].insert(0, 0).unwrap();
    let registry = || runtime.registry().footprint().get();
    let (before, mut made) = (registry(), None);
    let allocated = measure(|| made = Some(cache(&runtime)));
    let cache = made.unwrap();
    let own = allocated.bytes_current as u64 - (registry() - before);
    assert_eq!(cache.footprint().get(), own, "an empty one");
    let before = registry() + cache.footprint().get();
    let allocated = measure(|| drop(cache.insert(1, 1)));
    let own = registry() + cache.footprint().get() - before;
    assert_eq!(own, allocated.bytes_current as u64 + PART, "its first entry");
}
