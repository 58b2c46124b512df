//! What a cache must hold: contents, bytes, causes, tenants, and who is harmed by whom.

mod behave;
mod core;
mod model;
mod tenants;
mod threads;

use crate::{Bytes, Cache, Runtime};

/// A cache of owned bytes in a budget of its own, one node.
fn cache_of(budget: Bytes) -> Cache<u64, Vec<u8>> {
    let runtime = Runtime::builder()
        .budget(budget)
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .build()
        .expect("a budget and one thread");
    Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, v| Bytes::new(v.capacity() as u64))
        .build()
        .expect("one shrinker")
}

fn entry_bytes() -> u64 {
    Cache::<u64, Vec<u8>>::ENTRY_BYTES.get()
}
