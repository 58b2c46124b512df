//! The cache as a shrinker: counts a group's records on a node, and evicts the oldest of them.
//!
//! The reclaimer calls these functions at any time and on any thread. A change must ensure that
//! counting is cheap, that a scan ends after the requested number of records, and that a record
//! whose key cannot be hashed any more is put back instead of lost.

use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, Isolated, Memcg, NodeId};
use lowwater_rcu::pin;
use lowwater_shrinker::{Count, Reclaim, Scan, ShrinkControl, Shrinker};

use super::core::{cause_of, Core};
use super::expiry::clock::Lifespan;
use super::expiry::deadline::Now;
use super::policy::batch::EvictionBatch;
use super::policy::ghost_recorder::GhostRecorder;
use super::policy::queue::Queue;
use super::record::{Handle, Record};
use super::removal::RemovalCause;
use super::stats::Removals;

/// Background evictions after which removed records are collected, if the cache has shrunk. A
/// collection needs a fence on every processor, which interrupts readers, so it must pay off: with
/// 128, the p99.9 of lookups during a shrink was 7.1 us instead of 1.
const COLLECT_EVERY: u16 = 16_384;
/// Records whose cache lines are prefetched together.
const AHEAD: usize = 8;

/// The result of an eviction.
#[derive(Default)]
pub(super) struct Evicted {
    /// Records that were scanned.
    pub(super) scanned: u64,
    /// Scanned records that were evicted.
    pub(super) freed: u64,
    /// Scanned records that were put back on their list, as they could not be found in the
    /// index.
    put_back: u64,
    /// The charges of the evicted records.
    charges: ByteSize,
    /// The bytes to uncharge: the charges, without the values that readers hold and that stay
    /// charged.
    pub(super) bytes: ByteSize,
}

/// The origin of isolated records that are to be evicted.
#[derive(Clone, Copy)]
pub(super) struct EvictionSource<'a> {
    /// The group of the records.
    pub(super) memcg: &'a Memcg,
    /// The queue from which the records were isolated.
    pub(super) queue: Queue,
    /// The number of the group's records before the eviction, for the age of ghosts.
    pub(super) entries: u64,
    /// Remembers the evicted keys as ghosts; `None` for evictions that leave no ghosts, or without
    /// memory.
    pub(super) ghost_recorder: Option<&'a GhostRecorder<'a>>,
}

impl Evicted {
    /// Counts evicted records with these charges, of which `bytes` are to be uncharged.
    fn add(&mut self, records: u64, charges: ByteSize, bytes: ByteSize) {
        self.freed += records;
        self.charges = self.charges.saturating_add(charges);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Appends a record that was isolated before, and is on no list.
fn put_aside<K: Send + Sync + 'static, V: Send + Sync + 'static>(
    aside: &mut Isolated<Record<K, V>>,
    record: Handle<K, V>,
) {
    assert!(aside.push(record).is_ok(), "an isolated record is on no list");
}

/// Returns the longest lifespan that is left of the records with a hash; `None` if none of them
/// expires.
#[cold]
fn longest_rest<K, V>(records: &[Option<Handle<K, V>>], hashes: &[Option<u64>], now: Now) -> Option<Lifespan>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let evicted =
        records.iter().zip(hashes).filter(|(_, hash)| hash.is_some()).filter_map(|(record, _)| record.as_ref());
    evicted.filter_map(|record| Lifespan::of(record.deadline(), now)).max_by_key(|rest| rest.left)
}

impl<K, V, S> Shrinker for Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.queues.count(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn weigh_objects(&self, sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        Some(self.weigh(sc.memcg(), sc.node()))
    }

    /// Evicts batch by batch, in the order of the queues, until the requested number of records was
    /// scanned.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let Evicted { scanned, freed, charges, .. } = self.evict(sc.memcg(), sc.node(), sc.nr_to_scan());
        if sc.flags().contains(Reclaim::BACKGROUND) {
            // Relaxed, both accesses: the number only decides when to collect; two concurrent
            // collections do no harm.
            let more = u16::try_from(freed).unwrap_or(u16::MAX);
            let since = self.freed_since.fetch_add(more, Ordering::Relaxed).saturating_add(more);
            if since >= COLLECT_EVERY {
                self.freed_since.store(0, Ordering::Relaxed);
                let has_shrunk = self.collected.has_shrunk(self.counters.len());
                if has_shrunk && self.index.slab().collect_some(usize::MAX) > ByteSize::ZERO {
                    // The cache may be idle when the readers leave.
                    self.collect_later();
                }
                self.trim();
                self.request_compaction();
            }
        }
        sc.set_nr_scanned(scanned);
        sc.set_freed_bytes(charges);
        Scan::Freed(freed)
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the bytes of the group's records on a node. Of a cache with tenants it is an
    /// estimate: their number times the mean charge of the group's recent evictions, or else of the
    /// cache's records.
    pub(super) fn weigh(&self, memcg: &Memcg, node: NodeId) -> ByteSize {
        let (len, bytes) = self.note_len();
        let entries = self.queues.count(memcg, node);
        // Relaxed: a hint, as the records are counted while others are inserted.
        if self.has_tenants.load(Ordering::Relaxed) {
            return self.queues.weigh(memcg, entries);
        }
        // All records are of one group. The node's part of the bytes is as large as that of the
        // records. Entries that stay may be larger than those that are evicted.
        let len = (len as u128).max(entries.into()).max(1);
        let part = u128::from(bytes.get()) * u128::from(entries) / len;
        ByteSize::new(part as u64).min(memcg.usage())
    }

    /// Scans up to `nr` of the oldest records of a group on a node, evicts those that were not used
    /// or have expired, and uncharges the group for them.
    pub(super) fn evict(&self, memcg: &Memcg, node: NodeId, nr: u64) -> Evicted {
        // Read at the first record with a deadline: a reading of the clock costs as much as a
        // lookup.
        let now = OnceCell::new();
        let is_expired = |record: &Record<K, V>| {
            let deadline = record.deadline();
            !deadline.is_never() && deadline.is_past(*now.get_or_init(|| self.clock.now())) || self.is_cleared(record)
        };
        let why = |record: &Record<K, V>| match is_expired(record) {
            true => self.cause_of_expired(record),
            false => RemovalCause::Size,
        };
        let ghosts = self.notifier.ghosts();
        if self.queues.is_count_due() {
            self.note_len();
        }
        let ghost_recorder =
            self.queues.ghost_recorder(memcg, ghosts, self.notifier.retired().bound_of(memcg).get(), &now);
        // A listener may be slow: an entry is then charged for no longer than the calls for a few.
        let has_listener = self.functions.as_ref().is_some_and(|functions| functions.listener.is_some());
        let step = if has_listener { AHEAD as u64 } else { u64::MAX };
        let mut all = Evicted::default();
        while all.scanned < nr {
            // Relaxed, here and below: a hint. If records of a batch were put back and none was
            // evicted, the other queue is tried next, as it may have records that can be evicted.
            let swapped = self.is_stuck.load(Ordering::Relaxed) && self.is_stuck.swap(false, Ordering::Relaxed);
            let EvictionBatch { old, moved, to, entries, scanned } =
                self.queues.isolate_batch(memcg, node, step.min(nr - all.scanned), is_expired, swapped);
            if scanned == 0 {
                break;
            }
            all.scanned += scanned;
            if !moved.is_empty() {
                self.queues.prepare(to, memcg, node);
            }
            let source = EvictionSource { memcg, queue: to.other(), entries, ghost_recorder: ghost_recorder.as_ref() };
            let (before, put_back) = (all.bytes, all.put_back);
            let mut refused = Isolated::new();
            for record in moved {
                if let Some(record) = self.move_to(to, record, memcg, node) {
                    put_aside(&mut refused, record);
                }
            }
            for victims in [refused, old] {
                if !victims.is_empty() {
                    self.evict_batch(victims, source, why, &mut all);
                }
            }
            memcg.uncharge(all.bytes.saturating_sub(before));
            if all.put_back > put_back && all.bytes == before {
                self.is_stuck.store(true, Ordering::Relaxed);
            }
        }
        if let Some(ghost_recorder) = &ghost_recorder {
            ghost_recorder.tenant.note_evicted(all.freed, all.charges.get());
        }
        self.queues.note_evicted(all.freed);
        all
    }

    /// Moves an isolated record to `queue`. Returns the record if it is not found in the index, as
    /// another thread has removed it or its key cannot be hashed, or cannot be added to the list.
    fn move_to(&self, queue: Queue, record: Handle<K, V>, memcg: &Memcg, node: NodeId) -> Option<Handle<K, V>> {
        let Some(hash) = self.hash_again(&record.key) else { return Some(record) };
        let mut record = Some(record);
        let address = record.as_deref().map(std::ptr::from_ref);
        let guard = pin();
        self.index.with(
            hash,
            &guard,
            |there| Some(std::ptr::from_ref(there)) == address,
            |there| {
                there.set_queue(queue);
                if let Some(handle) = record.take() {
                    let added = self.queues.add(handle, memcg, node, &guard);
                    record = added.err().map(lowwater_lru_core::AddError::into_handle);
                }
            },
        );
        record
    }

    /// Evicts isolated records of a group in batches of `AHEAD`: removes them from the index,
    /// unless another thread was faster, and finishes their removal; counts them in `gone`. The
    /// caller uncharges the group. The cache lines of a whole batch are prefetched before its first
    /// record is removed. A record that is still marked as indexed and is not found by its hash is
    /// left to [`put_back`](Self::put_back).
    pub(super) fn evict_batch(
        &self,
        mut old: Isolated<Record<K, V>>,
        source: EvictionSource<'_>,
        why: impl Fn(&Record<K, V>) -> RemovalCause,
        gone: &mut Evicted,
    ) {
        let hasher = |record: &Record<K, V>| self.hash(&record.key);
        while !old.is_empty() {
            let nr = old.len().min(AHEAD);
            let (mut records, mut hashes) = ([const { None }; AHEAD], [None; AHEAD]);
            let (records, hashes) = (&mut records[..nr], &mut hashes[..nr]);
            records.iter_mut().for_each(|record| *record = old.pop());
            self.hash_all(records, hashes);
            let guard = pin();
            for hash in hashes.iter().copied().flatten() {
                self.index.prefetch(hash, &guard);
                if let Some(ghost_recorder) = source.ghost_recorder {
                    ghost_recorder.prefetch(hash, &guard);
                }
            }
            let mut lost = Isolated::new();
            let mut nr_ghosts = 0;
            for (place, hash) in records.iter_mut().zip(hashes.iter_mut()) {
                let Some(record) = place else { break };
                let cause = why(record);
                let is_cleared = cause == RemovalCause::Explicit && self.is_cleared(record);
                let with_cause = |bits| Record::<K, V>::with_cause(bits, cause, is_cleared);
                if hash.is_some_and(|hash| self.index.remove_slot(record, hash, &guard, &hasher, with_cause)) {
                    if cause == RemovalCause::Size {
                        nr_ghosts += 1;
                        continue;
                    }
                } else if record.is_indexed() {
                    place.take().into_iter().for_each(|record| put_aside(&mut lost, record));
                }
                // No ghost: the record has expired, was removed by another thread, or is left to
                // `put_back`.
                *hash = None;
            }
            if let Some(ghost_recorder) = source.ghost_recorder {
                // Set if a record with a deadline was met.
                let rest = ghost_recorder.now.get().and_then(|now| longest_rest(records, hashes, *now));
                ghost_recorder.remember(
                    hashes.iter().copied().flatten(),
                    nr_ghosts,
                    source.queue,
                    source.entries,
                    rest,
                    &guard,
                );
            }
            drop(guard);
            for record in lost {
                let (cause, charge) = (why(&record), record.charge());
                match self.put_back(record, cause, source.memcg) {
                    Some(uncharged) => gone.add(1, charge, uncharged),
                    None => gone.put_back += 1,
                }
            }
            let (mut removals, mut uncharged) = (Removals::default(), ByteSize::ZERO);
            for record in records.iter().flatten() {
                let charge = record.charge();
                uncharged = uncharged.saturating_add(self.end_charge(record, charge, source.memcg));
                removals.add(cause_of(record), charge, record.was_cleared());
            }
            gone.add(removals.len(), ByteSize::new(removals.bytes), uncharged);
            self.finish_removals(records, &removals);
        }
    }

    /// Hashes keys that were hashed before. The hash of a key whose `Hash` panics now stays none.
    fn hash_all(&self, records: &[Option<Handle<K, V>>], hashes: &mut [Option<u64>]) {
        let mut left = records.iter().flatten().zip(hashes);
        // Repeated only after a panic, for the keys that are left.
        while caught(|| left.by_ref().for_each(|(record, hash)| *hash = Some(self.hash(&record.key)))).is_none() {}
    }
}
