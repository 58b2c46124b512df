//! Retired records: removed from the caches of a runtime, and not dropped yet, because a reader may
//! still use them.
//!
//! ```text
//!     charged --evicted, removed, replaced, expired--> retired --readers have left--> dropped
//!
//!     usage <= budget                         always, unless the budget was lowered
//!     usage + retired <= budget + allowance   an insert that would exceed it waits for readers, and then is refused
//! ```
//!
//! A removal moves bytes from the usage to the retired bytes and leaves their sum as it is. The sum
//! grows with inserts; with compaction, which pauses above the low mark; and with late clones
//! (`charged.rs`) and bytes that a program charges itself, which are not compared with the bound
//! and may exceed it. Because of the allowance, inserts go on at full speed during a short read:
//! the retired bytes that the reader holds back do not reduce the room for entries.
//!
//! # Memory that is not counted
//!
//! * 4 KiB at most for each thread cache of a cache's slab: a small cache has one, a cache that had
//!   1,000 entries has about two per processor, 64 at most.
//! * Up to 64 entries for each thread that is dropping some.
//! * One entry for each other thread that has inserted since an insert checked the bound.
//! * Memory that a weigher leaves out.
//!
//! # Sweeps
//!
//! Each cache drops retired records as it retires more. So an idle cache keeps a few bags (batches
//! that share a grace period, `store/slab.rs`) of retired records, and all records that a reader
//! held back until the cache became idle. When many bytes are retired, inserts therefore sweep over
//! all caches of the runtime, a few hundred records at a time. So does a charge before it is
//! refused, as values of removed entries may have charges; it finds those that threads have not
//! reported yet, too.
//!
//! A sweep visits a part of the caches. A charge is refused only after sweeps over all of them
//! (`sweep_progress.rs`), as the records of one idle cache may be all that it needs.
//!
//! A change must ensure that a record is counted until its memory can be used again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_store::slab::RetiredBytes;
use parking_lot::Mutex;

use super::maintenance::MaintenanceId;
use super::visit_list::VisitList;

/// The allowance for retired bytes in addition to the budget: this, or the budget divided by
/// `ALLOWANCE_PARTS` if that is more. A promise to users (guarantee 3 of `Runtime`,
/// `docs/promises/readers.md`).
const ALLOWANCE_MIN: ByteSize = ByteSize::mib(16);
const ALLOWANCE_PARTS: u64 = 4;
/// Inserts sweep when the retired bytes exceed the allowance divided by this: the low mark.
const LOW_PARTS: u64 = 4;
/// If readers held back records in a sweep, the next sweep is due when the retired bytes have grown
/// by the low mark divided by this.
const STEP_PARTS: u64 = 4;
/// The most entries that one sweep drops, and the most caches that it visits: bounds on the delay
/// of the insert that sweeps.
const DROPS_MAX: usize = 256;
const VISITS_MAX: usize = 256;
/// The pause after sweeps over all caches that made no room for a charge. They lock each thread
/// cache of each cache, and charges that are refused may come by the thousand.
const SEARCH_PAUSE: Duration = Duration::from_millis(1);

/// A cache that retires entries.
pub(crate) trait Retires: Send + Sync {
    /// Starts a grace period for all retired entries. Returns false if there are none, as far as
    /// `known` tells.
    fn start_grace_period(&self, known: Known) -> bool;

    /// Drops at most `entries` retired entries whose grace period has passed. Returns the number of
    /// dropped entries.
    fn drop_some(&self, entries: usize, known: Known) -> usize;
}

/// The retired entries of which a sweep knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Those that threads have reported, which they do in batches: no other cache is locked.
    Reported,
    /// All.
    All,
}

/// The retired records of all caches of one runtime; see the module.
pub(crate) struct Retired {
    /// The retired bytes of all caches.
    bytes: Arc<RetiredBytes>,
    /// The root group, for its usage and its `max`, which is the budget.
    root: Memcg,
    /// The number of retired bytes at which the next sweep is due.
    sweep_at: AtomicU64,
    caches: VisitList<dyn Retires>,
    /// The time, in microseconds since `started`, from which refused charges sweep again.
    search_at: AtomicU64,
    started: Instant,
    /// The cache after which the next sweep starts. Locked by the thread that sweeps.
    last: Mutex<MaintenanceId>,
    /// The number of caches over which `last` has moved.
    visits: AtomicU64,
}

impl Retired {
    pub(crate) fn new(root: Memcg) -> Self {
        let (sweep_at, caches, last) = (AtomicU64::new(0), VisitList::default(), Mutex::new(MaintenanceId(0)));
        let (search_at, started, visits) = (AtomicU64::new(0), Instant::now(), AtomicU64::new(0));
        Self { bytes: Arc::default(), root, sweep_at, caches, search_at, started, last, visits }
    }

    /// Returns the counter to which a cache adds the bytes that it retires.
    pub(crate) fn count(&self) -> Arc<RetiredBytes> {
        Arc::clone(&self.bytes)
    }

    /// Returns the retired bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> ByteSize {
        self.bytes.get()
    }

    /// Adds a cache, which sweeps then visit.
    pub(crate) fn add(&self, id: MaintenanceId, cache: Weak<dyn Retires>) {
        self.caches.add(id, cache);
    }

    /// Removes a cache: its last handle is being dropped. Waits until no sweep
    /// visits the cache, unless the caller is inside a callback.
    pub(crate) fn remove(&self, id: MaintenanceId) {
        self.caches.remove(id);
    }

    /// Returns the allowance for retired bytes in addition to the budget; without a budget there is
    /// no bound.
    pub(crate) fn allowance(&self) -> ByteSize {
        match self.root.max() {
            ByteSize::MAX => ByteSize::MAX,
            budget => ALLOWANCE_MIN.max(ByteSize::new(budget.get() / ALLOWANCE_PARTS)),
        }
    }

    /// Returns the most that a group may hold: its [`smallest_limit`], or the runtime's usage if
    /// there is none. O(depth).
    pub(crate) fn bound_of(&self, memcg: &Memcg) -> ByteSize {
        match smallest_limit(memcg) {
            ByteSize::MAX => self.root.usage(),
            bound => bound,
        }
    }

    /// Returns whether the retired bytes are above the lowest low mark that a budget can have, so
    /// that an insert must compare them with the mark of its budget. One load.
    #[inline]
    pub(crate) fn is_much(&self) -> bool {
        self.bytes() > ByteSize::new(ALLOWANCE_MIN.get() / LOW_PARTS)
    }

    /// Returns whether the retired bytes are above the low mark.
    pub(crate) fn is_above_low(&self) -> bool {
        self.bytes() > self.low()
    }

    /// Returns whether usage, retired bytes and `bytes` together are within budget and allowance.
    pub(crate) fn has_room_for(&self, bytes: ByteSize) -> bool {
        let all = self.root.usage().saturating_add(self.bytes()).saturating_add(bytes);
        all <= self.root.max().saturating_add(self.allowance())
    }

    /// Returns whether an insert should sweep now.
    pub(crate) fn is_sweep_due(&self) -> bool {
        // Relaxed: the number protects no other memory; it only determines when a sweep runs.
        self.is_above_low() && self.bytes().get() >= self.sweep_at.load(Ordering::Relaxed)
    }

    /// Drops up to [`DROPS_MAX`] retired entries whose grace period has passed, of up to
    /// [`VISITS_MAX`] caches that have `known` ones. Returns the number of dropped entries; `None`
    /// if another thread sweeps, and this call does nothing.
    ///
    /// Drops run user code: the caller must hold no lock.
    pub(crate) fn sweep(&self, known: Known) -> Option<usize> {
        let mut last = self.last.try_lock()?;
        let visits = self.caches.len().min(VISITS_MAX);
        // All caches start a grace period before the first one drops anything: one heavy fence then
        // serves all of them.
        let (mut waiting, mut at) = (0, *last);
        for _ in 0..visits {
            let Some(id) = self.caches.next_after(at) else { break };
            let has_retired = self.caches.visit(id).is_some_and(|cache| cache.start_grace_period(known));
            waiting += usize::from(has_retired);
            at = id;
        }
        let (mut dropped, mut passed) = (0, 0);
        if waiting == 0 {
            (*last, passed) = (at, visits);
        }
        for _ in 0..visits {
            let left = DROPS_MAX - dropped;
            if waiting == 0 || left == 0 {
                break;
            }
            let Some(id) = self.caches.next_after(*last) else { break };
            let of_one = self.caches.visit(id).map_or(0, |cache| cache.drop_some(left, known));
            dropped += of_one;
            // A cache that may have more to drop is the first one of the next sweep.
            if of_one < left {
                *last = id;
                passed += 1;
            }
        }
        // Relaxed: as in `visits`.
        self.visits.fetch_add(passed as u64, Ordering::Relaxed);
        let (bytes, low) = (self.bytes().get(), self.low().get());
        let step = if dropped == DROPS_MAX || bytes <= low { 0 } else { low / STEP_PARTS };
        // Relaxed: as in `is_sweep_due`.
        self.sweep_at.store(bytes.saturating_add(step), Ordering::Relaxed);
        Some(dropped)
    }

    /// Returns the number of visits of caches in all sweeps; it wraps.
    pub(super) fn visits(&self) -> u64 {
        // Relaxed: a statistic of the sweeps; dropped records are seen through the counters of
        // bytes.
        self.visits.load(Ordering::Relaxed)
    }

    /// Returns the number of caches.
    pub(super) fn caches(&self) -> usize {
        self.caches.len()
    }

    /// Returns whether a charge that would be refused may sweep over all caches: not within
    /// [`SEARCH_PAUSE`] of a [fruitless](Self::note_fruitless) one.
    pub(crate) fn is_search_due(&self) -> bool {
        // Relaxed: as in `is_sweep_due`.
        self.micros() >= self.search_at.load(Ordering::Relaxed)
    }

    /// Notes that sweeps over all caches made no room for a charge.
    pub(crate) fn note_fruitless(&self) {
        // Relaxed: as in `is_sweep_due`.
        self.search_at.store(self.micros() + SEARCH_PAUSE.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns the microseconds since the start.
    fn micros(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Returns whether a later sweep may drop entries that the last one did not.
    pub(crate) fn may_drop_more(&self) -> bool {
        self.bytes() > ByteSize::ZERO || self.last.is_locked()
    }

    /// Returns the low mark: the retired bytes above which inserts sweep.
    fn low(&self) -> ByteSize {
        match self.allowance() {
            ByteSize::MAX => ByteSize::MAX,
            allowance => ByteSize::new(allowance.get() / LOW_PARTS),
        }
    }
}

/// Returns the smallest `max` or `high` of a group and its ancestors. O(depth).
pub(crate) fn smallest_limit(memcg: &Memcg) -> ByteSize {
    let groups = std::iter::successors(Some(memcg), |memcg| memcg.parent());
    groups.fold(ByteSize::MAX, |least, memcg| least.min(memcg.max()).min(memcg.high()))
}

#[cfg(test)]
mod tests {
    use lowwater_lru_core::MemcgTree;

    use super::*;

    #[test]
    fn a_fruitless_search_delays_the_next_one() {
        let tree = MemcgTree::default();
        let retired = Retired::new(tree.root().clone());
        assert!(retired.is_search_due());
        // This thread may be suspended for longer than the pause.
        let is_delayed = (0..1_000).any(|_| {
            retired.note_fruitless();
            !retired.is_search_due()
        });
        assert!(is_delayed);
        while !retired.is_search_due() {
            std::thread::yield_now();
        }
        assert!(retired.started.elapsed() >= SEARCH_PAUSE);
    }

    #[test]
    fn the_low_mark_is_a_quarter_of_the_allowance() {
        let tree = MemcgTree::default();
        let retired = Retired::new(tree.root().clone());
        assert_eq!((retired.allowance(), retired.low()), (ByteSize::MAX, ByteSize::MAX), "no budget");
        tree.root().set_max(ByteSize::mib(8));
        assert_eq!((retired.allowance(), retired.low()), (ByteSize::mib(16), ByteSize::mib(4)));
        tree.root().set_max(ByteSize::gib(1));
        assert_eq!((retired.allowance(), retired.low()), (ByteSize::mib(256), ByteSize::mib(64)));
    }
}
