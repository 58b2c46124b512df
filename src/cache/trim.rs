//! Returning free memory of the allocator to the system.
//!
//! The index's small segments come from the allocator, which keeps freed memory; the slab returns
//! its chunks to the system without it.
//!
//! A change must ensure that `malloc_trim` is called rarely: it locks the allocator.

use std::sync::atomic::Ordering;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use lowwater_lru_core::ByteSize;

use super::core::Core;

/// A cache that has not had this many records since its last trim is not trimmed: its index is too
/// small to matter.
const TRIM_FROM: u32 = 1 << 17;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Makes the allocator return free memory to the system, if at most half of the largest number
    /// of records that a call of this function has seen since the last trim are left.
    pub(super) fn trim(&self) {
        // A process has fewer records than 2^32.
        let len = u32::try_from(self.counters.len()).unwrap_or(u32::MAX);
        // Relaxed, both accesses: the number only decides when to trim; two concurrent trims do no
        // harm.
        let most = self.most.fetch_max(len, Ordering::Relaxed).max(len);
        if most >= TRIM_FROM && len <= most / 2 {
            self.most.store(len, Ordering::Relaxed);
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            lowwater_base::malloc_trim::malloc_trim(ByteSize::ZERO);
        }
    }
}
