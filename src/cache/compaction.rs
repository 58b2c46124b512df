//! Compaction: records in sparse chunks are copied together, so that whole chunks return to the
//! system.
//!
//! When most records leave, the rest are scattered: a single record keeps its whole chunk (64 KiB
//! or more) from the system, so the free slots beside it return nothing. A record itself cannot
//! move, as readers may hold references to it. So a clone of its key and value takes its place in
//! the index and on its list, with the same age, uses, deadline and charge; the old record is
//! retired. The listener is not called, and no statistics change.
//!
//! The housekeeper compacts when less than half of a node's slots are used and the number of
//! records is stable: while a reclaim goes on, copied records might be evicted next. Between two
//! parts of a pass the housekeeper rests for as long as the part took, so compaction takes half a
//! processor at most.
//!
//! A change must ensure that a reader finds either the record or its copy, that the copy keeps what
//! the record had, and that the old records leave most of the allowance for retired memory, which
//! is beyond the budget, to inserts.

pub(super) mod state;

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, NodeId};
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::{Cursor, InsertError};
use parking_lot::Mutex;

use super::core::Core;
use super::expiry::deadline::{Deadline, Expires};
use super::record::{Handle, Record};
use crate::runtime::{Known, NextRun};
use state::{Compacted, CompactionPass, CompactionState, COLLECT_BYTES};

/// Compaction begins when the number of records has changed by at most 1 in `QUIET_PARTS` during
/// `QUIET`. Outstanding readers are also checked once per `QUIET` before it begins.
const QUIET: Duration = Duration::from_millis(50);
const QUIET_PARTS: usize = 64;
/// Time between two checks for readers that hold back old records, which were copied.
const READERS_WAIT: Duration = Duration::from_millis(10);
/// Larger records stay in place: a clone may copy all of the charged bytes, which are then more
/// than the usual chunk of 64 KiB that the copy could free.
const COPIED_MAX: ByteSize = ByteSize::kib(64);
/// A pass that has returned at least one in this many bytes of the slab is followed by another.
const GAINS_ONE_IN: u64 = 8;
/// Rest per time worked, between two parts.
const REST: u32 = 1;

/// The reason for which a record stays in place.
enum KeptInPlace {
    /// The record was removed, or isolated by a walk, or is too large, or its hash or clone
    /// panicked. The pass continues with the next record.
    Skipped,
    /// There is no memory for the copy. The pass ends.
    NoMemory,
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Requests a compaction, if the cache is sparse.
    pub(super) fn request_compaction(&self) {
        if self.index.slab().is_sparse() {
            // Relaxed: the notifier's lock orders the store before the housekeeper's load. Not
            // twice: the housekeeper itself requests, and would never rest.
            if !self.is_compaction_requested.swap(true, Ordering::Relaxed) {
                self.notifier.notify_compaction();
            }
        }
    }

    /// Returns the memory of removed records and their ghosts to the system, and requests a
    /// compaction. For memory that readers hold back, the reaper tries again.
    pub(super) fn return_memory(&self) {
        if self.release_removed() > ByteSize::ZERO {
            self.notifier.notify_reaper();
        }
        self.request_compaction();
    }

    /// As [`return_memory`](Self::return_memory), without a compaction. Returns the bytes that
    /// readers hold back.
    pub(super) fn release_removed(&self) -> ByteSize {
        let retained = self.collect();
        self.shrink_ghosts();
        self.trim();
        retained
    }

    /// Returns the state; none before the first request. Allocates it after that.
    fn compaction_state(&self) -> Option<&Mutex<CompactionState>> {
        // Relaxed: as in `request_compaction`.
        match self.is_compaction_requested.load(Ordering::Relaxed) {
            false => self.compaction.get(),
            true => Some(self.compaction.get_or_init(Box::default)),
        }
    }

    /// Begins a pass, or copies its next records: those of one segment of the index, at most about
    /// 1,200. Returns when to run next.
    pub(super) fn compact(&self) -> NextRun {
        let slab = self.index.slab();
        let Some(state) = self.compaction_state() else { return NextRun::WhenNotified };
        let mut state = state.lock();
        if state.pass.is_none() {
            match self.begin_compaction(&mut state.len) {
                Ok(begun) => state.pass = Some(Box::new(begun)),
                Err(next) => return next,
            }
        }
        let Some(pass) = &mut state.pass else { unreachable!("a pass was begun above") };
        // Old records are uncharged but count as retired, in the allowance beyond the budget, most
        // of which must be left to inserts.
        let retired = self.notifier.retired();
        if retired.is_above_low() && retired.sweep(Known::Reported).unwrap_or(0) == 0 {
            return NextRun::In(READERS_WAIT);
        }
        if pass.compacted.is_enough() {
            if self.is_held_back() {
                return NextRun::In(READERS_WAIT);
            }
            pass.compacted = Compacted::default();
        }
        let is_exhausted = self.compact_part(&mut pass.at, &mut pass.compacted);
        if !is_exhausted && !pass.at.is_done() {
            return NextRun::Now { rest: REST };
        }
        // Old records that readers hold back are dropped when they leave.
        let holds_back_old = slab.collect() > ByteSize::ZERO && pass.compacted.entries > 0;
        slab.end_compaction();
        let gained = pass.footprint.saturating_sub(slab.footprint());
        let is_worth_it = gained.get() >= pass.footprint.get() / GAINS_ONE_IN;
        *state = CompactionState::default();
        drop(state);
        self.trim();
        if is_worth_it {
            // Many records may have left since the pass began.
            self.request_compaction();
        }
        if holds_back_old {
            self.collect_later();
        }
        NextRun::In(QUIET)
    }

    /// Begins a pass if the number of records, previously `len`, is stable; otherwise returns when
    /// to try again.
    fn begin_compaction(&self, len: &mut usize) -> Result<CompactionPass, NextRun> {
        let slab = self.index.slab();
        // Relaxed: as in `request_compaction`.
        if !self.is_compaction_requested.load(Ordering::Relaxed) {
            return Err(NextRun::WhenNotified);
        }
        let now = self.counters.len();
        if std::mem::replace(len, now).abs_diff(now) > now / QUIET_PARTS {
            return Err(NextRun::In(QUIET));
        }
        // Without this check, memory that readers hold back would grow with each pass.
        if self.is_held_back() {
            return Err(NextRun::In(QUIET));
        }
        // Relaxed: as in `request_compaction`. A removal from here on requests another compaction.
        self.is_compaction_requested.store(false, Ordering::Relaxed);
        match slab.begin_compaction() {
            0 => Err(NextRun::WhenNotified),
            _ => Ok(CompactionPass { at: Cursor::new(), compacted: Compacted::default(), footprint: slab.footprint() }),
        }
    }

    /// Collects old records. Returns whether readers hold back so many that a pass should wait: a
    /// few always wait, if other threads read and replace records all the time.
    fn is_held_back(&self) -> bool {
        self.index.slab().collect_some(usize::MAX) >= COLLECT_BYTES
    }

    /// Copies the records of evacuated chunks in the next segment of the index, or some of them;
    /// adds them to `compacted`. Returns whether memory is exhausted.
    pub(super) fn compact_part(&self, at: &mut Cursor, compacted: &mut Compacted) -> bool {
        // The old records' handles, declared first so that they are dropped after the guard.
        let mut old = Vec::new();
        let (guard, mut leaving, here) = (pin(), Vec::new(), at.clone());
        self.index.visit_evacuating(at, &guard, |record, node| leaving.push((node, record)));
        // Sorted by node, as a thread fills slots of one node at a time.
        leaving.sort_unstable_by_key(|(node, _)| *node);
        for (node, record) in leaving {
            if compacted.is_enough() {
                // The remaining records are copied by the next call, which begins here again.
                *at = here;
                break;
            }
            match self.copy_record(record, node, &guard) {
                Ok(handle) => {
                    compacted.entries += 1;
                    compacted.bytes = compacted.bytes.saturating_add(handle.charge());
                    old.push(handle);
                }
                Err(KeptInPlace::Skipped) => {}
                Err(KeptInPlace::NoMemory) => return true,
            }
        }
        false
    }

    /// Replaces a record by a copy, and returns the handle of the old record, which the caller
    /// drops.
    fn copy_record<'g>(
        &'g self,
        record: &'g Record<K, V>,
        node: NodeId,
        guard: &'g Guard,
    ) -> Result<Handle<K, V>, KeptInPlace> {
        if record.charge() > COPIED_MAX {
            return Err(KeptInPlace::Skipped);
        }
        let copied = caught(|| (self.hash(&record.key), ((self.typed)().clone)(record)));
        let Some((hash, (key, value))) = copied else { return Err(KeptInPlace::Skipped) };
        // Queue, uses and deadline may still change: `replace` copies them under the segment's
        // lock.
        let new = Record::new(key, value, Deadline::NEVER, record.charge());
        let new = self.index.slab().alloc(new, node).map_err(|_| KeptInPlace::NoMemory)?;
        let mut expires = Expires::NEVER;
        let put = self.index.replace(new, hash, guard, record, |new, _| {
            expires = self.expires(record);
            self.set_expires(&new, expires);
            new.set_odd(record.is_odd());
            if record.is_reloading() {
                new.set_reloading();
            }
            self.set_is_records(&new, true);
            let old = self.queues.replace(record, new, guard).inspect_err(|new| self.set_is_records(new, false))?;
            old.set_moved();
            Ok(old)
        });
        match put {
            Ok((_, old)) => {
                // A sweep of the reaper that has passed this part does not visit the copy: the
                // registered deadline leads to another sweep. One that has found the old record
                // expired visits the part again.
                self.register_deadline(expires, hash);
                Ok(old)
            }
            Err(InsertError::Refused(_) | InsertError::Indexed(_)) => Err(KeptInPlace::Skipped),
            Err(InsertError::NoMemory(_)) => Err(KeptInPlace::NoMemory),
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the current record of the key of a record of a walk, if compaction has put a copy in
    /// the record's place. `None` if it has not, or if the key's `Hash` panics.
    #[cold]
    pub(super) fn copy_of<'g>(&'g self, record: &Record<K, V>, guard: &'g Guard) -> Option<&'g Record<K, V>> {
        let hash = record.was_moved().then(|| self.hash_again(&record.key)).flatten()?;
        self.index.get(hash, guard, |there| there.key == record.key)
    }

    /// Returns a record of a walk, or the copy in its place, if it has not expired. A call may have
    /// extended the copy's deadline only.
    #[inline]
    pub(super) fn live<'g>(&'g self, record: &'g Record<K, V>, guard: &'g Guard) -> Option<&'g Record<K, V>> {
        match self.is_expired(record) {
            false => Some(record),
            true => self.copy_of(record, guard).filter(|there| !self.is_expired(there)),
        }
    }
}
