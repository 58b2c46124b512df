//! Epoch-based reclamation. Each reader stores, on a cache line that only it writes, a local epoch:
//! the global epoch at which it entered. A collecting thread reads all local epochs.
//!
//! The global epoch is a number that each collection advances. Retired objects are stamped with it,
//! and freed when every reader that is inside entered at a later epoch. *The lock* is that of the
//! registered local epochs; the global epoch advances under another one, that of the retired
//! objects (both in `membarrier.rs`).
//!
//! A change must keep each store, load and fence of the orderings below, and their order;
//! docs/ORDERINGS.md lists the model checks.
//!
//! # Orderings
//!
//! ```text
//!     a reader                                 a collection
//!       t = global epoch  (Acquire)              [the object was made unreachable, and stamped s]
//!       local = t                                global epoch = s + 1   (Release)
//!       light fence                              heavy fence
//!       follow the pointer                       every local epoch is 0, or later than s? free
//!       local = 0          (Release)
//! ```
//!
//! - Both sides store, then load the other's location, so each needs a full fence in between: the
//!   reader's *light fence*, and the collection's *heavy fence*
//!   ([`heavy_fence`](super::heavy_fence)).
//! - If the heavy fence comes first, the reader no longer finds the object. If the light fence
//!   comes first, the collection sees the local epoch.
//! - A local epoch later than `s` was stored by a reader that read a global epoch later than `s`,
//!   with an Acquire that pairs with the Release: this reader no longer finds objects that were
//!   made unreachable before.
//! - A local epoch of 0, or a later one of the same reader, is read with an Acquire that pairs with
//!   its Release: the reader's earlier reads happen before the object is freed.
//! - One heavy fence serves all stamps that were given out before it, and local epochs may be read
//!   later: a reader that entered after the fence does not find the object, and the local epochs of
//!   readers from before the fence are visible from then on ([`FencedUpTo`]).
//! - A third thread may run the heavy fence without the lock. The fence serves stamps before the
//!   global epoch that this thread read first ([`before_fence`]): the load's Acquire pairs with the
//!   Release in `advance`, so the fence comes after the object was made unreachable.
//!
//! Where the system has `membarrier`, that call is the heavy fence, and the light fence is a
//! compiler fence: each running reader executes a fence at some point during the heavy fence. If
//! this is before the reader stores its local epoch, the heavy fence comes first, otherwise the
//! light fence.
//!
//! Checked by `local_epoch/tests.rs`: `an_object_is_freed_after_its_readers`,
//! `one_heavy_fence_serves_all_earlier_stamps`,
//! `a_third_threads_heavy_fence_serves_earlier_stamps`, and their mutants, each
//! without one of these orderings, which must fail. (The Acquire of the reader and that of `now`
//! have no mutant: in a model the fence that follows is a real one, and implies the Acquire. Nor
//! have the Release in `store_inside` and the Acquire in `is_quiescent_since`.)

use crate::sync::atomic::{fence, AtomicU64, Ordering};
use core::cell::Cell;

#[cfg(all(test, lowwater_loom))]
mod tests;

/// The local epoch of a reader that is outside.
const OUTSIDE: u64 = 0;
/// The first global epoch; differs from [`OUTSIDE`].
const BEGIN: u64 = 1;

/// The global epoch.
pub(super) struct GlobalEpoch(AtomicU64);

/// One reader's local epoch, on a cache line of its own.
#[repr(align(128))]
pub(super) struct LocalEpoch {
    epoch: AtomicU64,
    /// The number of the thread's guards in units of [`GUARD`], and below it the flags
    /// [`COLLECT_PENDING`], [`FENCED`] and [`ENDED`]: in one word, so that the hot path does one
    /// comparison. Only the thread that owns the local epoch reads or writes the word; that of a
    /// [shared](Self::shared) one is never written, and any thread reads it.
    state: Cell<u64>,
}

/// Flag: the thread must collect when its last guard is dropped.
const COLLECT_PENDING: u64 = 1;
/// Flag: the thread must execute a fence of its own, because the system did not have `membarrier`
/// when the first local epoch was registered.
const FENCED: u64 = 2;
/// Flag: the thread's `END` was destroyed while the thread had guards, which are in thread-locals
/// that are destroyed later, or leaked. The last guard unregisters the local epoch. With a leaked
/// guard the local epoch stays registered for ever.
const ENDED: u64 = 4;
/// The count of one guard. There is room for 2^61: a program that leaks one each nanosecond
/// overflows the count after 73 years.
const GUARD: u64 = 8;

// SAFETY: only the thread that owns the local epoch accesses `state`, and that of a shared one is
// never changed; `epoch` is atomic.
unsafe impl Sync for LocalEpoch {}

/// The stamps for which a heavy fence has run. Under the lock, which orders the threads that check
/// local epochs after the fence.
pub(super) struct FencedUpTo {
    /// Stamps earlier than this are fenced.
    before: u64,
}

/// The duties of a thread that dropped a guard. Both are false unless the guard was the last of its
/// thread.
#[must_use = "no other guard does it"]
#[cfg_attr(lowwater_loom, expect(dead_code, reason = "a model does neither"))]
pub(super) struct Duties {
    /// Retired memory must be collected.
    pub(super) collect_pending: bool,
    /// The local epoch must be unregistered, before anything else.
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

    /// Returns the stamp for objects retired now. The caller holds the lock under which the global
    /// epoch advances.
    #[cfg(not(lowwater_loom))]
    pub(super) fn stamp(&self) -> u64 {
        // Relaxed: it changes only under the lock that the caller holds.
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the global epoch, for a caller that need not hold the lock of
    /// [`advance`](Self::advance). Objects with an earlier stamp were
    /// unreachable before.
    fn now(&self) -> u64 {
        // Acquire: pairs with the Release in `advance`, so that the objects which the following
        // fence serves were made unreachable before it.
        self.0.load(Ordering::Acquire)
    }

    /// Advances from `stamp`, the current global epoch. The caller holds the lock of the retired
    /// objects. Objects with this stamp may be freed if, after a heavy fence, all local epochs are
    /// [quiescent](LocalEpoch::is_quiescent_since) since the stamp.
    pub(super) fn advance(&self, stamp: u64) {
        // Release: pairs with the Acquires in `store_inside` and `now`.
        self.0.store(stamp + 1, if crate::mutated!("time_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }
}

impl FencedUpTo {
    /// Creates the state in which no heavy fence has run.
    pub(super) const fn new() -> Self {
        Self { before: BEGIN }
    }

    /// Returns whether a heavy fence has run for objects with this stamp.
    pub(super) fn has(&self, stamp: u64) -> bool {
        self.before > stamp
    }

    /// Ensures that a heavy fence has run for objects with this stamp, from which the global epoch
    /// has advanced. Returns false if the fence was refused.
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
    /// released meanwhile.
    pub(super) fn complete(&mut self, now: u64) {
        // A fence that began later may have been recorded first.
        self.before = self.before.max(now);
    }
}

/// Returns the global epoch; must be called before a heavy fence, which then serves earlier stamps.
/// A stamp that is given out while the fence runs may be too late for it.
pub(super) fn before_fence(global: &GlobalEpoch) -> u64 {
    global.now()
}

impl LocalEpoch {
    pub(super) fn new(fenced: bool) -> Self {
        Self { epoch: AtomicU64::new(OUTSIDE), state: Cell::new(if fenced { FENCED } else { 0 }) }
    }

    /// Creates a local epoch for readers that have none of their own: its state is that of a reader
    /// with more than one guard, and never changes. So it can neither be entered nor left.
    #[cfg(not(lowwater_loom))]
    pub(super) const fn shared() -> Self {
        Self { epoch: AtomicU64::new(OUTSIDE), state: Cell::new(2 * GUARD) }
    }

    /// Enters the read side. On the thread that owns the local epoch.
    #[inline]
    pub(super) fn enter(&self, global: &GlobalEpoch) {
        if !self.try_enter(global) {
            self.enter_further(global);
        }
    }

    /// Enters the read side in the common case: no guard and no flag. Otherwise returns false, and
    /// changes nothing. On the thread that owns the local epoch.
    #[inline]
    #[must_use = "if false, it is still outside"]
    pub(super) fn try_enter(&self, global: &GlobalEpoch) -> bool {
        // Otherwise there are guards already, or the flag is `FENCED`. `COLLECT_PENDING` is set
        // only inside; and with `ENDED` there are guards, as the last one unregisters the local
        // epoch.
        let is_common = self.state.get() == 0;
        if is_common {
            self.state.set(GUARD);
            self.store_inside(global);
            // SeqCst: keeps the compiler from reordering; the processor's fence comes from
            // `membarrier`.
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
        }
        is_common
    }

    /// Enters the read side, if [`try_enter`](Self::try_enter) returned false. On the thread that
    /// owns the local epoch.
    #[inline]
    pub(super) fn enter_further(&self, global: &GlobalEpoch) {
        let state = self.state.get();
        self.state.set(state + GUARD);
        if state < GUARD {
            self.store_inside_fenced(global);
        }
    }

    /// As [`store_inside`](Self::store_inside), with the light fence.
    #[cold]
    fn store_inside_fenced(&self, global: &GlobalEpoch) {
        self.store_inside(global);
        if !crate::mutated!("without_light_fence") {
            // SeqCst: orders the local epoch before the loads of the reader; pairs with the heavy
            // fence.
            fence(Ordering::SeqCst);
        }
    }

    /// Stores the local epoch of a reader that is inside, without a fence.
    #[inline]
    fn store_inside(&self, global: &GlobalEpoch) {
        // Acquire: pairs with the Release in `advance`.
        let now = global.0.load(Ordering::Acquire);
        // Release: a thread that sees this local epoch instead of the previous one sees the reads
        // under the previous one as done.
        self.epoch.store(now, Ordering::Release);
    }

    /// Records that a collection is due, which must wait until this reader has left. On the thread
    /// that owns the local epoch.
    #[cfg(not(lowwater_loom))]
    pub(super) fn set_collect_pending(&self) {
        self.state.set(self.state.get() | COLLECT_PENDING);
    }

    /// Leaves the read side, if there is nothing else to do. Otherwise returns false, still inside:
    /// the thread that owns the local epoch must call [`leave_further`](Self::leave_further). For a
    /// [shared](Self::shared) one always false: the caller then decrements the count of strays.
    #[inline]
    #[must_use = "if false, it is still inside"]
    pub(super) fn leave(&self) -> bool {
        let is_all = self.state.get() == GUARD;
        if is_all {
            self.state.set(0);
            self.store_outside();
        }
        is_all
    }

    /// Drops a guard, and returns the resulting duties. On the thread that owns the local epoch.
    #[inline]
    pub(super) fn leave_further(&self) -> Duties {
        let state = self.state.get() - GUARD;
        if state >= GUARD {
            self.state.set(state);
            return Duties { collect_pending: false, unregister: false };
        }
        self.state.set(state & !COLLECT_PENDING);
        self.store_outside();
        Duties { collect_pending: state & COLLECT_PENDING != 0, unregister: state & ENDED != 0 }
    }

    /// Sets [`ENDED`]. Returns true if the thread has no guards, so that the caller must unregister
    /// the local epoch; otherwise the last guard gets that as one of its [`Duties`]. On the thread
    /// that owns the local epoch.
    #[cfg(not(lowwater_loom))]
    pub(super) fn end_thread(&self) -> bool {
        let state = self.state.get();
        self.state.set(state | ENDED);
        state < GUARD
    }

    /// Stores the local epoch of a reader that is outside.
    #[inline]
    fn store_outside(&self) {
        // Release: pairs with the Acquire in `is_quiescent_since`.
        let ordering = if crate::mutated!("leave_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.epoch.store(OUTSIDE, ordering);
    }

    /// Adds `guards` to the count, as if they had been created and leaked.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn leak(&self, guards: u64) {
        self.state.set(self.state.get() + guards * GUARD);
    }

    /// Returns whether the reader is outside, or entered after objects with this stamp were made
    /// unreachable.
    pub(super) fn is_quiescent_since(&self, stamp: u64) -> bool {
        // Acquire: pairs with the Releases in `store_inside` and `store_outside`.
        let epoch = self.epoch.load(Ordering::Acquire);
        epoch == OUTSIDE || epoch > stamp
    }
}
