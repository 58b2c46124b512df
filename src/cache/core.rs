//! The core of a cache, shared with the reclaimer and the housekeeper: finds and unlinks records,
//! and finishes removals.
//!
//! A record is removed in two steps: unlinking takes it off the index and its list under their
//! locks; finishing uncharges its group (a walk: after each batch), counts the removal, calls the
//! listener and retires the record, without a lock. A change must ensure that each unlinked record
//! is finished exactly once ([`PendingRemoval`] does so on drop) and that no user code except
//! hashing and comparison runs under a lock.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;
use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_rcu::{pin, Guard};
use lowwater_shrinker::CallbackScope;
use lowwater_store::index::Cursor;
use lowwater_store::{ExtendibleIndex, Slot};
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::clear::state::{Clear, ClearState};
use super::compaction::state::CompactionState;
use super::expiry::clock::{Clock, Ttl};
use super::expiry::deadline::{Deadline, Expires};
use super::expiry::freshness::Freshness;
use super::expiry::lifetime::{Expiry, ExpiryEvent};
use super::expiry::sweep::SweepSchedule;
use super::functions::ValueFunctions;
use super::index_cursors::IndexCursors;
use super::len_mark::LenMark;
use super::load::single_flight::InflightLoads;
use super::policy::queues::Queues;
use super::record::{Handle, Record};
use super::removal::RemovalCause;
use super::stats::{Counters, Removals};
use crate::runtime::{HeldCharge, HeldValues, Notifier};

/// Functions that need more of the types than the core does, of which only the builder knows.
pub(super) struct TypedFunctions<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// Clones the key and the value of a record.
    pub(super) clone: fn(&Record<K, V>) -> (K, V),
    /// Hands the core of a cache that has ended to the housekeeper.
    pub(super) hand_over: fn(Arc<Core<K, V, S>>),
    /// Removes the entries that a clear in progress has left.
    pub(super) finish_clear: fn(&Core<K, V, S>),
}

impl<K, V, S> TypedFunctions<K, V, S>
where
    K: Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(super) fn of_types() -> Self {
        Self {
            clone: |record| (record.key.clone(), record.value.clone()),
            hand_over: |core| core.notifier.clone().drop_later(Box::new(core)),
            finish_clear: Core::finish_clear,
        }
    }
}

/// The shared state of a cache that the reclaimer and the housekeeper work on, too.
pub(super) struct Core<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    // The index is the first field, so it is dropped first: while a record is in an index, the drop
    // of its handle does not free it.
    pub(super) index: ExtendibleIndex<Record<K, V>>,
    pub(super) queues: Queues<K, V>,
    /// The user's functions that most caches do not have.
    pub(super) functions: Option<Box<ValueFunctions<K, V>>>,
    pub(super) counters: Counters,
    pub(super) hasher: S,
    pub(super) clock: Clock,
    pub(super) inflight: InflightLoads<K, V>,
    pub(super) clear: Clear,
    /// Allocated by the first clear in the background, so that an empty cache is small.
    pub(super) clear_state: OnceBox<ClearState>,
    /// Whether a use moves a record on its list. A copy of a field of the queues, so that most
    /// lookups read only one cache line beside the index.
    pub(super) is_lru: bool,
    /// The largest number of records that a call of `trim` has seen since the last trim.
    pub(super) most: AtomicU32,
    /// Whether the last batch evicted no record and put some back: then the next batch is taken
    /// from the other queue.
    pub(super) is_stuck: AtomicBool,
    /// Whether an entry was ever inserted for another group than the cache's own.
    pub(super) has_tenants: AtomicBool,
    /// Records evicted in the background since a collection of the slab was last considered.
    pub(super) freed_since: AtomicU16,
    /// The mark of such collections.
    pub(super) collected: LenMark,
    pub(super) sweeps: SweepSchedule,
    /// The housekeeper has evicted records of a dropped group, and not returned their memory yet.
    pub(super) has_emptied_group: AtomicBool,
    /// The cache was found to be sparse. False when a pass begins, or finds nothing to do.
    pub(super) is_compaction_requested: AtomicBool,
    /// None before the housekeeper meets the first request, so that an empty cache is small.
    pub(super) compaction: OnceBox<Mutex<CompactionState>>,
    pub(super) typed: fn() -> TypedFunctions<K, V, S>,
    /// The functions by which a removed record leaves its charge to its value while readers hold
    /// clones of the value. None: the charge ends with the removal.
    pub(super) held_values: Option<fn() -> HeldValues<V>>,
    /// Notifies the housekeeper.
    pub(super) notifier: Notifier,
    /// Whether the cache has ended and left its records to the housekeeper: their bytes are
    /// uncharged, and counted as retired.
    pub(super) is_left: bool,
    /// The cache's id as a shrinker, by which its metrics are labelled.
    #[cfg(feature = "metrics")]
    pub(super) shrinker: lowwater_shrinker::ShrinkerId,
}

/// The result of a lookup.
pub(super) enum Found<'c, 'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    Live(&'g Record<K, V>),
    /// The record had expired, was not stale any more, and was unlinked.
    Expired(MaybeRemoval<'c, K, V, S>),
    Nothing,
}

/// A record that was removed from the index and from its list, and the group to uncharge for it:
/// none if the charge went to the record that took its place. Its drop finishes the removal, and
/// should run where no guard is held.
pub(super) struct PendingRemoval<'c, K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    pub(super) core: &'c Core<K, V, S>,
    pub(super) record: Option<Handle<K, V>>,
    pub(super) memcg: Option<Memcg>,
}

/// A removal to be finished; none if a walk has isolated the record: then the walk finishes the
/// removal.
pub(super) type MaybeRemoval<'c, K, V, S> = Option<PendingRemoval<'c, K, V, S>>;

/// An unlinked record, which can be read while the guard is held, and its removal.
pub(super) type Unlinked<'c, 'g, K, V, S> = (&'g Record<K, V>, MaybeRemoval<'c, K, V, S>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for PendingRemoval<'_, K, V, S> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            if let Some(memcg) = &self.memcg {
                memcg.uncharge(self.core.end_charge(&record, record.charge(), memcg));
            }
            self.core.finish_removal(record);
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Hashes a key that was hashed before. None if its `Hash` panics now: then the record can be
    /// found only by a walk over the index.
    pub(super) fn hash_again(&self, key: &K) -> Option<u64> {
        caught(|| self.hash(key))
    }

    /// Finds the record of `key`. A record past its stored deadline is unlinked; a stale one stays,
    /// and the result is `Nothing`.
    #[inline]
    pub(super) fn find<'c: 'g, 'g, Q>(&'c self, hash: u64, key: &Q, guard: &'g Guard) -> Found<'c, 'g, K, V, S>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let record = self.index.get(hash, guard, |record| key.equivalent(&record.key));
        self.found(record, hash, key, guard)
    }

    /// Returns the result of [`find`](Self::find) for the record found under `key`.
    #[inline]
    pub(super) fn found<'c: 'g, 'g, Q>(
        &'c self,
        record: Option<&'g Record<K, V>>,
        hash: u64,
        key: &Q,
        guard: &'g Guard,
    ) -> Found<'c, 'g, K, V, S>
    where
        Q: Equivalent<K> + ?Sized,
    {
        match record {
            Some(record) if record.deadline().is_never() && !self.is_cleared(record) => Found::Live(record),
            Some(record) => self.find_expiring(record, hash, key, guard),
            None => Found::Nothing,
        }
    }

    /// [`find`](Self::find), for a found `record` that has a deadline. Out of line, so that the
    /// path for a record without a deadline is short.
    #[inline(never)]
    fn find_expiring<'c: 'g, 'g, Q>(
        &'c self,
        mut record: &'g Record<K, V>,
        hash: u64,
        key: &Q,
        guard: &'g Guard,
    ) -> Found<'c, 'g, K, V, S>
    where
        Q: Equivalent<K> + ?Sized,
    {
        loop {
            match self.freshness(record) {
                Freshness::Fresh | Freshness::Due => return Found::Live(record),
                Freshness::Stale => return Found::Nothing,
                Freshness::Gone => {}
            }
            if let Some((_, removal)) = self.unlink_expired(hash, guard, record) {
                return Found::Expired(removal);
            }
            // Another thread has unlinked the record, or stored another deadline.
            let Some(there) = self.index.get(hash, guard, |record| key.equivalent(&record.key)) else {
                return Found::Nothing;
            };
            record = there;
        }
    }

    /// Unlinks this record, unless another thread has given the record a new deadline since its
    /// stored deadline was found to have passed.
    pub(super) fn unlink_expired<'c: 'g, 'g>(
        &'c self,
        hash: u64,
        guard: &'g Guard,
        record: &Record<K, V>,
    ) -> Option<Unlinked<'c, 'g, K, V, S>> {
        let is_it = |there: &_| std::ptr::eq(there, record) && self.is_gone(there);
        self.unlink(hash, guard, is_it, |there| self.cause_of_expired(there))
    }

    /// Removes the record for which `is` returns true from the index and from its list. A record
    /// that is not on its list is isolated by a walk, which finishes the removal.
    pub(super) fn unlink<'c: 'g, 'g>(
        &'c self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&Record<K, V>) -> bool,
        cause: impl FnOnce(&Record<K, V>) -> RemovalCause,
    ) -> Option<Unlinked<'c, 'g, K, V, S>> {
        let hasher = |record: &Record<K, V>| self.hash(&record.key);
        self.index.remove(hash, guard, is, &hasher, |record| {
            self.set_removed(record, cause(record));
            self.remove_from_list(record)
        })
    }

    /// Notifies the reload of a record that another one replaces, so that the reloaded value is not
    /// inserted. Called under the lock of the record's segment, before the record's cause is
    /// stored.
    #[inline]
    pub(super) fn stop_reload(&self, record: &Record<K, V>, hash: u64) {
        if record.is_reloading() {
            self.inflight.stop(hash);
        }
    }

    /// Stops the load in flight of this key of a record. Its `Hash` may panic.
    pub(super) fn stop_load_of(&self, key: &K) {
        if self.inflight.has_any() {
            self.hash_again(key).inspect(|hash| self.inflight.stop(*hash));
        }
    }

    /// Unlinks this record, found at `at` by a walk over the index, if it is still `wanted`, as
    /// [`unlink`](Self::unlink) does, but also if its key's `Hash` panics or is inconsistent: then
    /// the record is searched for at `at`, and after that in the whole index: O(entries), if
    /// segments were split just now.
    pub(super) fn unlink_at<'c: 'g, 'g>(
        &'c self,
        at: &Cursor,
        guard: &'g Guard,
        record: &Record<K, V>,
        wanted: impl Fn(&Record<K, V>) -> bool,
        cause: RemovalCause,
    ) -> Option<Unlinked<'c, 'g, K, V, S>> {
        let is_it = |there: &Record<K, V>| std::ptr::eq(there, record) && wanted(there);
        if let Some(hash) = self.hash_again(&record.key) {
            if let Some(taken) = self.unlink(hash, guard, is_it, |_| cause) {
                return Some(taken);
            }
        }
        let mut cursors = std::iter::once(at.clone()).chain(IndexCursors::of(&self.index, guard));
        while record.is_indexed() && wanted(record) {
            let gone = |record: &'g Record<K, V>| {
                self.set_removed(record, cause);
                self.remove_from_list(record)
            };
            if let Some(taken) = self.index.remove_shown(&cursors.next()?, guard, is_it, gone) {
                return Some(taken);
            }
        }
        None
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Reports the number of records and their total charge to the queues, and returns them.
    /// O(stripes).
    pub(super) fn note_len(&self) -> (usize, ByteSize) {
        let (len, bytes) = self.counters.len_and_bytes();
        self.queues.note_len(len, bytes, self.notifier.ghosts());
        (len, bytes)
    }

    /// Makes the ghost table no larger than the records left need. For removals that are no
    /// evictions, after which the table is fitted anyway. O(stripes).
    pub(super) fn shrink_ghosts(&self) {
        self.note_len();
        self.notifier.ghosts().shrink();
    }

    /// Returns whether the record has expired or was cleared.
    #[inline]
    pub(super) fn is_expired(&self, record: &Record<K, V>) -> bool {
        self.clock.has_expired(record.deadline()) || self.is_cleared(record)
    }

    /// Returns whether the record has expired and is not kept as a stale one, or was cleared.
    pub(super) fn is_gone(&self, record: &Record<K, V>) -> bool {
        self.clock.is_gone(record.deadline()) || self.is_cleared(record)
    }

    /// Returns how fresh the record is.
    pub(super) fn freshness(&self, record: &Record<K, V>) -> Freshness {
        match self.is_cleared(record) {
            true => Freshness::Gone,
            false => self.clock.freshness(record.deadline()),
        }
    }

    /// Returns whether a use of this record only marks it: it has no deadline to check, extend or
    /// compute, no position to change in an LRU order, and the cache is not being cleared.
    #[inline]
    pub(super) fn is_plain(&self, record: &Record<K, V>) -> bool {
        // One test for all.
        (record.deadline().raw() ^ Deadline::NEVER.raw()) | self.clear.checks_uses() == 0
    }

    /// Counts a use of a record of this hash. In LRU order the use moves the record on its list; an
    /// idle deadline is extended.
    #[inline]
    pub(super) fn note_use(&self, record: &Record<K, V>, hash: u64, guard: &Guard)
    where
        K: Eq,
    {
        record.mark_used();
        if record.deadline().is_idle() || self.clear.acts_on_use() {
            self.note_use_slow(record, hash, guard);
        }
    }

    /// The rest of [`note_use`](Self::note_use), for caches in LRU order, for idle deadlines and
    /// for computed ones.
    #[cold]
    fn note_use_slow(&self, record: &Record<K, V>, hash: u64, guard: &Guard)
    where
        K: Eq,
    {
        self.queues.promote(record);
        self.extend_idle_deadline(record, hash, guard);
        if let Some(Expiry { function, .. }) = self.expiry() {
            let at = record.deadline();
            let event = ExpiryEvent::Read { time_left: self.clock.time_left(at, self.clock.now()) };
            let Some(ttl) = function(&record.key, &record.value, event).ttl() else { return };
            let new = self.clock.deadline_of(ttl);
            // The key is compared only if a copy has replaced the record: another value of the key
            // may have the same deadline. A value that has replaced the copy since, with the same
            // deadline, is still taken for it. The record may have expired while the function ran.
            let is_it = |there: &Record<K, V>| {
                let is_same = std::ptr::eq(there, record) || (record.was_moved() && there.key == record.key);
                is_same && there.deadline() == at && !self.is_expired(there)
            };
            let store = |there: &Record<K, V>| self.set_expires(there, new);
            let is_new = new.at != at || new.live_end != self.clock.live_end(record, at);
            if is_new && self.index.with(hash, guard, is_it, store).is_some() {
                self.register_deadline(new, hash);
            }
        }
    }

    /// Sets the time to live of the record for which `is` returns true, and counts a use. Returns
    /// false if there is none, or if the record has expired.
    pub(super) fn touch(
        &self,
        hash: u64,
        guard: &Guard,
        time_to_live: Option<Duration>,
        is: impl Fn(&Record<K, V>) -> bool,
    ) -> bool {
        let expires = self.clock.deadline_of(Ttl::to_live(time_to_live));
        let is_live = |there: &Record<K, V>| is(there) && !self.is_expired(there);
        let touched = self.index.with(hash, guard, is_live, |there| {
            there.set_deadline(expires.at);
            there.mark_used();
            self.queues.promote(there);
        });
        self.register_deadline(expires, hash);
        touched.is_some()
    }

    fn expiry(&self) -> Option<&Expiry<K, V>> {
        self.functions.as_ref().and_then(|functions| functions.expiry.as_ref())
    }

    /// Returns the deadline of a new value with this time to live, which replaces `current`.
    pub(super) fn deadline_of_new(&self, ttl: Ttl, key: &K, value: &V, current: Option<&Record<K, V>>) -> Expires {
        let (Ttl::Computed, Some(expiry)) = (ttl, self.expiry()) else { return self.clock.deadline_of(ttl) };
        let event = current.map_or(ExpiryEvent::Create, |current| ExpiryEvent::Update {
            time_left: self.clock.time_left(current.deadline(), self.clock.now()),
        });
        match ((expiry.function)(key, value, event).ttl(), current) {
            (None, Some(_)) => Expires::OF_REPLACED,
            (ttl, _) => self.clock.deadline_of(ttl.unwrap_or(expiry.default)),
        }
    }

    /// Returns the deadline of a record in the index, to be stored in another one.
    pub(super) fn expires(&self, record: &Record<K, V>) -> Expires {
        // The floor is not beyond the deadline while the record is in the index.
        let at = record.deadline();
        Expires { at, live_end: self.clock.live_end(record, at), floor: self.clock.floor() }
    }

    /// Stores a deadline in a record, under the lock of the record's segment.
    pub(super) fn set_expires(&self, record: &Record<K, V>, expires: Expires) {
        self.clock.store_live_end(record, expires);
        record.set_deadline(expires.at);
    }

    /// Stores the deadline of `replaced` in `new`, and returns it, under the lock of their segment:
    /// so a `touch` until then is kept. A new entry gets the cache's own time; `replaced` is none
    /// then, also if an expired record is present.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_deadline(&self, replaced: Option<&Record<K, V>>, new: &Record<K, V>) -> Expires {
        let own = || self.expiry().map_or(Ttl::Forever, |expiry| expiry.default);
        let expires = replaced.map_or_else(|| self.clock.deadline_of(own()), |replaced| self.expires(replaced));
        self.set_expires(new, expires);
        expires
    }

    /// Extends the deadline of a record that was just used, if it is an idle deadline, and no other
    /// thread has stored another one meanwhile.
    pub(super) fn extend_idle_deadline(&self, record: &Record<K, V>, hash: u64, guard: &Guard)
    where
        K: Eq,
    {
        let at = record.deadline();
        if self.clock.extended(at, Deadline::NEVER).is_none() {
            return;
        }
        // Compared by key, as a copy may have replaced the record.
        let is_it = |there: &Record<K, V>| there.key == record.key && there.deadline() == at;
        self.index.with(hash, guard, is_it, |there| {
            if let Some(end) = self.clock.extended(at, self.clock.live_end(there, at)) {
                there.set_deadline(end);
            }
        });
    }

    /// Takes a record that is being removed from the index off its list; none if a walk has
    /// isolated the record, which finishes the removal.
    pub(super) fn remove_from_list(&self, record: &Record<K, V>) -> MaybeRemoval<'_, K, V, S> {
        let (record, memcg) = self.queues.del(record)?;
        Some(PendingRemoval { core: self, record: Some(record), memcg: Some(memcg) })
    }

    /// Ends the `charge` of a removed record; to be called once for each. Returns the bytes that
    /// the caller uncharges from `memcg`; the rest stays charged while readers hold the value.
    pub(super) fn end_charge(&self, record: &Record<K, V>, charge: ByteSize, memcg: &Memcg) -> ByteSize {
        debug_assert_eq!(charge, record.charge());
        let Some(held_values) = self.held_values else { return charge };
        let left = (held_values().leave)(&record.value, memcg, record.value_bytes(), self.notifier.retired());
        left.map_or(charge, |freed| {
            record.set_left_charge();
            record.own_bytes().saturating_add(freed)
        })
    }

    /// Notifies the value of a charged record that the record is about to be inserted. Returns the
    /// value's own charge, which ends with the insert: to be dropped without a lock.
    pub(super) fn enter_value(&self, record: &Record<K, V>) -> Option<HeldCharge> {
        let held_values = self.held_values?;
        (held_values().enter)(&record.value, record.value_bytes(), self.notifier.retired())
    }

    /// Reverts [`enter_value`](Self::enter_value) for a record that was not inserted. Returns the
    /// bytes that the caller uncharges from `memcg`.
    pub(super) fn withdraw_value(&self, record: &Record<K, V>, memcg: &Memcg) -> ByteSize {
        let Some(held_values) = self.held_values else { return record.charge() };
        let freed = (held_values().withdraw)(&record.value, memcg, record.value_bytes(), self.notifier.retired());
        freed.map_or(record.charge(), |freed| record.own_bytes().saturating_add(freed))
    }

    /// Notifies the value of a copy whether the copy takes the place of its record: then the clone
    /// in it is no reader's.
    pub(super) fn set_is_records(&self, copy: &Record<K, V>, is_records: bool) {
        if let Some(held_values) = self.held_values {
            (held_values().set_is_records)(&copy.value, is_records);
        }
    }

    /// Finishes the removal of one record; see [`finish_removals`](Self::finish_removals).
    pub(super) fn finish_removal(&self, record: Handle<K, V>) {
        let count = || self.counters.removed_one(cause_of(&record), record.charge());
        self.count_removals(usize::from(record.was_cleared()), count);
        self.notify(&record);
    }

    /// Counts the `removals` of these records, which are in no index and on no list, calls the
    /// listener, and retires the records. The caller uncharges the group, and must hold no lock and
    /// no guard.
    pub(super) fn finish_removals(&self, records: &mut [Option<Handle<K, V>>], removals: &Removals) {
        // Counted before the listener is called, which may read the statistics.
        self.count_removals(removals.cleared, || self.counters.removed(removals));
        Slot::drop_all(records.iter_mut().filter_map(Option::take).inspect(|record| self.notify(record)));
    }

    /// Calls the listener for a removed record.
    #[inline]
    fn notify(&self, record: &Record<K, V>) {
        if let Some(listener) = self.functions.as_ref().and_then(|functions| functions.listener.as_ref()) {
            let _scope = CallbackScope::enter();
            if caught(|| listener(&record.key, &record.value, cause_of(record))).is_none() {
                self.counters.listener_panicked();
            }
        }
    }
}

/// Returns the removal cause of a record. Size, if the thread that removed the record from the
/// index has not stored the cause yet, and has left the handle to a walk.
#[inline]
pub(super) fn cause_of<K, V>(record: &Record<K, V>) -> RemovalCause {
    record.cause().unwrap_or(RemovalCause::Size)
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Core<K, V, S> {
    /// Uncharges all records, and counts them as retired until each is dropped: one part of the
    /// index at a time, as a pinned thread delays reclamation in all caches of the process. The
    /// records are dropped with the lists, after the index.
    fn drop(&mut self) {
        self.queues.note_len(0, ByteSize::ZERO, self.notifier.ghosts());
        if self.is_left {
            return;
        }
        let mut at = Cursor::new();
        while !at.is_done() {
            let mut bytes = ByteSize::ZERO;
            self.index.visit(&mut at, &pin(), |record| {
                if let Some(memcg) = self.queues.owner(record) {
                    memcg.uncharge(self.end_charge(record, record.charge(), &memcg));
                }
                bytes = bytes.saturating_add(record.retired_bytes());
            });
            self.index.slab().count_all(bytes);
        }
    }
}
