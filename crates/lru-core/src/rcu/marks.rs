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
//! - A third thread may run the heavy fence without the lock. The fence serves stamps before the
//!   time that this thread read first ([`before_fence`]): the load's Acquire meets the Release in
//!   `move_on`, so the fence comes after the thing was made unreachable.
//!
//! Held by `marks/tests.rs`: `a_thing_is_freed_after_its_readers`,
//! `one_heavy_fence_is_enough_for_all_that_was_stamped_before`,
//! `a_heavy_fence_of_a_third_thread_serves_what_was_stamped_before`, and their twins without one of
//! these, which must fail. (The reader's Acquire has none, nor has that of `now`: in a model the
//! fence after it is a real one, and implies it.)

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
    /// The number of the thread's guards in units of [`GUARD`], and below it [`DUE`], [`FENCED`]
    /// and [`ENDED`]: in one word, so that the hot path compares once. Only the mark's own thread
    /// reads or writes the word.
    state: Cell<u64>,
}

/// The thread shall collect when its last guard goes.
const DUE: u64 = 1;
/// The thread must bring a fence of its own, because the system has none to offer.
const FENCED: u64 = 2;
/// The thread's `END` was destroyed while the thread had guards: guards in thread-locals that are
/// destroyed later, or leaked guards. The last guard unregisters the mark. With a leaked guard the
/// mark stays registered for ever.
const ENDED: u64 = 4;
/// A guard. There is room for 2^61: a program that leaks one each nanosecond overflows it after 73
/// years.
const GUARD: u64 = 8;

// SAFETY: `state` is touched only by the thread whose mark it is, and that of a shared one is never changed; the rest is atomic.
unsafe impl Sync for Mark {}

/// What has had its heavy fence. Under a lock, which orders those who look after one fence.
pub(super) struct Reached {
    /// Everything that is stamped earlier.
    before: u64,
}

/// The duties of a guard's drop. Both false unless the guard was the last of its thread.
#[must_use = "no other guard does it"]
#[cfg_attr(lowwater_loom, expect(dead_code, reason = "a model does neither"))]
pub(super) struct Duties {
    /// Retired memory is to be collected.
    pub(super) is_due: bool,
    /// The mark is to be unregistered, before anything else.
    pub(super) has_ended: bool,
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
        let now = before_fence(time);
        if !heavy_fence() {
            return false;
        }
        self.complete(if crate::mutated!("time_after_fence") { before_fence(time) } else { now });
        true
    }

    /// Records a heavy fence that ran after [`before_fence`] returned `now`. The lock may have been
    /// free meanwhile.
    pub(super) fn complete(&mut self, now: u64) {
        // A fence that began later may have been recorded first.
        self.before = self.before.max(now);
    }
}

/// Returns the time, to be read before a heavy fence: the fence serves earlier stamps. A stamp that
/// is given out while the fence runs may be too late for it.
pub(super) fn before_fence(time: &Time) -> u64 {
    time.now()
}

impl Mark {
    pub(super) fn new(fenced: bool) -> Self {
        Self { since: AtomicU64::new(OUTSIDE), state: Cell::new(if fenced { FENCED } else { 0 }) }
    }

    /// For readers that have none: any number of them is inside, and nobody ever changes it.
    #[cfg(not(lowwater_loom))]
    pub(super) const fn shared() -> Self {
        Self { since: AtomicU64::new(OUTSIDE), state: Cell::new(2 * GUARD) }
    }

    /// Goes in. On the mark's own thread.
    #[inline]
    pub(super) fn enter(&self, time: &Time) {
        let state = self.state.get();
        // Nobody is due to collect who is outside.
        if state == 0 {
            self.state.set(GUARD);
            self.begin(time);
            // SeqCst: the compiler keeps the order; the processor's fence comes from `membarrier`.
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            self.state.set(state + GUARD);
            if state < GUARD {
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
        let is_all = self.state.get() == GUARD;
        if is_all {
            self.state.set(0);
            self.end();
        }
        is_all
    }

    /// Drops a guard, and returns its duties. On the mark's own thread.
    #[inline]
    pub(super) fn leave_further(&self) -> Duties {
        let state = self.state.get() - GUARD;
        if state >= GUARD {
            self.state.set(state);
            return Duties { is_due: false, has_ended: false };
        }
        self.state.set(state & !DUE);
        self.end();
        Duties { is_due: state & DUE != 0, has_ended: state & ENDED != 0 }
    }

    /// Sets [`ENDED`]. True if the thread has no guards, so that the caller unregisters the mark;
    /// else the last guard has that among its [`Duties`]. On the mark's own thread.
    #[cfg(not(lowwater_loom))]
    pub(super) fn end_thread(&self) -> bool {
        let state = self.state.get();
        self.state.set(state | ENDED);
        state < GUARD
    }

    #[inline]
    fn end(&self) {
        // Release: meets the Acquire in `is_past`.
        let ordering = if crate::mutated!("leave_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.since.store(OUTSIDE, ordering);
    }

    /// Counts `guards` more, as if they were made and leaked.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn leak(&self, guards: u64) {
        self.state.set(self.state.get() + guards * GUARD);
    }

    /// Is its reader outside, or did it come in after what is stamped so was unreachable?
    pub(super) fn is_past(&self, stamp: u64) -> bool {
        // Acquire: meets the Release in `leave` and `enter`.
        let since = self.since.load(Ordering::Acquire);
        since == OUTSIDE || since > stamp
    }
}
