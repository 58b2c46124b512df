//! The turn to evict from a cache: one thread has it at a time.
//!
//! An implementation of [`Evict`](crate::Evict) may lower a capacity and set it back, so two
//! threads must not evict at once. No thread waits for the turn here: its holder may wait for that
//! thread, or be the same thread, in the drop of an evicted value. A thread that finds the turn
//! taken can leave a request instead, which the holder serves before it returns, also after a panic
//! in its own eviction. After a panic in a served one, the next turn serves the requests.
//!
//! A scan leaves no request, and returns `Scan::Busy`. Its caller needs memory at once, and evicts
//! from another cache instead; if there is none, a charge and the reclaimer try again, for a
//! bounded time.
//!
//! A cache whose evictions take long would grow at the expense of the others: foyer, which starts
//! two threads in each eviction, held 70 to 92 % of the budget in equal use with a lowwater
//! `Cache`. So the bytes that such scans did not evict are added up as *postponed*. A holder of the
//! turn that scans, too, evicts them after its own (`Member::scan_objects`); else they are
//! forgotten.
//!
//! A change must ensure that `end` does not end a turn while a request is left, and that a cache
//! whose evictions all panic and leave requests does not keep a thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lowwater::ByteSize;

/// The state of a cache's evictions.
#[derive(Debug, Default)]
pub(crate) struct Eviction(Mutex<EvictionState>);

#[derive(Debug, Default)]
struct EvictionState {
    is_running: bool,
    /// Another thread wants to evict as well.
    is_requested: bool,
    /// The bytes that scans of other threads left to the thread that evicts.
    postponed: ByteSize,
}

/// The right to evict.
#[must_use = "a request may have been left: call `end`"]
pub(crate) struct Turn<'a>(&'a Eviction);

impl Eviction {
    /// Returns the right to evict, unless a thread has it: then adds `bytes` to the postponed ones.
    pub(crate) fn begin_or_postpone(&self, bytes: ByteSize) -> Option<Turn<'_>> {
        self.begin_or(|state| state.postponed = state.postponed.saturating_add(bytes))
    }

    /// Returns the right to evict, unless a thread has it: then leaves a request to that thread.
    pub(crate) fn begin_or_request(&self) -> Option<Turn<'_>> {
        self.begin_or(|state| state.is_requested = true)
    }

    fn begin_or(&self, leave: impl FnOnce(&mut EvictionState)) -> Option<Turn<'_>> {
        let mut state = self.lock();
        if state.is_running {
            leave(&mut state);
            return None;
        }
        state.is_running = true;
        // Of an earlier turn, which took no postponed bytes: those scans have found others since.
        state.postponed = ByteSize::ZERO;
        Some(Turn(self))
    }

    /// Ignores poison: no panic leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, EvictionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Returns the postponed bytes, and resets them.
    pub(crate) fn take_postponed(&self) -> ByteSize {
        std::mem::take(&mut self.0.lock().postponed)
    }

    /// Ends the turn. Returns it again if a request was left meanwhile.
    pub(crate) fn end(self) -> Option<Self> {
        let mut state = self.0.lock();
        let is_requested = std::mem::take(&mut state.is_requested);
        state.is_running = is_requested;
        drop(state);
        if is_requested {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }
}

/// Runs only after a panic in a served eviction, or one that is not caught, as in the drop of
/// another panic's payload: [`end`](Self::end) forgets the turn. The next turn serves the requests.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
    }
}
