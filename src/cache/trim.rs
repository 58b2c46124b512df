//! Returning free memory of the allocator to the system.

use std::sync::atomic::Ordering;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use lowwater_lru_core::Bytes;

use super::core::Core;

/// A cache of so many entries is worth asking the allocator to give back what the index had.
const TRIM_FROM: usize = 1 << 17;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Makes the allocator give back what the index does not need any more, when half of the entries have gone. The slab needs no asking.
    pub(super) fn trim(&self) {
        let len = self.counters.len();
        // Relaxed, both: a number that says when; two who ask at once do no harm.
        let most = self.most.fetch_max(len, Ordering::Relaxed).max(len);
        if most >= TRIM_FROM && len <= most / 2 {
            self.most.store(len, Ordering::Relaxed);
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            lowwater_lru_core::trim::malloc_trim(Bytes::ZERO);
        }
    }
}
