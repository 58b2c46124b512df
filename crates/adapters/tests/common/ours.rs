//! lowwater's own cache beside an adapted one in one budget, and the keys that both are asked for.
//! Also for the tests of `ci/adapters`.
//!
//! A change must keep the keys the same on each run: shares are compared with bounds.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};

/// Creates a runtime with a long time limit for direct reclaim: on a busy machine the reclaimer may
/// be in a cache for longer than the default limit, and these tests are about shares, not time.
pub fn runtime(budget: ByteSize) -> Runtime {
    let builder = Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1)));
    builder.direct_time_max(Duration::from_secs(10)).build().unwrap()
}

pub fn ours(runtime: &Runtime) -> Cache<u64, Vec<u8>> {
    Cache::builder(runtime).name("ours").weigher(|_, value: &Vec<u8>| value.capacity()).build().unwrap()
}

/// Looks a key up, and inserts a value of `bytes` bytes if it is absent.
pub fn ask_ours(cache: &Cache<u64, Vec<u8>>, key: u64, bytes: usize) {
    if cache.get(&key).is_none() {
        cache.insert(key, vec![0; bytes]).unwrap();
    }
}

/// Keys below `count` by Zipf's law, approximately: lower keys more often.
pub struct Keys {
    state: u64,
    count: u64,
}

impl Keys {
    pub fn new(seed: u64, count: u64) -> Self {
        Self { state: seed, count }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let fraction = (self.state >> 33) as f64 / (1_u64 << 31) as f64;
        (self.count as f64).powf(fraction) as u64
    }
}
