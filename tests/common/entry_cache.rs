//! A cache with room for a number of entries.
//!
//! Sizes and hits then follow from the requests alone: there is one node, nothing is reclaimed
//! below the limit, and hashes have no random seed.
//!
//! A change must keep runs equal but for the times at which background threads run.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use lowwater::{topology, ByteSize, Cache, Runtime, Watermarks};

/// Returns a runtime, and its only cache, which holds this many entries when it is full.
pub fn entry_cache(entries: u64) -> (Runtime, Cache<u64, u64, BuildHasherDefault<DefaultHasher>>) {
    let runtime = Runtime::builder()
        .budget(ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get()))
        .watermarks(Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO })
        .topology(Arc::new(topology::Fixed::new(1)))
        // On a busy machine, a reader without a processor may hold evicted entries back for long.
        .direct_time_max(Duration::from_secs(60))
        .build()
        .unwrap();
    let builder = Cache::builder(&runtime).weigher(|_: &u64, _: &u64| ByteSize::ZERO);
    let cache = builder.hasher(BuildHasherDefault::default()).build().unwrap();
    (runtime, cache)
}
