//! The cache as a shrinker: counts a group's records on a node, and evicts the oldest of them.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use lowwater_lru_core::{ByteSize, Isolated, Memcg, NodeId};
use lowwater_rcu::pin;
use lowwater_shrinker::{Count, Reclaim, Scan, ShrinkControl, Shrinker};

use super::core::Core;
use super::policy::batch::EvictionBatch;
use super::policy::ghost_recorder::GhostRecorder;
use super::policy::queue::Queue;
use super::record::{Handle, Record};
use super::removal::RemovalCause;

/// Background evictions after which removed records are collected. A collection needs a fence on
/// every processor, which interrupts readers, so it must pay off.
const COLLECT_EVERY: u32 = 16_384;
/// Records whose cache lines are prefetched together.
const AHEAD: usize = 8;

/// The result of an eviction.
#[derive(Default)]
pub(super) struct Evicted {
    /// Scanned records, and those of them that were evicted.
    pub(super) scanned: u64,
    pub(super) freed: u64,
    /// Scanned records that were put back on their list, as they could not be found in the
    /// index.
    put_back: u64,
    /// The bytes that the group was charged for the evicted records.
    pub(super) bytes: ByteSize,
}

/// The group from which records are evicted.
#[derive(Clone, Copy)]
pub(super) struct EvictionSource<'a> {
    pub(super) memcg: &'a Memcg,
    /// The number of the group's records before the eviction, for the age of ghosts.
    pub(super) entries: u64,
    /// Records ghosts of the evicted keys, if present.
    pub(super) ghost_recorder: Option<&'a GhostRecorder<'a>>,
}

impl Evicted {
    fn one(&mut self, charge: ByteSize) {
        self.freed += 1;
        self.bytes = self.bytes.saturating_add(charge);
    }
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

    /// Returns the estimated bytes of the group's records: their number times the mean charge of
    /// the group's recent evictions, or else of the cache's records.
    fn weigh_objects(&self, sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        self.note_len();
        Some(self.queues.weigh(sc.memcg(), self.queues.count(sc.memcg(), sc.node())))
    }

    /// Evicts batch by batch, in the order of the queues, until the requested number of records was
    /// scanned.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let Evicted { scanned, freed, .. } = self.evict(sc.memcg(), sc.node(), sc.nr_to_scan());
        if sc.flags().contains(Reclaim::BACKGROUND) {
            // Relaxed, both accesses: the number only decides when to collect; two concurrent
            // collections do no harm.
            let more = u32::try_from(freed).unwrap_or(u32::MAX);
            let since = self.freed_since.fetch_add(more, Ordering::Relaxed).saturating_add(more);
            if since >= COLLECT_EVERY {
                self.freed_since.store(0, Ordering::Relaxed);
                self.index.slab().collect_some(usize::MAX);
                self.trim();
                self.request_compaction();
            }
        }
        sc.set_nr_scanned(scanned);
        Scan::Freed(freed)
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Scans up to `nr` of the oldest records of a group on a node, and evicts those that were not
    /// used.
    pub(super) fn evict(&self, memcg: &Memcg, node: NodeId, nr: u64) -> Evicted {
        let now = self.clock.now();
        let why = |record: &Record<K, V>| match record.deadline().is_past(now) {
            true => RemovalCause::Expired,
            false => RemovalCause::Size,
        };
        let ghosts = self.notifier.ghosts();
        if self.queues.is_count_due() {
            self.note_len();
        }
        let ghost_recorder = self.queues.ghost_recorder(memcg, ghosts, self.notifier.retired().budget().get());
        let mut all = Evicted::default();
        while all.scanned < nr {
            // Relaxed, here and below: a hint. If a whole batch was put back, the other queue is
            // tried next, as it may have records that can be evicted.
            let swapped = self.is_stuck.load(Ordering::Relaxed) && self.is_stuck.swap(false, Ordering::Relaxed);
            let EvictionBatch { old, moved, to, entries, scanned } =
                self.queues.isolate_batch(memcg, node, nr - all.scanned, now, swapped);
            if scanned == 0 {
                break;
            }
            all.scanned += scanned;
            if !moved.is_empty() {
                self.queues.prepare(to, memcg, node);
            }
            let source = EvictionSource { memcg, entries, ghost_recorder: Some(&ghost_recorder) };
            let (before, put_back) = (all.bytes, all.put_back);
            for record in moved {
                let hash = self.hash_again(&record.key);
                if let Some(record) = self.move_to(to, record, hash, memcg, node) {
                    self.evict_one(record, hash, source, why, &mut all);
                }
            }
            self.evict_batch(old, source, why, &mut all);
            memcg.uncharge(all.bytes.saturating_sub(before));
            if all.put_back > put_back && all.bytes == before {
                self.is_stuck.store(true, Ordering::Relaxed);
            }
        }
        ghost_recorder.tenant.note_evicted(all.freed, all.bytes.get());
        self.queues.note_evicted(all.freed);
        all
    }

    /// Moves a record that a walk isolated from one queue to the other. Returns the record if
    /// another thread has removed it from the index, or there is no memory for a list.
    fn move_to(
        &self,
        queue: Queue,
        record: Handle<K, V>,
        hash: Option<u64>,
        memcg: &Memcg,
        node: NodeId,
    ) -> Option<Handle<K, V>> {
        let Some(hash) = hash else { return Some(record) };
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
                    record = self.queues.add(handle, memcg, node).err().map(lowwater_lru_core::AddError::into_handle);
                }
            },
        );
        record
    }

    /// Evicts isolated records of a group in batches of `AHEAD`: the cache lines of a whole batch
    /// are prefetched before its first record is touched. The counts are added to `gone`.
    pub(super) fn evict_batch(
        &self,
        mut old: Isolated<Record<K, V>>,
        source: EvictionSource<'_>,
        why: impl Fn(&Record<K, V>) -> RemovalCause,
        gone: &mut Evicted,
    ) {
        while !old.is_empty() {
            let mut batch: [_; AHEAD] = std::array::from_fn(|_| None);
            let guard = pin();
            for place in &mut batch {
                let Some(record) = old.pop() else { break };
                let hash = self.hash_again(&record.key);
                if let Some(hash) = hash {
                    self.index.prefetch(hash, &guard);
                    if let Some(ghost_recorder) = source.ghost_recorder {
                        ghost_recorder.prefetch(hash, &guard);
                    }
                }
                *place = Some((record, hash));
            }
            drop(guard);
            for (record, hash) in batch.into_iter().flatten() {
                self.evict_one(record, hash, source, &why, gone);
            }
        }
    }

    /// Evicts an isolated record of this hash: removes it from the index, unless another thread was
    /// faster, and finishes the removal; counts it in `gone`. A record that is still marked as
    /// indexed and is not found by its hash, as the key's `Hash` panics or is inconsistent, goes
    /// back on its list.
    fn evict_one(
        &self,
        record: Handle<K, V>,
        hash: Option<u64>,
        source: EvictionSource<'_>,
        why: impl Fn(&Record<K, V>) -> RemovalCause,
        gone: &mut Evicted,
    ) {
        let cause = why(&record);
        let address: *const _ = &*record;
        let guard = pin();
        let is_it = |there: &_| std::ptr::eq(there, address);
        let removed =
            hash.filter(|hash| self.remove_from_index(*hash, &guard, is_it, |there| there.set_cause(cause)).is_some());
        if let (Some(ghost_recorder), Some(hash), RemovalCause::Size) = (source.ghost_recorder, removed, cause) {
            ghost_recorder.remember(hash, record.queue(), source.entries, &guard);
        }
        drop(guard);
        if removed.is_none() && record.is_indexed() {
            match self.put_back(record, source.memcg) {
                Some(charge) => gone.one(charge),
                None => gone.put_back += 1,
            }
            return;
        }
        let charge = self.end_charge(&record, source.memcg);
        self.finish_removal(record);
        gone.one(charge);
    }
}
