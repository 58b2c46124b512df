//! What was done, and why entries left.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use lowwater_base::thread_slot::owned_slot::{self, ThreadSlot};
use lowwater_base::ByteSize;

use super::removal::RemovalCause;

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
    /// Bytes charged for the entries that the cache holds now: the one figure here that also falls. Exact while no thread works on the cache;
    /// [`Memcg::usage`](crate::Memcg::usage) is that of a group, for all caches.
    pub bytes: ByteSize,
}

/// What is counted often is counted by each thread on a line of its own, as long as there are lines; the others share a few.
const SHARED: usize = 4;
const STRIPES: usize = owned_slot::OWNED_MAX + SHARED;

/// A pointer before the first count.
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
    /// Bytes of the entries that were inserted here, less those of the entries that were removed here. Wraps: only the sum over all stripes
    /// is a number of bytes.
    bytes: AtomicU64,
}

const _: () = assert!(size_of::<Stripe>() == 64, "one cache line a thread");

// Relaxed, all of them: numbers to look at; nothing is decided by them.
impl Counters {
    #[inline]
    pub(super) fn looked_up(&self, hit: bool) {
        self.stripe(|stripe, add| add(if hit { &stripe.hits } else { &stripe.misses }, 1));
    }

    /// Counts a hit, if this thread has a line of its own to do so. Else [`looked_up`](Self::looked_up) has to.
    #[inline]
    pub(super) fn hit(&self) -> bool {
        let own = self.lines.get().zip(owned_slot::owned());
        own.inspect(|(lines, at)| add_alone(&lines.stripes[*at].hits, 1)).is_some()
    }

    /// Counts an insert of an entry that was charged `bytes`.
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

    /// Counts the removal of an entry that was charged `bytes`.
    pub(super) fn removed(&self, cause: RemovalCause, bytes: ByteSize) {
        self.stripe(|stripe, add| {
            let why = match cause {
                RemovalCause::Expired => &stripe.expired,
                RemovalCause::Explicit => &stripe.removed,
                RemovalCause::Replaced => &stripe.replaced,
                RemovalCause::Size => &stripe.evictions,
            };
            add(why, 1);
            // Wraps, as the stripe's bytes do.
            add(&stripe.bytes, bytes.get().wrapping_neg());
        });
    }

    /// Bytes of what was allocated for counting.
    pub(super) fn footprint(&self) -> usize {
        self.lines.get().map_or(0, size_of_val)
    }

    /// The number of entries: inserts less removals. Five loads a stripe, all of one cache line.
    pub(super) fn len(&self) -> usize {
        let Some(lines) = self.lines.get() else { return 0 };
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let len = lines.stripes.iter().fold(0, |sum: u64, stripe| {
            let removals = [&stripe.evictions, &stripe.expired, &stripe.removed, &stripe.replaced];
            let removals = removals.into_iter().map(get).fold(0, u64::wrapping_add);
            sum.wrapping_add(get(&stripe.inserts)).wrapping_sub(removals)
        });
        // A removal may be read whose insert was not.
        usize::try_from(len.cast_signed()).unwrap_or(0)
    }

    /// The number of entries, and the bytes that they are charged.
    pub(super) fn len_and_bytes(&self) -> (usize, ByteSize) {
        let Some(lines) = self.lines.get() else { return (0, ByteSize::ZERO) };
        let get = |stripe: &Stripe| stripe.bytes.load(Ordering::Relaxed);
        let bytes = lines.stripes.iter().map(get).fold(0, u64::wrapping_add);
        // As in `len`.
        (self.len(), ByteSize::new(u64::try_from(bytes.cast_signed()).unwrap_or(0)))
    }

    pub(super) fn read(&self) -> CacheStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Some(lines) = self.lines.get() else { return CacheStats::default() };
        let mut all = CacheStats {
            rejected: get(&lines.rejected),
            loads: get(&lines.loads),
            listener_panics: get(&lines.listener_panics),
            ..CacheStats::default()
        };
        // What goes, before what comes: nothing goes that did not come before.
        for stripe in &lines.stripes {
            all.evictions += get(&stripe.evictions);
            all.expired += get(&stripe.expired);
            all.removed += get(&stripe.removed);
            all.replaced += get(&stripe.replaced);
        }
        let mut bytes = 0_u64;
        for stripe in &lines.stripes {
            all.inserts += get(&stripe.inserts);
            all.hits += get(&stripe.hits);
            all.misses += get(&stripe.misses);
            bytes = bytes.wrapping_add(get(&stripe.bytes));
        }
        // As in `len`.
        all.bytes = ByteSize::new(u64::try_from(bytes.cast_signed()).unwrap_or(0));
        all
    }

    #[inline]
    fn lines(&self) -> &Lines {
        self.lines.get_or_init(Box::default)
    }

    /// Counts on a line of the thread's own, if there is one.
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

/// Where no other thread writes no exchange is needed; it would keep the next lookup from beginning before it is done.
#[inline]
fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[inline]
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
