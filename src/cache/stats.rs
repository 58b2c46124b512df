//! Counters of a cache: lookups, inserts, and removals by cause.
//!
//! A hit must not write a cache line that other threads write, so frequent events are counted in
//! stripes: a thread has a stripe of its own while there are free ones, and a read adds all stripes
//! up. A change must ensure that a stripe owned by one thread is written by that thread only, since
//! it is written without a read-modify-write instruction.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use lowwater_base::thread_slot::owned_slot::{self, ThreadSlot};
use lowwater_base::ByteSize;

use super::removal::RemovalCause;

/// Counters of a cache since it was built. They are read one after the other, so they may be
/// slightly inconsistent while the cache is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Lookups that found a live entry, or returned a stale one.
    pub hits: u64,
    /// Lookups that found no entry, or only an expired one that was not returned.
    pub misses: u64,
    /// Values that were inserted, including those that replaced another.
    pub inserts: u64,
    /// Inserts that were rejected: for lack of room or of memory, or because they named a group of
    /// another runtime.
    pub rejected: u64,
    /// Entries that were evicted because their memory was needed.
    pub evictions: u64,
    /// Entries that were removed because their deadline had passed.
    pub expired: u64,
    /// Entries that were removed by a call, or with their group.
    pub removed: u64,
    /// Entries that were removed because another value was inserted under their key.
    pub replaced: u64,
    /// Values that loads and reloads have returned, whether the cache has inserted them or not. A
    /// load that fails or panics is not counted; a load of many keys counts each value.
    pub loads: u64,
    /// Calls of the listener that panicked.
    pub listener_panics: u64,
    /// Entries whose key or value panicked in its own `Drop`, after they were removed for any cause
    /// or moved by compaction. An entry is dropped some time after its removal: see
    /// [`Cache`](crate::Cache), memory.
    pub drop_panics: u64,
    /// Bytes charged for the entries that are in the cache now: the only figure here that can fall.
    /// Exact while no thread works on the cache. For one group and all caches, see
    /// [`Memcg::usage`](crate::Memcg::usage).
    pub bytes: ByteSize,
}

impl CacheStats {
    /// Returns the part of the lookups that were hits, from 0 to 1; 0 without lookups.
    ///
    /// The part of one interval is that of the differences between two readings.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build()?;
    /// assert_eq!(cache.stats().hit_ratio(), 0.0);
    /// cache.insert(1, "one".into())?;
    /// for key in [1, 1, 1, 2] {
    ///     cache.get(&key);
    /// }
    /// assert_eq!(cache.stats().hit_ratio(), 0.75);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hit_ratio(&self) -> f64 {
        match self.hits.saturating_add(self.misses) {
            0 => 0.0,
            lookups => self.hits as f64 / lookups as f64,
        }
    }
}

/// The number of stripes that the threads without a stripe of their own share.
const SHARED: usize = 4;
const STRIPES: usize = owned_slot::OWNED_MAX + SHARED;

/// The counters of a cache, allocated at the first event.
#[derive(Default)]
pub(super) struct Counters {
    lines: OnceBox<Lines>,
}

#[derive(Default)]
struct Lines {
    stripes: [Stripe; STRIPES],
    rejected: AtomicU64,
    loads: AtomicU64,
    listener_panics: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    inserts: AtomicU64,
    evictions: AtomicU64,
    expired: AtomicU64,
    removed: AtomicU64,
    replaced: AtomicU64,
    /// Bytes of the entries inserted by the threads of this stripe, less those of the entries that
    /// they removed. Wraps: only the sum over all stripes is a number of bytes.
    bytes: AtomicU64,
}

/// A sum of the stripes' bytes from here on is negative: removals were read whose inserts were not.
/// Room for 256 of the largest charges of one record, which is 256 TiB.
const NEGATIVE_FROM: u64 = u64::MAX << 56;

const _: () = assert!(size_of::<Stripe>() == 64, "one cache line a thread");

impl Stripe {
    /// Returns the counters of removed entries, in the order of [`place`].
    #[inline]
    fn removals(&self) -> [&AtomicU64; 4] {
        [&self.expired, &self.removed, &self.replaced, &self.evictions]
    }
}

impl Lines {
    /// Returns the sum of the stripes' bytes, which wraps as they do.
    fn bytes_sum(&self) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.bytes.load(Ordering::Relaxed)))
    }

    /// Returns the bytes that the entries are charged; 0 while the sum is negative, for the reason
    /// given in [`Counters::len`].
    fn bytes(&self) -> ByteSize {
        match self.bytes_sum() {
            NEGATIVE_FROM.. => ByteSize::ZERO,
            sum => ByteSize::new(sum),
        }
    }
}

/// Returns the place of a cause among the counters of removed entries.
#[inline]
fn place(cause: RemovalCause) -> usize {
    match cause {
        RemovalCause::Expired => 0,
        RemovalCause::Explicit => 1,
        RemovalCause::Replaced => 2,
        RemovalCause::Size => 3,
    }
}

/// Removed entries, to be counted together.
#[derive(Default)]
pub(super) struct Removals {
    /// Entries by cause, in the order of [`place`].
    by_cause: [u64; 4],
    /// Bytes that were charged for these entries.
    bytes: u64,
    /// The entries that were cleared.
    pub(super) cleared: usize,
}

impl Removals {
    /// Adds an entry that was charged `bytes`.
    #[inline]
    pub(super) fn add(&mut self, cause: RemovalCause, bytes: ByteSize, was_cleared: bool) {
        self.cleared += usize::from(was_cleared);
        self.by_cause[place(cause)] += 1;
        self.bytes = self.bytes.wrapping_add(bytes.get());
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> u64 {
        self.by_cause.iter().sum()
    }
}

// All accesses are Relaxed. The counters are statistics, and order no other memory.
impl Counters {
    #[inline]
    pub(super) fn looked_up(&self, hit: bool) {
        self.stripe(|stripe, add| add(if hit { &stripe.hits } else { &stripe.misses }, 1));
    }

    /// Counts a hit, and returns true, if this thread has a stripe of its own and the counters are
    /// allocated. Otherwise the caller must call [`looked_up`](Self::looked_up).
    #[inline]
    pub(super) fn hit(&self) -> bool {
        let own = self.lines.get().zip(owned_slot::owned());
        own.inspect(|(lines, at)| add_alone(&lines.stripes[*at].hits, 1)).is_some()
    }

    /// Counts an insert of an entry that was charged `bytes`.
    #[inline]
    pub(super) fn inserted(&self, bytes: ByteSize) {
        self.stripe(|stripe, add| {
            add(&stripe.inserts, 1);
            add(&stripe.bytes, bytes.get());
        });
    }

    pub(super) fn rejected(&self) {
        add(&self.lines().rejected);
    }

    pub(super) fn loaded(&self) {
        add(&self.lines().loads);
    }

    pub(super) fn listener_panicked(&self) {
        add(&self.lines().listener_panics);
    }

    /// Counts removals.
    pub(super) fn removed(&self, removals: &Removals) {
        self.stripe(|stripe, add| {
            for (counter, nr) in stripe.removals().into_iter().zip(removals.by_cause).filter(|(_, nr)| *nr > 0) {
                add(counter, nr);
            }
            // Wraps, as the stripe's bytes do.
            add(&stripe.bytes, removals.bytes.wrapping_neg());
        });
    }

    /// Counts the removal of one entry that was charged `bytes`.
    #[inline]
    pub(super) fn removed_one(&self, cause: RemovalCause, bytes: ByteSize) {
        self.stripe(|stripe, add| {
            add(stripe.removals()[place(cause)], 1);
            add(&stripe.bytes, bytes.get().wrapping_neg());
        });
    }

    /// Returns the bytes allocated for the counters.
    pub(super) fn footprint(&self) -> usize {
        self.lines.get().map_or(0, size_of_val)
    }

    /// Returns the number of entries: inserts less removals. Five loads per stripe, all from one
    /// cache line.
    pub(super) fn len(&self) -> usize {
        let Some(lines) = self.lines.get() else { return 0 };
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let len = lines.stripes.iter().fold(0, |sum: u64, stripe| {
            let removals = stripe.removals().into_iter().map(get).fold(0, u64::wrapping_add);
            sum.wrapping_add(get(&stripe.inserts)).wrapping_sub(removals)
        });
        // Negative if a removal was read and its insert, in another stripe, was not: then 0.
        usize::try_from(len as i64).unwrap_or(0)
    }

    /// Returns the number of entries, and the bytes that they are charged.
    pub(super) fn len_and_bytes(&self) -> (usize, ByteSize) {
        (self.len(), self.lines.get().map_or(ByteSize::ZERO, Lines::bytes))
    }

    /// Returns the bytes that the entries are charged, which no other thread changes: the sum is
    /// exact, and not negative.
    pub(super) fn exact_bytes(&mut self) -> ByteSize {
        ByteSize::new(self.lines.get().map_or(0, Lines::bytes_sum))
    }

    /// Adds up the counters of all stripes. O(stripes).
    pub(super) fn read(&self) -> CacheStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Some(lines) = self.lines.get() else { return CacheStats::default() };
        let mut all = CacheStats {
            rejected: get(&lines.rejected),
            loads: get(&lines.loads),
            listener_panics: get(&lines.listener_panics),
            ..CacheStats::default()
        };
        // All removals are read before all inserts, so that normally the removals do not exceed the
        // inserts.
        for stripe in &lines.stripes {
            all.evictions += get(&stripe.evictions);
            all.expired += get(&stripe.expired);
            all.removed += get(&stripe.removed);
            all.replaced += get(&stripe.replaced);
        }
        for stripe in &lines.stripes {
            all.inserts += get(&stripe.inserts);
            all.hits += get(&stripe.hits);
            all.misses += get(&stripe.misses);
        }
        all.bytes = lines.bytes();
        all
    }

    #[inline]
    fn lines(&self) -> &Lines {
        self.lines.get_or_init(Box::default)
    }

    /// Calls `count` with the thread's own stripe and a plain add, or with a shared stripe and an
    /// atomic one.
    #[inline]
    fn stripe(&self, count: impl Fn(&Stripe, fn(&AtomicU64, u64))) {
        let stripes = &self.lines().stripes;
        match owned_slot::current() {
            ThreadSlot::Owned(at) => count(&stripes[at], add_alone),
            ThreadSlot::Shared(at) => count(&stripes[owned_slot::OWNED_MAX + at % SHARED], |counter, more| {
                counter.fetch_add(more, Ordering::Relaxed);
            }),
        }
    }
}

/// Adds to a counter that no other thread writes, without a read-modify-write instruction: such an
/// instruction would delay the next lookup's loads until it completes.
#[inline]
fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[inline]
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
