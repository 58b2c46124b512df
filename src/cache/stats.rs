//! Counters of a cache: lookups, inserts, and removals by cause.
//!
//! A hit must not write a cache line that other threads write, so frequent events are counted in
//! stripes: a thread has a stripe of its own while there are free ones, and a read adds all stripes
//! up. The first events of a cache are counted by all threads together: the stripes take 1,280
//! bytes, and a process may have thousands of caches that are hardly used. A change must ensure
//! that a stripe owned by one thread is written by that thread only, since it is written without a
//! read-modify-write instruction.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use lowwater_base::fallible::try_box;
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
/// The stripes are allocated after about as many lookups and inserts.
const FIRST_MAX: u64 = 256;

/// The counters of a cache.
#[derive(Default)]
pub(super) struct Counters {
    /// The first events, and rare ones; allocated at the first of them.
    first: OnceBox<First>,
    /// The later events.
    stripes: OnceBox<[Stripe; STRIPES]>,
}

#[derive(Default)]
struct First {
    counts: Counts,
    rejected: AtomicU64,
    loads: AtomicU64,
    listener_panics: AtomicU64,
}

/// Counts in a cache line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(Counts);

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    inserts: AtomicU64,
    evictions: AtomicU64,
    expired: AtomicU64,
    removed: AtomicU64,
    replaced: AtomicU64,
    /// Bytes of inserted entries less those of removed ones. Wraps: only the sum over all counts is
    /// a number of bytes, as a thread may remove an entry that another one has inserted.
    bytes: AtomicU64,
}

const _: () = assert!(size_of::<Stripe>() == 64, "one cache line a thread");

impl Counts {
    /// Returns the counters of removed entries, in the order of [`place`].
    #[inline]
    fn removals(&self) -> [&AtomicU64; 4] {
        [&self.expired, &self.removed, &self.replaced, &self.evictions]
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
    pub(super) bytes: u64,
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
        self.count(move |counts, add| add(if hit { &counts.hits } else { &counts.misses }, 1));
    }

    /// Counts a hit, and returns true, if this thread has a stripe of its own and the stripes are
    /// allocated. Otherwise the caller must call [`looked_up`](Self::looked_up).
    #[inline]
    pub(super) fn hit(&self) -> bool {
        let own = self.stripes.get().zip(owned_slot::owned());
        own.inspect(|(stripes, at)| add_alone(&stripes[*at].0.hits, 1)).is_some()
    }

    /// Counts an insert of an entry that was charged `bytes`.
    #[inline]
    pub(super) fn inserted(&self, bytes: ByteSize) {
        self.count(|counts, add| {
            add(&counts.inserts, 1);
            add(&counts.bytes, bytes.get());
        });
    }

    pub(super) fn rejected(&self) {
        add(&self.first().rejected, 1);
    }

    pub(super) fn loaded(&self) {
        add(&self.first().loads, 1);
    }

    pub(super) fn listener_panicked(&self) {
        add(&self.first().listener_panics, 1);
    }

    /// Counts removals.
    pub(super) fn removed(&self, removals: &Removals) {
        self.count(|counts, add| {
            for (counter, nr) in counts.removals().into_iter().zip(removals.by_cause).filter(|(_, nr)| *nr > 0) {
                add(counter, nr);
            }
            // Wraps, as the counted bytes do.
            add(&counts.bytes, removals.bytes.wrapping_neg());
        });
    }

    /// Counts the removal of one entry that was charged `bytes`.
    #[inline]
    pub(super) fn removed_one(&self, cause: RemovalCause, bytes: ByteSize) {
        self.count(|counts, add| {
            add(counts.removals()[place(cause)], 1);
            add(&counts.bytes, bytes.get().wrapping_neg());
        });
    }

    /// Returns the bytes allocated for the counters.
    pub(super) fn footprint(&self) -> usize {
        self.first.get().map_or(0, size_of_val) + self.stripes.get().map_or(0, size_of_val)
    }

    /// Returns the number of entries: inserts less removals. Five loads per stripe, all from one
    /// cache line, or for the first events from two.
    pub(super) fn len(&self) -> usize {
        let len = self.all().fold(0, |sum: u64, counts| {
            let removals = counts.removals().into_iter().map(get).fold(0, u64::wrapping_add);
            sum.wrapping_add(get(&counts.inserts)).wrapping_sub(removals)
        });
        // Negative if a removal was read and its insert, in another stripe, was not: then 0.
        usize::try_from(len as i64).unwrap_or(0)
    }

    /// Returns the number of entries, and the bytes that they are charged.
    pub(super) fn len_and_bytes(&self) -> (usize, ByteSize) {
        (self.len(), self.bytes())
    }

    /// Returns the bytes that the entries are charged, which no other thread changes: the sum is
    /// exact, and not negative.
    pub(super) fn exact_bytes(&mut self) -> ByteSize {
        ByteSize::new(self.bytes_sum())
    }

    /// Adds up the counters of all stripes. O(stripes).
    pub(super) fn read(&self) -> CacheStats {
        let mut all = CacheStats::default();
        if let Some(first) = self.first.get() {
            all.rejected = get(&first.rejected);
            all.loads = get(&first.loads);
            all.listener_panics = get(&first.listener_panics);
        }
        // All removals are read before all inserts, so that normally the removals do not exceed the
        // inserts.
        for counts in self.all() {
            all.evictions += get(&counts.evictions);
            all.expired += get(&counts.expired);
            all.removed += get(&counts.removed);
            all.replaced += get(&counts.replaced);
        }
        for counts in self.all() {
            all.inserts += get(&counts.inserts);
            all.hits += get(&counts.hits);
            all.misses += get(&counts.misses);
        }
        all.bytes = self.bytes();
        all
    }

    /// Returns the bytes that the entries are charged; 0 while the sum is negative, for the reason
    /// given in [`len`](Self::len).
    fn bytes(&self) -> ByteSize {
        ByteSize::of_wrapped_sum(self.bytes_sum())
    }

    /// Returns the sum of all counted bytes, which wraps as they do.
    fn bytes_sum(&self) -> u64 {
        self.all().fold(0, |sum, counts| sum.wrapping_add(get(&counts.bytes)))
    }

    /// Returns the counts of the first events, and those of the stripes.
    fn all(&self) -> impl Iterator<Item = &Counts> {
        let first = self.first.get().map(|first| &first.counts);
        first.into_iter().chain(self.stripes.get().into_iter().flatten().map(|stripe| &stripe.0))
    }

    fn first(&self) -> &First {
        self.first.get_or_init(Box::default)
    }

    /// Calls `count` with the thread's own stripe and a plain add, or with shared counts and an
    /// atomic one.
    #[inline]
    fn count(&self, count: impl Fn(&Counts, fn(&AtomicU64, u64))) {
        let Some(stripes) = self.stripes.get() else { return count(self.first_counts(), add) };
        match owned_slot::owned() {
            Some(at) => count(&stripes[at].0, add_alone),
            None => count_first_or_shared(stripes, count),
        }
    }

    /// Returns the counts of the first events. Allocates the stripes for later ones when there were
    /// many.
    #[cold]
    fn first_counts(&self) -> &Counts {
        let counts = &self.first().counts;
        if get(&counts.hits) + get(&counts.misses) + get(&counts.inserts) >= FIRST_MAX {
            // Without memory the next event tries again. If another thread was first, its stripes
            // are used.
            if let Some(stripes) = try_box(Default::default()) {
                let _is_first = self.stripes.set(stripes);
            }
        }
        counts
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Counts an event of a thread that has owned no stripe yet, or shares one.
#[cold]
fn count_first_or_shared(stripes: &[Stripe; STRIPES], count: impl Fn(&Counts, fn(&AtomicU64, u64))) {
    match owned_slot::current() {
        ThreadSlot::Owned(at) => count(&stripes[at].0, add_alone),
        ThreadSlot::Shared(at) => count(&stripes[owned_slot::OWNED_MAX + at % SHARED].0, add),
    }
}

/// Adds to a counter that no other thread writes, without a read-modify-write instruction: such an
/// instruction would delay the next lookup's loads until it completes.
#[inline]
fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
