//! Each reader local epochs, on a line that it alone writes, since when it is inside; who frees looks at all local epochs.
//!
//! GlobalEpoch is a number that each collection moves on. What is retired is stamped with it, and freed when every reader that is
//! inside came in later.
//!
//! # Orderings
//!
//! ```text
//!     a reader                                 a collection
//!       t = time          (Acquire)              [the thing was made unreachable, and stamped s]
//!       local = t                                 time = s + 1   (Release)
//!       light fence                              heavy fence
//!       follow the pointer                       every local epoch is 0, or later than s? free
//!       local = 0          (Release)
//! ```
//!
//! - Store, then load on both sides, so each needs a full fence between its halves. If the heavy fence comes first, the reader
//!   no longer finds the thing. If the light one comes first, the collection sees the local epoch. (By `membarrier` each running
//!   reader has its fence at some point while the heavy one lasts: before the local epoch, then the first case holds; or after it, then
//!   the second. So between them the reader needs nothing but that the compiler keeps the order.)
//! - A local epoch later than `s` was made by a reader that read a time later than `s`, by an Acquire that met the Release: it no longer
//!   finds what was made unreachable before.
//! - A local epoch of 0, or a later one of the same reader, is read by an Acquire that meets its Release: what it read before, it read
//!   before the thing is freed.
//!
//! - One heavy fence is enough for all stamps that were given out before it, and local epochs may be looked at later: a reader that came
//!   in after the fence does not find the thing, and the local epochs of those before it are seen from then on ([`FencedUpTo`]).
//!
//! - A third thread may run the heavy fence without the lock. The fence serves stamps before the
//!   time that this thread read first ([`before_fence`]): the load's Acquire meets the Release in
//!   `advance`, so the fence comes after the thing was made unreachable.
//!
//! Held by `local_epoch/tests.rs`: `a_thing_is_freed_after_its_readers`,
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
pub(super) struct GlobalEpoch(AtomicU64);

/// One reader's local epoch: a cache line of its own.
#[repr(align(128))]
pub(super) struct LocalEpoch {
    epoch: AtomicU64,
    /// The number of the thread's guards in units of [`GUARD`], and below it [`COLLECT_PENDING`], [`FENCED`]
    /// and [`ENDED`]: in one word, so that the hot path compares once. Only the local epoch's own thread
    /// reads or writes the word.
    state: Cell<u64>,
}

/// The thread shall collect when its last guard goes.
const COLLECT_PENDING: u64 = 1;
/// The thread must bring a fence of its own, because the system has none to offer.
const FENCED: u64 = 2;
/// The thread's `END` was destroyed while the thread had guards: guards in thread-locals that are
/// destroyed later, or leaked guards. The last guard unregisters the local epoch. With a leaked guard the
/// local epoch stays registered for ever.
const ENDED: u64 = 4;
/// A guard. There is room for 2^61: a program that leaks one each nanosecond overflows it after 73
/// years.
const GUARD: u64 = 8;

// SAFETY: `state` is touched only by the thread whose local epoch it is, and that of a shared one is never changed; the rest is atomic.
unsafe impl Sync for LocalEpoch {}

/// What has had its heavy fence. Under a lock, which orders those who look after one fence.
pub(super) struct FencedUpTo {
    /// Everything that is stamped earlier.
    before: u64,
}

/// The duties of a guard's drop. Both false unless the guard was the last of its thread.
#[must_use = "no other guard does it"]
#[cfg_attr(lowwater_loom, expect(dead_code, reason = "a model does neither"))]
pub(super) struct Duties {
    /// Retired memory is to be collected.
    pub(super) collect_pending: bool,
    /// The local epoch is to be unregistered, before anything else.
    pub(super) unregister: bool,
}

impl GlobalEpoch {
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
        // Acquire: meets the Release in `advance`, so that what the fence after this is for comes before it.
        self.0.load(Ordering::Acquire)
    }

    /// Moves on from `stamp`, which is now. The caller holds the lock. What is stamped so may be freed if, after a heavy fence,
    /// all local epochs are [past](LocalEpoch::is_quiescent_since) it.
    pub(super) fn advance(&self, stamp: u64) {
        // Release: meets the Acquire in `enter`.
        self.0.store(stamp + 1, if crate::mutated!("time_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }
}

impl FencedUpTo {
    /// Nothing has.
    pub(super) const fn new() -> Self {
        Self { before: BEGIN }
    }

    /// Has what is stamped so had its heavy fence?
    pub(super) fn has(&self, stamp: u64) -> bool {
        self.before > stamp
    }

    /// Sees to it that what is stamped so, before time moved on, has had its heavy fence. False if it cannot be had.
    pub(super) fn reach(&mut self, stamp: u64, global: &GlobalEpoch, heavy_fence: impl FnOnce() -> bool) -> bool {
        if self.has(stamp) {
            return true;
        }
        let now = before_fence(global);
        if !heavy_fence() {
            return false;
        }
        self.complete(if crate::mutated!("time_after_fence") { before_fence(global) } else { now });
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
pub(super) fn before_fence(global: &GlobalEpoch) -> u64 {
    global.now()
}

impl LocalEpoch {
    pub(super) fn new(fenced: bool) -> Self {
        Self { epoch: AtomicU64::new(OUTSIDE), state: Cell::new(if fenced { FENCED } else { 0 }) }
    }

    /// For readers that have none: any number of them is inside, and nobody ever changes it.
    #[cfg(not(lowwater_loom))]
    pub(super) const fn shared() -> Self {
        Self { epoch: AtomicU64::new(OUTSIDE), state: Cell::new(2 * GUARD) }
    }

    /// Goes in. On the local epoch's own thread.
    #[inline]
    pub(super) fn enter(&self, global: &GlobalEpoch) {
        let state = self.state.get();
        // Nobody is due to collect who is outside.
        if state == 0 {
            self.state.set(GUARD);
            self.begin(global);
            // SeqCst: the compiler keeps the order; the processor's fence comes from `membarrier`.
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            self.state.set(state + GUARD);
            if state < GUARD {
                self.begin_fenced(global);
            }
        }
    }

    #[cold]
    fn begin_fenced(&self, global: &GlobalEpoch) {
        self.begin(global);
        if !crate::mutated!("without_light_fence") {
            // SeqCst: between the local epoch and what the reader follows; meets the heavy fence.
            fence(Ordering::SeqCst);
        }
    }

    #[inline]
    fn begin(&self, global: &GlobalEpoch) {
        // Acquire: meets the Release in `advance`.
        let now = global.0.load(Ordering::Acquire);
        // Release: who sees this local epoch, and not the one before, sees that what was read under that one is read.
        self.epoch.store(now, Ordering::Release);
    }

    /// Something is to be collected, but not while this reader is inside. On the local epoch's own thread.
    #[cfg(not(lowwater_loom))]
    pub(super) fn set_collect_pending(&self) {
        self.state.set(self.state.get() | COLLECT_PENDING);
    }

    /// Goes out, if that is all there is to do. Else it is still inside, and [`leave_further`](Self::leave_further) has to. On the local epoch's
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

    /// Drops a guard, and returns its duties. On the local epoch's own thread.
    #[inline]
    pub(super) fn leave_further(&self) -> Duties {
        let state = self.state.get() - GUARD;
        if state >= GUARD {
            self.state.set(state);
            return Duties { collect_pending: false, unregister: false };
        }
        self.state.set(state & !COLLECT_PENDING);
        self.end();
        Duties { collect_pending: state & COLLECT_PENDING != 0, unregister: state & ENDED != 0 }
    }

    /// Sets [`ENDED`]. True if the thread has no guards, so that the caller unregisters the local epoch;
    /// else the last guard has that among its [`Duties`]. On the local epoch's own thread.
    #[cfg(not(lowwater_loom))]
    pub(super) fn end_thread(&self) -> bool {
        let state = self.state.get();
        self.state.set(state | ENDED);
        state < GUARD
    }

    #[inline]
    fn end(&self) {
        // Release: meets the Acquire in `is_quiescent_since`.
        let ordering = if crate::mutated!("leave_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.epoch.store(OUTSIDE, ordering);
    }

    /// Counts `guards` more, as if they were made and leaked.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn leak(&self, guards: u64) {
        self.state.set(self.state.get() + guards * GUARD);
    }

    /// Is its reader outside, or did it come in after what is stamped so was unreachable?
    pub(super) fn is_quiescent_since(&self, stamp: u64) -> bool {
        // Acquire: meets the Release in `leave` and `enter`.
        let epoch = self.epoch.load(Ordering::Acquire);
        epoch == OUTSIDE || epoch > stamp
    }
}
