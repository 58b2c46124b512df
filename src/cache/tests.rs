//! What a cache must hold: contents, bytes, causes, tenants, and who is harmed by whom.

mod behave;
mod bytes;
mod compaction;
mod core;
mod loads;
mod lookups;
mod model;
mod nodes;
mod orders;
mod reaper;
mod save;
mod tenant_keys;
mod tenants;
mod threads;
mod times;

use crate::{ByteSize, Cache, Runtime};

/// A cache of owned bytes in a budget of its own, one node.
fn cache_of(budget: ByteSize) -> Cache<u64, Vec<u8>> {
    let runtime = Runtime::builder()
        .budget(budget)
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .build()
        .expect("a budget and one thread");
    Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, v| ByteSize::new(v.capacity() as u64))
        .build()
        .expect("one shrinker")
}

fn entry_bytes() -> u64 {
    entry_bytes_of::<u64, Vec<u8>>()
}

fn entry_bytes_of<K, V>() -> u64
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::<K, V>::ENTRY_BYTES.get()
}

/// Calls `f` on a thread that stays on one processor.
fn on_one_processor<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let bound = || {
        #[cfg(target_os = "linux")]
        {
            use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
            let allowed = sched_getaffinity(None).expect("its own processors may be asked for");
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("it runs on one"));
            sched_setaffinity(None, &one).expect("that one is allowed");
        }
        f()
    };
    let ended = std::thread::scope(|s| s.spawn(bound).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
