//! An empty cache reports that it is empty: a pass calls it once more, and then not until it holds
//! objects again (S12 of docs/INVARIANTS.md).
//!
//! Without the report, every pass would call every empty cache of a process.
//!
//! A change must ensure that the callbacks are counted, not guessed from the time.

use lowwater::{ByteSize, Cache, NodeId, Runtime};
use lowwater_shrinker::{Progress, Reclaim, Work};

#[test]
fn s12_an_empty_cache_is_not_counted_until_an_insert() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).name("numbers").weigher(|_, _| ByteSize::new(64)).build().unwrap();
    let registry = runtime.registry();
    let callbacks = || {
        let pass = |n| {
            let node = NodeId::new(n as u16);
            registry.shrink(registry.root(), node, 0, Reclaim::KSWAPD, &mut Work::unlimited())
        };
        (0..registry.nodes()).map(pass).map(|progress: Progress| progress.callbacks).sum::<u64>()
    };
    for key in 0..100 {
        cache.insert(key, key).unwrap();
    }
    assert!(callbacks() > 0);
    while runtime.drop_caches() > 0 {}
    callbacks();
    assert_eq!((registry.snapshot().live_pairs, callbacks()), (0, 0));
    cache.insert(1, 1).unwrap();
    assert!(callbacks() > 0);
}
