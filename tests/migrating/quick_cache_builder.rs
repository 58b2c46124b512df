//! The rows of making a quick_cache.

use std::sync::{Arc, Mutex};

use lowwater::cache::Eviction;
use lowwater::{ByteSize, Cache, RemovalCause, Runtime};

use crate::{runtime, Outcome};

#[test]
fn builders() -> Outcome {
    // row: OptionsBuilder::weight_capacity
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    assert_eq!(runtime.root().max(), ByteSize::mib(1));
    // row: Cache::new(items), with_weighter, with, with_options
    let hasher = std::collections::hash_map::RandomState::new();
    let cache = Cache::<u64, u64>::builder(&runtime).hasher(hasher).weigher(|_, _| ByteSize::ZERO).build()?;
    // row: Weighter::weight, UnitWeighter
    for n in 0..30_000 {
        cache.insert(n, n)?;
    }
    assert!(cache.stats().evictions > 0, "an entry whose weigher returns 0 is evicted, too");
    // row: hot_allocation, ghost_allocation
    for order in [Eviction::S3Fifo, Eviction::Adaptive] {
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction(order).build()?;
        cache.insert(1, 1)?;
        assert_eq!(cache.get(&1), Some(1));
    }
    Ok(())
}

#[test]
fn protection() -> Outcome {
    // row: Lifecycle::is_pinned, before_evict
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build()?;
    let tenant = runtime.group("tenant")?;
    tenant.set_min(ByteSize::kib(256));
    for n in 0..1000 {
        cache.entry(n).group(&tenant).insert(n)?;
    }
    for n in 1000..30_000 {
        cache.insert(n, n)?;
    }
    assert_eq!((cache.len_of(&tenant), cache.stats().evictions > 0), (1000, true));
    Ok(())
}

#[test]
fn listeners() -> Outcome {
    // row: Lifecycle::{on_evict, on_evict_hot, on_evict_cold}
    let runtime = runtime(ByteSize::kib(64));
    let (causes, own) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None::<Cache<u64, Vec<u8>>>)));
    let (told, there) = (Arc::clone(&causes), Arc::clone(&own));
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, value| value.capacity())
        .eviction_listener(move |key, value, cause| {
            if let Some(cache) = there.lock().unwrap().as_ref() {
                // It runs after the removal, and without a lock of the cache.
                assert!(!cache.contains_key(key));
                cache.peek(&u64::MAX);
            }
            told.lock().unwrap().push((*key, value.len(), cause));
        })
        .build()?;
    *own.lock().unwrap() = Some(cache.clone());
    cache.insert(1, vec![0; 10])?;
    cache.remove(&1);
    assert_eq!(std::mem::take(&mut *causes.lock().unwrap()), [(1, 10, RemovalCause::Explicit)]);
    assert!(cache.insert(2, vec![0; 1 << 20]).is_err());
    assert!(causes.lock().unwrap().is_empty(), "not called for a refused value");
    // row: Lifecycle::RequestState, methods with _with_lifecycle
    cache.insert(3, vec![0; 10])?;
    runtime.drop_caches();
    assert_eq!(*causes.lock().unwrap(), [(3, 10, RemovalCause::Size)]);
    assert_eq!((cache.stats().listener_panics, own.lock().unwrap().take().is_some()), (0, true));
    Ok(())
}
