//! Each reader marks, on a line that it alone writes, since when it is inside; who frees looks at all marks.
//!
//! Time is a number that each collection moves on. What is retired is stamped with it, and freed when every reader that is
//! inside came in later.
//!
//! # Orderings
//!
//! ```text
//!     a reader                                 a collection
//!       t = time          (Acquire)              [the thing was made unreachable, and stamped s]
//!       mark = t                                 time = s + 1   (Release)
//!       light fence                              heavy fence
//!       follow the pointer                       every mark is 0, or later than s? free
//!       mark = 0          (Release)
//! ```
//!
//! - Store, then load on both sides, so each needs a full fence between its halves. If the heavy fence comes first, the reader
//!   no longer finds the thing. If the light one comes first, the collection sees the mark. (By `membarrier` each running
//!   reader has its fence at some point while the heavy one lasts: before the mark, then the first case holds; or after it, then
//!   the second. So between them the reader needs nothing but that the compiler keeps the order.)
//! - A mark later than `s` was made by a reader that read a time later than `s`, by an Acquire that met the Release: it no longer
//!   finds what was made unreachable before.
//! - A mark of 0, or a later one of the same reader, is read by an Acquire that meets its Release: what it read before, it read
//!   before the thing is freed.
//!
//! - One heavy fence is enough for all stamps that were given out before it, and marks may be looked at later: a reader that came
//!   in after the fence does not find the thing, and the marks of those before it are seen from then on ([`Reached`]).
//!
//! Held by `marks/tests.rs`: `a_thing_is_freed_after_its_readers`, `one_heavy_fence_is_enough_for_all_that_was_stamped_before`, and
//! their twins without one of these, which must fail. (The reader's Acquire has none, nor has that of `now`: in a model the fence after
//! it is a real one, and implies it.)

use crate::sync::atomic::{fence, AtomicU64, Ordering};
use core::cell::Cell;

#[cfg(all(test, lowwater_loom))]
mod tests;

/// Outside.
const OUTSIDE: u64 = 0;
/// The first time; not [`OUTSIDE`].
const BEGIN: u64 = 1;

/// The time.
pub(super) struct Time(AtomicU64);

/// One reader's mark: a cache line of its own.
#[repr(align(128))]
pub(super) struct Mark {
    since: AtomicU64,
    /// How many guards the reader has, and above them [`DUE`] and [`FENCED`]: together, so that one look mostly tells all. Its own:
    /// nobody else looks at it.
    state: Cell<u32>,
}

/// The reader shall collect when it goes out.
const DUE: u32 = 1 << 30;
/// The reader must bring a fence of its own, because the system has none to offer.
const FENCED: u32 = 1 << 31;
/// The guards.
const DEPTH: u32 = DUE - 1;

// SAFETY: `state` is touched only by the thread whose mark it is, and that of a shared one is never changed; the rest is atomic.
unsafe impl Sync for Mark {}

/// What has had its heavy fence. Under a lock, which orders those who look after one fence.
pub(super) struct Reached {
    /// Everything that is stamped earlier.
    before: u64,
}

impl Time {
    #[cfg(not(lowwater_loom))]
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(BEGIN))
    }

    #[cfg(lowwater_loom)]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(BEGIN))
    }

    /// The stamp for what is retired now. The caller holds the lock under which time moves on.
    #[cfg(not(lowwater_loom))]
    pub(super) fn stamp(&self) -> u64 {
        // Relaxed: it changes only under the caller's lock.
        self.0.load(Ordering::Relaxed)
    }

    /// The time now, for who has no lock. What is stamped earlier was unreachable before.
    fn now(&self) -> u64 {
        // Acquire: meets the Release in `move_on`, so that what the fence after this is for comes before it.
        self.0.load(Ordering::Acquire)
    }

    /// Moves on from `stamp`, which is now. The caller holds the lock. What is stamped so may be freed if, after a heavy fence,
    /// all marks are [past](Mark::is_past) it.
    pub(super) fn move_on(&self, stamp: u64) {
        // Release: meets the Acquire in `enter`.
        self.0.store(stamp + 1, if crate::mutated!("time_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }
}

impl Reached {
    /// Nothing has.
    pub(super) const fn new() -> Self {
        Self { before: BEGIN }
    }

    /// Has what is stamped so had its heavy fence?
    pub(super) fn has(&self, stamp: u64) -> bool {
        self.before > stamp
    }

    /// Sees to it that what is stamped so, before time moved on, has had its heavy fence. False if it cannot be had.
    pub(super) fn reach(&mut self, stamp: u64, time: &Time, heavy_fence: impl FnOnce() -> bool) -> bool {
        if self.has(stamp) {
            return true;
        }
        // Before the fence: what is stamped while that lasts may come too late for it.
        let now = time.now();
        if !heavy_fence() {
            return false;
        }
        self.before = if crate::mutated!("time_after_fence") { time.now() } else { now };
        true
    }
}

impl Mark {
    pub(super) fn new(fenced: bool) -> Self {
        Self { since: AtomicU64::new(OUTSIDE), state: Cell::new(if fenced { FENCED } else { 0 }) }
    }

    /// For readers that have none: any number of them is inside, and nobody ever changes it.
    #[cfg(not(lowwater_loom))]
    pub(super) const fn shared() -> Self {
        Self { since: AtomicU64::new(OUTSIDE), state: Cell::new(DEPTH) }
    }

    /// Goes in. On the mark's own thread.
    #[inline]
    pub(super) fn enter(&self, time: &Time) {
        let state = self.state.get();
        // Nobody is due to collect who is outside.
        if state == 0 {
            self.state.set(1);
            self.begin(time);
            // SeqCst: the compiler keeps the order; the processor's fence comes from `membarrier`.
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            self.state.set(state + 1);
            if state & DEPTH == 0 {
                self.begin_fenced(time);
            }
        }
    }

    #[cold]
    fn begin_fenced(&self, time: &Time) {
        self.begin(time);
        if !crate::mutated!("without_light_fence") {
            // SeqCst: between the mark and what the reader follows; meets the heavy fence.
            fence(Ordering::SeqCst);
        }
    }

    #[inline]
    fn begin(&self, time: &Time) {
        // Acquire: meets the Release in `move_on`.
        let now = time.0.load(Ordering::Acquire);
        // Release: who sees this mark, and not the one before, sees that what was read under that one is read.
        self.since.store(now, Ordering::Release);
    }

    /// Something is to be collected, but not while this reader is inside. On the mark's own thread.
    #[cfg(not(lowwater_loom))]
    pub(super) fn set_due(&self) {
        self.state.set(self.state.get() | DUE);
    }

    /// Goes out, if that is all there is to do. Else it is still inside, and [`leave_further`](Self::leave_further) has to. On the mark's
    /// own thread, or for one that is [shared](Self::shared).
    #[inline]
    #[must_use = "if false, it is still inside"]
    pub(super) fn leave(&self) -> bool {
        let is_all = self.state.get() == 1;
        if is_all {
            self.state.set(0);
            self.end();
        }
        is_all
    }

    /// Goes out; says whether something is to be collected now. On the mark's own thread.
    #[inline]
    pub(super) fn leave_further(&self) -> bool {
        let state = self.state.get() - 1;
        self.state.set(state);
        if state & DEPTH == 0 {
            self.end();
        }
        state & (DEPTH | DUE) == DUE
    }

    #[inline]
    fn end(&self) {
        // Release: meets the Acquire in `is_past`.
        let ordering = if crate::mutated!("leave_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.since.store(OUTSIDE, ordering);
    }

    /// Collecting has begun.
    #[cfg(not(lowwater_loom))]
    pub(super) fn clear_due(&self) {
        self.state.set(self.state.get() & !DUE);
    }

    /// Is its reader outside, or did it come in after what is stamped so was unreachable?
    pub(super) fn is_past(&self, stamp: u64) -> bool {
        // Acquire: meets the Release in `leave` and `enter`.
        let since = self.since.load(Ordering::Acquire);
        since == OUTSIDE || since > stamp
    }
}
