//! What was done, and why entries left.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Why an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// Its time was over.
    Expired,
    /// Somebody removed it.
    Explicit,
    /// Another value was put under its key.
    Replaced,
    /// Its memory was needed.
    Size,
}

/// Counts since the cache was made. They are read one after the other, so they need not agree to the last while it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Lookups that found something.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Values put in.
    pub inserts: u64,
    /// Values that found no room.
    pub rejected: u64,
    /// Entries that left because their memory was needed.
    pub evictions: u64,
    /// Entries that left because their time was over.
    pub expired: u64,
    /// Entries that were removed.
    pub removed: u64,
    /// Entries whose place another value took.
    pub replaced: u64,
    /// Loads by `get_or_insert_with`.
    pub loads: u64,
    /// Calls of the listener that panicked.
    pub listener_panics: u64,
    /// Values whose own `Drop` panicked while they were evicted.
    pub drop_panics: u64,
}

/// Lookups are counted in as many places, so that reading threads seldom write to one line.
const STRIPES: usize = 16;

#[derive(Default)]
pub(super) struct Counters {
    lookups: [CachePadded<Lookups>; STRIPES],
    inserts: AtomicU64,
    rejected: AtomicU64,
    evictions: AtomicU64,
    expired: AtomicU64,
    removed: AtomicU64,
    replaced: AtomicU64,
    loads: AtomicU64,
    listener_panics: AtomicU64,
    drop_panics: AtomicU64,
}

#[derive(Default)]
struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

// Relaxed, all of them: numbers to look at; nothing is decided by them.
impl Counters {
    pub(super) fn looked_up(&self, hit: bool) {
        let lookups = &self.lookups[stripe()];
        let counter = if hit { &lookups.hits } else { &lookups.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn inserted(&self) {
        self.inserts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn loaded(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn listener_panicked(&self) {
        self.listener_panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn drop_panicked(&self) {
        self.drop_panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn removed(&self, cause: RemovalCause) {
        let counter = match cause {
            RemovalCause::Expired => &self.expired,
            RemovalCause::Explicit => &self.removed,
            RemovalCause::Replaced => &self.replaced,
            RemovalCause::Size => &self.evictions,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CacheStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            hits: self.lookups.iter().map(|l| get(&l.hits)).sum(),
            misses: self.lookups.iter().map(|l| get(&l.misses)).sum(),
            inserts: get(&self.inserts),
            rejected: get(&self.rejected),
            evictions: get(&self.evictions),
            expired: get(&self.expired),
            removed: get(&self.removed),
            replaced: get(&self.replaced),
            loads: get(&self.loads),
            listener_panics: get(&self.listener_panics),
            drop_panics: get(&self.drop_panics),
        }
    }
}

/// The calling thread's stripe: from the address of a thread-local, which differs between threads that live at one time.
fn stripe() -> usize {
    thread_local! { static HERE: u8 = const { 0 } }
    HERE.with(|here| {
        let address = std::ptr::from_ref(here).addr() as u64;
        (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize
    })
}
