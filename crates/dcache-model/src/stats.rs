//! Exact counters in shards, so that threads seldom write the same cache line.

use crate::flag;
use crossbeam_utils::CachePadded;
use lowwater_base::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::fmt;

const SHARDS: usize = if cfg!(lowwater_loom) { 1 } else { 16 };

#[derive(Default)]
struct CounterShard {
    dentries: AtomicI64,
    unused: AtomicI64,
    negatives: AtomicI64,
    trimmed: AtomicU64,
    promoted: AtomicU64,
    ghost_hits: AtomicU64,
    backend: AtomicU64,
    refused: AtomicU64,
}

/// The counters of a cache.
pub(crate) struct Counters(Box<[CachePadded<CounterShard>]>);

/// What `/proc/sys/fs/dentry-state` tells, and what the bound on negatives did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "dentry_stat")]
pub struct Statistics {
    /// Dentries that live.
    pub nr_dentry: u64,
    /// Those that are on a list, or on one being shrunk: nobody uses them, or nobody did lately.
    pub nr_unused: u64,
    /// Those of them that are negative and not being shrunk.
    pub nr_negative: u64,
    /// Negatives that the policy killed.
    pub trimmed: u64,
    /// Negatives that came off probation.
    pub promoted: u64,
    /// New negatives whose name was in the ghost table: looked up again soon after they were
    /// trimmed.
    pub ghost_hits: u64,
    /// Questions to backends for one name.
    pub backend_lookups: u64,
    /// Names that were not kept, as their group had no room.
    pub refused: u64,
}

impl fmt::Display for Statistics {
    /// As the kernel's file: age limit 45, no pages wanted, and a 0 for what is gone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t45\t0\t{}\t0", self.nr_dentry, self.nr_unused, self.nr_negative)
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::default()).collect())
    }

    /// Adds the changes by one dentry, or by many. `addr` chooses the shard.
    #[inline]
    pub(crate) fn add(&self, addr: usize, delta: CounterDelta) {
        let shard = self.shard(addr);
        let parts =
            [(&shard.dentries, delta.dentries), (&shard.unused, delta.unused), (&shard.negatives, delta.negatives)];
        for (part, change) in parts {
            if change != 0 {
                // Relaxed: sums are read when they are asked for, and order nothing.
                part.fetch_add(change, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn dentry_allocated(&self, addr: usize) {
        // Relaxed: as in `add`.
        self.shard(addr).dentries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn trimmed(&self, negatives: u64) {
        // Relaxed: as in `add`.
        self.0[0].trimmed.fetch_add(negatives, Ordering::Relaxed);
    }

    pub(crate) fn promoted(&self, addr: usize) {
        // Relaxed: as in `add`.
        self.shard(addr).promoted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ghost_hit(&self, addr: usize) {
        // Relaxed: as in `add`.
        self.shard(addr).ghost_hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, addr: usize) {
        // Relaxed: as in `add`.
        self.shard(addr).refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn backend_lookup(&self, addr: usize) {
        // Relaxed: as in `add`.
        self.shard(addr).backend.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Statistics {
        // Relaxed: as in `add`. A sum read while parts move may be below 0 for an instant, as in the kernel.
        let sum = |part: fn(&CounterShard) -> &AtomicI64| {
            self.0.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
        };
        let total = |part: fn(&CounterShard) -> &AtomicU64| {
            self.0.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum()
        };
        Statistics {
            nr_dentry: sum(|shard| &shard.dentries),
            nr_unused: sum(|shard| &shard.unused),
            nr_negative: sum(|shard| &shard.negatives),
            trimmed: total(|shard| &shard.trimmed),
            promoted: total(|shard| &shard.promoted),
            ghost_hits: total(|shard| &shard.ghost_hits),
            backend_lookups: total(|shard| &shard.backend),
            refused: total(|shard| &shard.refused),
        }
    }

    fn shard(&self, addr: usize) -> &CounterShard {
        // Dentries are some 192 bytes apart: the bits above choose.
        &self.0[(addr >> 8) % self.0.len()]
    }
}

/// Changes of the counters by many dentries, which are added at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterDelta {
    dentries: i64,
    unused: i64,
    negatives: i64,
}

impl CounterDelta {
    /// Notes that the flags of one dentry changed.
    #[inline]
    pub(crate) fn flags_changed(&mut self, before: u32, after: u32) {
        self.unused += i64::from(is_unused(after)) - i64::from(is_unused(before));
        self.negatives += i64::from(is_cached_negative(after)) - i64::from(is_cached_negative(before));
    }

    pub(crate) fn dentry_freed(&mut self) {
        self.dentries -= 1;
    }
}

fn is_unused(flags: u32) -> bool {
    flags & flag::LRU_LIST != 0
}

fn is_cached_negative(flags: u32) -> bool {
    flags & (flag::LRU_LIST | flag::SHRINK_LIST | flag::TYPE) == flag::LRU_LIST
}
