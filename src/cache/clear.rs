//! `clear` of a large cache: the records are cleared at once, and removed in the background.
//!
//! Each record has the parity of the *epoch* in which it was inserted
//! ([`EpochParity`](lowwater_rcu::EpochParity)). A clear begins an epoch. From then on the records
//! of the last one are *cleared*: each operation treats them as expired. The housekeeper removes
//! them, and then ends the clear.
//!
//! ```text
//!     epoch    even           odd                                                odd
//!     records  even: live     even: cleared, odd: live                           odd: live
//!              clear          first sweep, grace period, last sweep, grace period
//! ```
//!
//! The first sweep is not necessary; but memory returns by it also while a reader stays inside.
//!
//! A change must ensure that an insert reads the epoch in the read-side section in which the record
//! enters the index, and that a reader decides about a record in the section in which it has found
//! it.

pub(super) mod state;

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use lowwater_rcu::pin;
use lowwater_shrinker::CallbackScope;
use lowwater_store::index::Cursor;

use super::core::Core;
use super::handle::Cache;
use super::record::Record;
use super::removal::RemovalCause;
use crate::runtime::NextRun;
use state::{ClearSweep, Step, REMOVED_AT_ONCE};

/// Rest as a multiple of the time worked, between two parts of a sweep.
const REST: u32 = 1;
/// Time between two checks for readers that were inside when the clear began.
const READERS_WAIT: Duration = Duration::from_millis(10);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Returns whether a record was cleared; see [`has_cleared`](state::Clear::has_cleared).
    #[inline]
    pub(super) fn is_cleared(&self, record: &Record<K, V>) -> bool {
        self.clear.has_cleared(record)
    }

    /// Returns the cause for the removal of a record that has expired or was cleared.
    pub(super) fn cause_of_expired(&self, record: &Record<K, V>) -> RemovalCause {
        match self.is_cleared(record) {
            true => RemovalCause::Explicit,
            false => RemovalCause::Expired,
        }
    }

    /// Stores the cause of a record that is being removed from the index, under the lock of its
    /// segment.
    pub(super) fn set_removed(&self, record: &Record<K, V>, cause: RemovalCause) {
        record.set_cause(cause, self.is_cleared(record));
    }

    /// Calls `count`, which counts removals, of which this many are of cleared records.
    #[inline]
    pub(super) fn count_removals(&self, cleared: usize, count: impl FnOnce()) {
        match self.clear_state.get().filter(|_| cleared > 0) {
            None => count(),
            Some(state) => {
                let mut left = state.left.lock();
                count();
                // Zero after the last sweep, and for inserts that the clear has overtaken.
                *left = left.saturating_sub(cleared);
            }
        }
    }

    /// Clears the records that are in the index. Returns false if records that the last clear has
    /// cleared may be left.
    pub(super) fn begin_clear(&self) -> bool {
        let state = self.clear_state.get_or_init(Box::default);
        // Pinned before the lock, so that `begin` does not drop the thread's last guard under the
        // lock: that may run destructors of retired values, which may clear this cache.
        let _guard = pin();
        let mut sweep = state.sweep.lock();
        if sweep.is_some() {
            return false;
        }
        *state.left.lock() = self.counters.len();
        *sweep = Some(ClearSweep::new(self.clear.begin()));
        true
    }

    /// Returns the number of records, without the cleared ones.
    pub(super) fn len(&self) -> usize {
        let left = self.clear_state.get().map(|state| state.left.lock());
        self.counters.len().saturating_sub(left.map_or(0, |left| *left))
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes the cleared records in the next part of the index. Returns when to run next.
    pub(super) fn remove_cleared_part(&self) -> NextRun {
        let Some(state) = self.clear_state.get() else { return NextRun::WhenNotified };
        // Declared before the lock, and so dropped after its release, also if the key's own code
        // panics: the drop of the guard may run destructors of retired values, which may clear this
        // cache. The removals are finished last.
        let mut gone = Vec::new();
        let guard;
        let mut current = state.sweep.lock();
        let Some(sweep) = &mut *current else { return NextRun::WhenNotified };
        match sweep.step() {
            Step::Sweep => {}
            Step::Swept => {
                // Removals that began before the clear have not been subtracted.
                *state.left.lock() = 0;
                drop(current);
                self.return_memory();
                return NextRun::Now { rest: REST };
            }
            Step::Wait => return NextRun::In(READERS_WAIT),
            Step::End => {
                self.clear.end();
                *current = None;
                return NextRun::WhenNotified;
            }
        }
        guard = pin();
        let (mut cleared, here) = (Vec::new(), sweep.at.clone());
        self.index.visit(&mut sweep.at, &guard, |record| cleared.extend(self.is_cleared(record).then_some(record)));
        for record in cleared {
            let is_cleared = |there: &Record<K, V>| self.is_cleared(there);
            let taken = self.unlink_at(&here, &guard, record, is_cleared, RemovalCause::Explicit);
            let is_left = record.is_indexed() && is_cleared(record);
            if taken.is_none() && (is_left || record.was_moved()) {
                // Its segment was split during the search, and its key's `Hash` panics; or
                // compaction has put a copy in its place. This part is visited once more.
                sweep.at = here.clone();
            }
            gone.extend(taken.and_then(|(_, removal)| removal));
        }
        drop(current);
        // User code that is dropped here must not wait for this thread.
        let scope = CallbackScope::enter();
        drop(guard);
        drop(gone);
        drop(scope);
        NextRun::Now { rest: REST }
    }

    /// Removes all cleared records, if no thread inserts any more.
    pub(super) fn finish_clear(&self) {
        while let NextRun::Now { .. } = self.remove_cleared_part() {}
        // The clear waits for readers, which may be those of other caches, before its last sweep:
        // for records of inserts that began before the clear. These inserts have ended.
        let Some(state) = self.clear_state.get() else { return };
        state.sweep.lock().iter_mut().for_each(|sweep| sweep.at = Cursor::new());
        while let NextRun::Now { .. } = self.remove_cleared_part() {}
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes all entries, calls the listener for each, and returns their memory to the system.
    /// Stops all loads in flight, as [`remove`](Self::remove) does.
    ///
    /// When this returns, no entry that was there before is found any more, and [`len`](Self::len)
    /// does not count them; [`len_of`](Self::len_of) and the bytes of [`stats`](Self::stats) do,
    /// until they are removed. Up to 4,096 entries are removed by this call; of more, all are
    /// removed by the runtime's housekeeper, in about a second for a million. Until then they are
    /// charged, and evicted where memory is needed, and count as
    /// [`Explicit`](super::RemovalCause::Explicit) removals when they leave. O(1) then, besides the
    /// loads and the keys that were evicted lately; but a call while entries of the last clear are
    /// left removes all entries itself: O(entries). If the cache has a listener, the drop of the
    /// last handle removes the rest, O(entries), except inside a callback.
    pub fn clear(&self) {
        let core = &self.inner.core;
        for hash in core.inflight.stop_all() {
            // Takes the lock of the segment, so that the sweep finds a value whose insert has begun
            // before its load was stopped.
            core.index.with(hash, &pin(), |_| false, |_| ());
        }
        if core.counters.len() > REMOVED_AT_ONCE && core.begin_clear() {
            core.notifier.notify_clear();
        } else {
            self.retain(|_, _| false);
        }
        core.queues.forget_ghosts();
    }
}
