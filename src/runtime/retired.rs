//! Entries that have left the caches of a runtime, and are not dropped yet because a reader may
//! still look at them.
//!
//! ```text
//!     charged --evicted, removed, replaced, expired--> retired --readers have left--> dropped
//!
//!     usage <= budget                         always
//!     usage + retired <= budget + allowance   an insert that would exceed it waits for readers, and then is refused
//! ```
//!
//! Bytes that leave a cache go over from the one count to the other, so only an insert makes their
//! sum larger, and only inserts are held up. The allowance is what lets inserts go on at full speed
//! while a reader is inside for a short while: what it holds back is not taken from the entries
//! that are in use.
//!
//! # What is not in the count
//!
//! * 4 KiB at most for each stripe of each cache: one in a small cache, two for each processor in
//!   one that had 1,000 entries.
//! * Up to 64 entries for each thread that drops some just now.
//! * What inserts on other threads have taken since one of them looked: an entry each.
//! * What a weigher does not say.
//!
//! # Sweeps
//!
//! Each cache drops what it has retired as it retires more. That leaves a few bags in caches that
//! are idle, and whatever a reader held back until a cache became idle: so when much is retired,
//! inserts sweep over all caches of the runtime, a few hundred entries at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_store::slab::RetiredBytes;
use parking_lot::Mutex;

/// What may be retired beside a budget: so much, or this part of the budget if that is more.
const ALLOWANCE_MIN: ByteSize = ByteSize::mib(16);
const ALLOWANCE_PARTS: u64 = 4;
/// From this part of the allowance on inserts sweep.
const LOW_PARTS: u64 = 4;
/// ... and again, where readers held back what was found, when it is more by this part of that.
const STEP_PARTS: u64 = 4;
/// Entries that one sweep drops, and caches that it visits.
const DROPS_MAX: usize = 256;
const VISITS_MAX: usize = 256;

/// A cache that retires entries.
pub(crate) trait Retires: Send + Sync {
    /// Begins to wait for the readers of all that was retired. False if that is nothing.
    fn seal(&self) -> bool;

    /// Drops so many of those entries, at most, whose readers have left. How many it dropped.
    fn drop_some(&self, entries: usize) -> usize;
}

/// See the module. What the caches of one runtime have retired.
pub(crate) struct Retired {
    bytes: Arc<RetiredBytes>,
    /// Whose usage and budget it is.
    root: Memcg,
    /// Inserts sweep when so many bytes are retired.
    sweep_at: AtomicU64,
    caches: Mutex<Vec<Weak<dyn Retires>>>,
    /// The cache where the next sweep begins. Locked by the one that sweeps.
    next: Mutex<usize>,
}

impl Retired {
    pub(crate) fn new(root: Memcg) -> Self {
        let (sweep_at, caches, next) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self { bytes: Arc::default(), root, sweep_at, caches, next }
    }

    /// Where a cache counts what it retires.
    pub(crate) fn count(&self) -> Arc<RetiredBytes> {
        Arc::clone(&self.bytes)
    }

    /// How much is retired.
    pub(crate) fn bytes(&self) -> ByteSize {
        self.bytes.get()
    }

    /// A cache begins to retire entries.
    pub(crate) fn add(&self, cache: Weak<dyn Retires>) {
        self.caches.lock().push(cache);
    }

    /// The cache at this address has ended.
    pub(crate) fn remove<T>(&self, cache: *const T) {
        self.caches.lock().retain(|other| !std::ptr::addr_eq(other.as_ptr(), cache));
    }

    /// What may be retired beside the budget; no bound without one.
    pub(crate) fn allowance(&self) -> ByteSize {
        match self.root.max() {
            ByteSize::MAX => ByteSize::MAX,
            budget => ALLOWANCE_MIN.max(ByteSize::new(budget.get() / ALLOWANCE_PARTS)),
        }
    }

    /// The budget of the runtime; what it uses, if there is none.
    pub(crate) fn budget(&self) -> ByteSize {
        match self.root.max() {
            ByteSize::MAX => self.root.usage(),
            budget => budget,
        }
    }

    /// Is it so much that an insert has to look? One load.
    #[inline]
    pub(crate) fn is_much(&self) -> bool {
        self.bytes() > ByteSize::new(ALLOWANCE_MIN.get() / LOW_PARTS)
    }

    /// Is it more than the part of the allowance from which on inserts sweep?
    pub(crate) fn is_above_low(&self) -> bool {
        self.bytes() > self.low()
    }

    /// Are all bytes together, with so many more, within the budget and the allowance?
    pub(crate) fn has_room_for(&self, bytes: ByteSize) -> bool {
        let all = self.root.usage().saturating_add(self.bytes()).saturating_add(bytes);
        all <= self.root.max().saturating_add(self.allowance())
    }

    /// Is it time for another sweep?
    pub(crate) fn is_sweep_due(&self) -> bool {
        // Relaxed: a number that says when.
        self.is_above_low() && self.bytes().get() >= self.sweep_at.load(Ordering::Relaxed)
    }

    /// Drops a few hundred entries that no reader holds back, of whichever caches have some. How
    /// many; 0 also while another thread sweeps.
    ///
    /// Drops run the users' code: not to be called with a lock.
    pub(crate) fn sweep(&self) -> usize {
        let Some(mut next) = self.next.try_lock() else { return 0 };
        let visits = self.caches.lock().len().min(VISITS_MAX);
        // All are sealed before the first drops anything: one fence on every processor is enough
        // for all.
        let sealed = (0..visits).filter(|at| self.cache(*next + at).is_some_and(|cache| cache.seal())).count();
        let mut dropped = 0;
        if sealed == 0 {
            *next = next.wrapping_add(visits);
        }
        for _ in 0..visits {
            let left = DROPS_MAX - dropped;
            if sealed == 0 || left == 0 {
                break;
            }
            let of_one = self.cache(*next).map_or(0, |cache| cache.drop_some(left));
            dropped += of_one;
            // One that may have more is asked first the next time.
            *next = if of_one < left { next.wrapping_add(1) } else { *next };
        }
        let (bytes, low) = (self.bytes().get(), self.low().get());
        let step = if dropped == DROPS_MAX || bytes <= low { 0 } else { low / STEP_PARTS };
        // Relaxed: as in `is_sweep_due`.
        self.sweep_at.store(bytes.saturating_add(step), Ordering::Relaxed);
        dropped
    }

    fn low(&self) -> ByteSize {
        match self.allowance() {
            ByteSize::MAX => ByteSize::MAX,
            allowance => ByteSize::new(allowance.get() / LOW_PARTS),
        }
    }

    /// The cache of this number, counted round and round.
    fn cache(&self, at: usize) -> Option<Arc<dyn Retires>> {
        let caches = self.caches.lock();
        caches.get(at.checked_rem(caches.len())?)?.upgrade()
    }
}
