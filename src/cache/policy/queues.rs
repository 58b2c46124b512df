//! The eviction order of a cache's entries.
//!
//! Two queues, each a [`ListLru`] with a list for each (group, node):
//!
//! ```text
//!     insert --> probation --read twice or more--> main --read--> main again, one use less
//!                    |                               |
//!                    | not read                      | not read
//!                    v                               v
//!                  ghosts of probation             ghosts of main
//!                    |                               |
//!     missed soon after: into main, and          missed soon after: on probation, and
//!     probation's share grows                    probation's share shrinks
//! ```
//!
//! "Soon" means that the key was away for less time than main's next victim is idle, with a margin
//! ([`Tenant::ghost_hit`]), so that a loop that is longer than the cache does not pass through
//! main. The share also shrinks while a record of probation is used less than one of main
//! ([`Tenant::note_walk`]).
//!
//! New entries start on probation. Most entries that are read only once leave from there, and
//! displace no used entry (the S3-FIFO queues, with a share that adapts as in ARC). A read only
//! increments the record's use count and moves no record. A new value for a present key takes the
//! position of the old record, with one use more ([`overwrite`](crate::cache::overwrite)); if that
//! is not possible, the new record gets the old one's uses and becomes the youngest of main if the
//! old one was there, else of the queue of a new entry.
//!
//! Each tenant has its own queues, share and clock ([`tenant`](super::tenant)), so that the reads
//! of one tenant do not change the order of another.
//!
//! Before a tenant's first eviction, new entries that find probation full go to main at once.
//! Later, an entry reaches main only after uses on probation or a ghost hit. Of a loop that is
//! longer than the cache, the first entries thus stay in main, where a FIFO queue would evict every
//! entry before its next use.
//!
//! The other orders ([`Eviction`]) do not adapt, and use the same lists differently:
//!
//! - [`S3Fifo`](Eviction::S3Fifo): the two queues with a fixed share; "soon" means that fewer
//!   records were evicted meanwhile than the tenant has.
//! - [`SecondChance`](Eviction::SecondChance) and [`Lru`](Eviction::Lru): all entries are in main.
//! - [`Sieve`](Eviction::Sieve): one list holds the entries that the hand has yet to pass in this
//!   lap, the other those that it has passed. The lists swap roles after each lap.
//!
//! A change must ensure that a hit writes nothing but the record's own use count (except in LRU
//! order), that an eviction visits a bounded number of records, and that a walk calls no user code
//! under a list's lock.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::Arc;

use lowwater_base::hash::mix;
use lowwater_lru_core::{AddError, ByteSize, Isolated, ListLru, Memcg, NodeId, Occupancy, Pick};
use lowwater_rcu::{pin, Guard};
use lowwater_shrinker::{Miss, MissReporter, PairHint};

use super::batch::EvictionBatch;
use super::cost::RelativeCost;
use super::eviction::Eviction;
use super::ghost_recorder::GhostRecorder;
use super::ghost_salt::{next_generation, GhostSalt};
use super::queue::Queue;
use super::queue_walk::QueueWalk;
use super::sought_ghost::SoughtGhost;
use super::tenant::Tenant;
use super::tenants::Tenants;
use crate::cache::expiry::clock::Lifespan;
use crate::cache::expiry::deadline::Now;
use crate::cache::record::{Handle, Record};
use crate::runtime::{Ghost, Ghosts, KnownGhosts};

/// Uses on probation after which an entry moves to main. If the limit of an adaptive probation is
/// at most `FEW` records, one use is enough, because records stay there only briefly.
const PROMOTE_USES: u8 = 2;
const PROMOTE_USES_OF_FEW: u8 = 1;
const FEW: u64 = 16;
/// The cache's records are counted again after evictions of 1 / `EVICTIONS_PER_COUNT` of them.
const EVICTIONS_PER_COUNT: u32 = 64;
/// A walk over probation may visit at least this number of records, if so many are requested: then
/// evictions from a queue that is barely over its limit still come in batches.
const PROBATION_BATCH_MIN: u64 = 8;
/// The least limit of probation, in entries of a group on a node: without it, the limit of a tenant
/// with three entries would be 0, and the entry just written would be its next victim.
const PROBATION_MIN: u64 = 4;

/// The queues and tenants of one cache, in one of the orders of [`Eviction`]. See the module.
pub(crate) struct Queues<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    probation: ListLru<Record<K, V>>,
    main: ListLru<Record<K, V>>,
    pub(crate) tenants: Tenants,
    /// Reports ghost hits to the registry.
    reporter: MissReporter,
    /// The number of entries in the cache at the last count.
    len: AtomicU32,
    /// Evictions since the last count.
    evicted: AtomicU32,
    /// The mean charge of an entry at the last count, in bytes; 0 before the first count.
    mean_charge: AtomicU32,
    /// Part of the salt of ghosts: lookups do not match ghosts of earlier generations, nor those of
    /// an ended cache whose id was reused.
    generation: AtomicU16,
    eviction: Eviction,
    /// The number of nodes, at most 255.
    nodes: u8,
}

/// The number of records that a walk evicts regardless of their uses, after the tenant's last walks
/// have spared too many ([`Tenant::has_spared_many`]).
const FORCED: u32 = 16;

/// The decision of a walk on one record.
enum Decision {
    Evict,
    /// Make the record the youngest of its queue, with this use count.
    Rotate(u8),
    /// Move the record to the other queue, with no uses.
    Move,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Queues<K, V> {
    pub(crate) fn new(
        occupancy: &Arc<dyn Occupancy>,
        reporter: MissReporter,
        eviction: Eviction,
        nodes: usize,
    ) -> Self {
        Self {
            probation: ListLru::with_occupancy(Arc::clone(occupancy)),
            main: ListLru::with_occupancy(Arc::clone(occupancy)),
            tenants: Tenants::default(),
            reporter,
            len: AtomicU32::new(0),
            evicted: AtomicU32::new(0),
            mean_charge: AtomicU32::new(0),
            generation: AtomicU16::new(next_generation()),
            eviction,
            nodes: u8::try_from(nodes).unwrap_or(u8::MAX),
        }
    }

    pub(crate) fn lists(&self, queue: Queue) -> &ListLru<Record<K, V>> {
        match queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        }
    }

    /// Returns whether the order has probation and main, so that ghost hits may insert into main.
    pub(crate) fn has_queues(&self) -> bool {
        matches!(self.eviction, Eviction::Adaptive | Eviction::S3Fifo)
    }

    /// Returns the tenant of `memcg`, unless its page was never allocated.
    #[inline]
    pub(crate) fn find_tenant(&self, memcg: &Memcg) -> Option<&Tenant> {
        self.tenants.get(memcg)
    }

    /// Resets the tenant of a group that is being removed.
    pub(crate) fn forget_tenant(&self, memcg: &Memcg) {
        self.tenants.forget(memcg);
    }

    /// Returns the salt of a tenant's ghosts.
    fn salt(&self, memcg: &Memcg, tenant: &Tenant) -> GhostSalt {
        // Relaxed: ghosts are hints, and a stale generation only matches ghosts already forgotten.
        let generation = self.generation.load(Ordering::Relaxed);
        GhostSalt::new(self.reporter.id().get(), generation, memcg.id().get(), tenant.generation())
    }

    /// Returns the ghost for which an insert of a key of this hash looks; `None` if the tenant has
    /// no ghosts of such keys.
    #[inline]
    pub(crate) fn sought_ghost(&self, hash: u64, memcg: &Memcg, tenant: &Tenant) -> Option<SoughtGhost> {
        let hash = mix(hash);
        tenant.ghost_weight(hash).map(|weight| SoughtGhost { hash: self.salt(memcg, tenant).hash(hash), weight })
    }

    /// Counts an insert for `tenant`. Takes the ghost of the key, if there is one, and reports the
    /// miss to the registry, unless the evicted record would have expired by now (`lifespan` is
    /// that of the new one). Returns whether the key returned so soon that its record belongs in
    /// main.
    #[inline]
    pub(crate) fn ghost_hit(
        &self,
        sought: Option<SoughtGhost>,
        memcg: &Memcg,
        tenant: &Tenant,
        cost: RelativeCost,
        ghosts: KnownGhosts<'_>,
        lifespan: impl FnOnce() -> Option<Lifespan>,
    ) -> bool {
        tenant.note_insert();
        let Some(SoughtGhost { hash, weight }) = sought else { return false };
        match ghosts.take(hash, tenant.now()) {
            Some(ghost) => self.found_ghost(ghost, weight, memcg, tenant, cost, lifespan),
            None => false,
        }
    }

    /// Does the rest of [`ghost_hit`](Self::ghost_hit), for a ghost that represents `weight` hits.
    #[inline(never)]
    fn found_ghost(
        &self,
        ghost: Ghost,
        weight: u32,
        memcg: &Memcg,
        tenant: &Tenant,
        cost: RelativeCost,
        lifespan: impl FnOnce() -> Option<Lifespan>,
    ) -> bool {
        if lifespan().is_some_and(|new| tenant.is_ended(ghost, new)) {
            return false;
        }
        let hit = tenant.ghost_hit(ghost, weight, self.eviction == Eviction::Adaptive);
        let distance = ByteSize::new(hit.evictions.saturating_mul(self.mean_charge_of(tenant)));
        if !hit.is_chance {
            self.reporter.miss_at(&tenant.pair, memcg, Miss::at(distance).cost(cost.sixteenths()).weight(weight));
        }
        self.has_queues() && hit.is_soon
    }

    /// Returns the registry slot of this cache and group, if the registry has one for them.
    pub(crate) fn pair<'t>(&self, memcg: &Memcg, tenant: &'t Tenant) -> Option<&'t PairHint> {
        self.reporter.is_known(&tenant.pair, memcg).then_some(&tenant.pair)
    }

    /// Reports the mean relative cost of a miss to the registry.
    pub(crate) fn note_mean_cost(&self, cost: RelativeCost) {
        self.reporter.set_mean_cost(cost.sixteenths());
    }

    /// Returns the mean charge of a tenant's recently evicted entries, in bytes; before its first
    /// eviction, the mean of the cache.
    fn mean_charge_of(&self, tenant: &Tenant) -> u64 {
        tenant.mean_charge().unwrap_or_else(|| self.mean_charge())
    }

    /// Estimates the charge of `entries` entries of a group, from the mean charge of its recently
    /// evicted entries: at most the usage of the group.
    pub(crate) fn weigh(&self, memcg: &Memcg, entries: u64) -> ByteSize {
        let mean = self.tenants.get(memcg).map_or_else(|| self.mean_charge(), |tenant| self.mean_charge_of(tenant));
        ByteSize::new(entries.saturating_mul(mean)).min(memcg.usage())
    }

    /// Returns the mean charge of an entry at the last count, in bytes; 0 before the first count.
    pub(crate) fn mean_charge(&self) -> u64 {
        self.mean_charge.load(Ordering::Relaxed).into()
    }

    /// Returns the queue for a new record of `memcg` on a node.
    #[inline]
    pub(crate) fn initial_queue(&self, memcg: &Memcg, tenant: Option<&Tenant>, node: NodeId) -> Queue {
        if self.eviction == Eviction::Adaptive && tenant.is_some_and(|tenant| !tenant.is_filling()) {
            return Queue::Probation;
        }
        self.initial_queue_slow(memcg, tenant, node)
    }

    /// The rest of [`initial_queue`](Self::initial_queue): without a tenant, for one that has
    /// evicted nothing yet, and for the orders that do not adapt.
    #[inline(never)]
    fn initial_queue_slow(&self, memcg: &Memcg, tenant: Option<&Tenant>, node: NodeId) -> Queue {
        match self.eviction {
            Eviction::Adaptive => {
                let (probation, main) = self.counts(memcg, node);
                match probation >= self.probation_limit(tenant, probation + main) {
                    true => Queue::Main,
                    false => Queue::Probation,
                }
            }
            Eviction::S3Fifo => Queue::Probation,
            Eviction::Sieve => self.ahead_of_hand(memcg, node),
            Eviction::SecondChance | Eviction::Lru => Queue::Main,
        }
    }

    /// Returns whether a use moves a record on its list.
    pub(crate) fn is_lru(&self) -> bool {
        self.eviction == Eviction::Lru
    }

    /// Makes a used record the youngest, with [`Eviction::Lru`]; otherwise does nothing.
    pub(crate) fn promote(&self, record: &Record<K, V>) {
        if self.is_lru() {
            self.main.promote(record);
        }
    }

    /// Returns the queue of a tenant on a node that SIEVE's hand has yet to pass.
    fn ahead_of_hand(&self, memcg: &Memcg, node: NodeId) -> Queue {
        match self.tenants.get(memcg).is_some_and(|tenant| tenant.is_lap_odd(node)) {
            false => Queue::Probation,
            true => Queue::Main,
        }
    }

    /// Returns the limit of probation, in records, for a tenant with `entries` records on a node.
    fn probation_limit(&self, tenant: Option<&Tenant>, entries: u64) -> u64 {
        tenant
            .map_or_else(|| Tenant::default().probation_limit(entries), |tenant| tenant.probation_limit(entries))
            .max(PROBATION_MIN)
    }

    /// Raises the use count of `new`, which is on no list yet, to that of `old`, which it replaces.
    /// With two queues, `new` also goes to main if `old` is there.
    pub(crate) fn inherit(&self, new: &Record<K, V>, old: &Record<K, V>) {
        let is_main = self.has_queues() && old.queue() == Queue::Main;
        new.inherit(old, if is_main { Queue::Main } else { new.queue() });
    }

    /// Stores a new count: the number of records in the cache and their total charge. Adapts the
    /// bound of the ghost table to it.
    pub(crate) fn note_len(&self, len: usize, bytes: ByteSize, ghosts: &Ghosts) {
        if let Some(mean) = bytes.get().checked_div(len as u64) {
            self.mean_charge.store(u32::try_from(mean).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        // Relaxed: a hint; a lost reset only makes the next count due earlier.
        self.evicted.store(0, Ordering::Relaxed);
        // Relaxed: the length publishes no other memory. A swap, so that of concurrent calls each
        // change of the length is reported to the ghost table exactly once.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        ghosts.note_entries(self.len.swap(len, Ordering::Relaxed) as usize, len as usize);
    }

    /// Returns whether enough records were evicted since the last count for another one.
    pub(crate) fn is_count_due(&self) -> bool {
        // Relaxed, here and in `note_evicted`: a hint; a lost update only delays the next count.
        self.evicted.load(Ordering::Relaxed) >= self.len.load(Ordering::Relaxed) / EVICTIONS_PER_COUNT
    }

    /// Adds to the evictions since the last count of records.
    pub(crate) fn note_evicted(&self, evicted: u64) {
        let sum = u64::from(self.evicted.load(Ordering::Relaxed)).saturating_add(evicted);
        self.evicted.store(u32::try_from(sum).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Allocates the list that a following [`add`](Self::add) needs, so that `add` allocates
    /// nothing. A list that holds records is already allocated.
    pub(crate) fn prepare(&self, queue: Queue, memcg: &Memcg, node: NodeId) {
        if self.lists(queue).count_one(memcg, node) == 0 {
            // Without memory, `add` tries again and returns the error.
            let _made = self.lists(queue).prepare(memcg, node);
        }
    }

    /// Adds a record to its queue. The caller holds the lock of its segment, and a guard.
    ///
    /// # Errors
    ///
    /// Returns the record with the reason, if its list could not be allocated or takes no items.
    pub(crate) fn add(
        &self,
        record: Handle<K, V>,
        memcg: &Memcg,
        node: NodeId,
        guard: &Guard,
    ) -> Result<(), AddError<Handle<K, V>>> {
        self.lists(record.queue()).add_pinned(record, memcg, node, guard)
    }

    /// Replaces `old` by `new` at the same position of its queue. `new` gets the uses of `old`,
    /// unless it has more. The caller holds the lock of their segment, and a guard. Returns the old
    /// record.
    ///
    /// # Errors
    ///
    /// Returns `new` if a walk has isolated `old`.
    pub(crate) fn replace(
        &self,
        old: &Record<K, V>,
        new: Handle<K, V>,
        guard: &Guard,
    ) -> Result<Handle<K, V>, Handle<K, V>> {
        new.inherit(old, old.queue());
        self.lists(old.queue()).replace_pinned(old, new, guard)
    }

    /// Removes a record from its queue, and returns it with its group; `None` if a walk has
    /// isolated it. The caller holds the lock of its segment.
    pub(crate) fn del(&self, record: &Record<K, V>) -> Option<(Handle<K, V>, Memcg)> {
        self.lists(record.queue()).del_with_memcg(record)
    }

    /// Returns the group on whose list a record is; `None` if a walk has isolated it.
    pub(crate) fn owner(&self, record: &Record<K, V>) -> Option<Memcg> {
        self.lists(record.queue()).memcg_of(record)
    }

    /// Returns whether this group is the [`owner`](Self::owner) of a record.
    pub(crate) fn is_owner(&self, memcg: &Memcg, record: &Record<K, V>, guard: &Guard) -> bool {
        self.lists(record.queue()).is_on_list_of(record, memcg, guard)
    }

    pub(crate) fn count(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let (probation, main) = self.counts(memcg, node);
        probation + main
    }

    /// Returns the numbers of records of a group on a node, on probation and in main.
    fn counts(&self, memcg: &Memcg, node: NodeId) -> (u64, u64) {
        let guard = pin();
        (self.probation.count_one_pinned(memcg, node, &guard), self.main.count_one_pinned(memcg, node, &guard))
    }

    /// Returns the sums of [`counts`](Self::counts) over all nodes. O(nodes).
    fn counts_on_all(&self, memcg: &Memcg) -> (u64, u64) {
        (0..self.nodes).fold((0, 0), |(probation, main), node| {
            let of_node = self.counts(memcg, NodeId::new(node.into()));
            (probation + of_node.0, main + of_node.1)
        })
    }

    /// Walks up to `nr` records of a group on a node, oldest first, and isolates the victims and
    /// the records that change queues. `is_expired` is called under the list's lock.
    ///
    /// The walk is over the queue that is due for eviction. If `swapped`, it is over the other
    /// queue, unless that one is empty.
    pub(crate) fn isolate_batch(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr: u64,
        is_expired: impl Fn(&Record<K, V>) -> bool,
        swapped: bool,
    ) -> EvictionBatch<K, V> {
        match self.eviction {
            Eviction::Adaptive | Eviction::S3Fifo => {
                let (probation, main) = self.counts(memcg, node);
                let tenant = self.tenants.get(memcg);
                let probation_limit = self.probation_limit(tenant, probation + main);
                let over = probation.saturating_sub(probation_limit);
                let promote = match self.eviction {
                    Eviction::Adaptive if probation_limit <= FEW => PROMOTE_USES_OF_FEW,
                    _ => PROMOTE_USES,
                };
                let is_probation = match swapped {
                    false => over > 0 || main == 0,
                    true => (over == 0 || main == 0) && probation > 0,
                };
                let (met, evicted) = (Cell::new(0), Cell::new(0));
                let evict = || {
                    evicted.set(evicted.get() + 1);
                    Decision::Evict
                };
                let (queue, batch) = if is_probation {
                    let nr = nr.min(over.max(PROBATION_BATCH_MIN));
                    let decide = |uses: u8| {
                        met.set(met.get() + u64::from(uses));
                        if uses < promote {
                            evict()
                        } else {
                            Decision::Move
                        }
                    };
                    (Queue::Probation, self.walk(Queue::Probation, memcg, node, nr, is_expired, decide))
                } else {
                    let decide = |uses: u8| {
                        met.set(met.get() + u64::from(uses.min(1)));
                        uses.checked_sub(1).map_or_else(evict, Decision::Rotate)
                    };
                    (Queue::Main, self.walk(Queue::Main, memcg, node, nr, is_expired, decide))
                };
                // The tenant's clock counts the evictions on all nodes.
                let (probation, main) = match self.nodes {
                    1 => (probation, main),
                    _ => self.counts_on_all(memcg),
                };
                if let (Eviction::Adaptive, Some(tenant)) = (self.eviction, tenant) {
                    let (visited, evicted, uses) = (batch.scanned, evicted.get(), met.get());
                    tenant.note_walk(QueueWalk { queue, visited, evicted, uses, probation, main });
                }
                EvictionBatch { entries: probation + main, ..batch }
            }
            Eviction::SecondChance => self.walk(Queue::Main, memcg, node, nr, is_expired, |uses| match uses {
                0 => Decision::Evict,
                _ => Decision::Rotate(0),
            }),
            Eviction::Lru => self.walk(Queue::Main, memcg, node, nr, is_expired, |_| Decision::Evict),
            Eviction::Sieve => {
                let mut swapped = swapped;
                let ahead = self.ahead_of_hand(memcg, node);
                if self.lists(ahead).count_one(memcg, node) == 0 {
                    match self.tenants.of(memcg) {
                        Some(tenant) => tenant.next_lap(node, ahead == Queue::Main),
                        // Without memory for a tenant, the hand stays.
                        None => swapped = true,
                    }
                }
                let ahead = self.ahead_of_hand(memcg, node);
                let passed = ahead.other();
                let queue = if swapped && self.lists(passed).count_one(memcg, node) > 0 { passed } else { ahead };
                self.walk(queue, memcg, node, nr, is_expired, |uses| match uses {
                    0 => Decision::Evict,
                    _ => Decision::Move,
                })
            }
        }
    }

    /// Walks up to `nr` records of a queue, oldest first, and applies `decide` to their use counts.
    /// Expired records are evicted whatever the decision, and so are the first [`FORCED`] records
    /// if the last walks have spared many.
    fn walk(
        &self,
        queue: Queue,
        memcg: &Memcg,
        node: NodeId,
        nr: u64,
        is_expired: impl Fn(&Record<K, V>) -> bool,
        decide: impl Fn(u8) -> Decision,
    ) -> EvictionBatch<K, V> {
        let mut left = nr;
        let tenant = self.tenants.get(memcg);
        let mut forced = if tenant.is_some_and(Tenant::has_spared_many) { FORCED } else { 0 };
        let pick = |record: &Record<K, V>| match decide(record.uses()) {
            _ if forced > 0 => {
                forced -= 1;
                Pick::First
            }
            Decision::Rotate(uses) if !is_expired(record) => {
                record.set_uses(uses);
                Pick::Rotate
            }
            Decision::Move if !is_expired(record) => {
                record.set_uses(0);
                Pick::Second
            }
            _ => Pick::First,
        };
        let [old, moved] = self.lists(queue).isolate_oldest(memcg, node, &mut left, pick);
        tenant.inspect(|tenant| tenant.note_spared(nr - left, !old.is_empty()));
        EvictionBatch { old, moved, to: queue.other(), entries: 0, scanned: nr - left }
    }

    /// Isolates up to `nr` records of a queue, oldest first, regardless of their uses and
    /// deadlines.
    pub(crate) fn take(&self, queue: Queue, memcg: &Memcg, node: NodeId, nr: u64) -> Isolated<Record<K, V>> {
        let mut left = nr;
        let [taken, _] = self.lists(queue).isolate_oldest(memcg, node, &mut left, |_| Pick::First);
        taken
    }

    /// Returns a recorder of ghosts for evictions from `memcg`, which may hold `bound` bytes;
    /// `None` if there is no memory for the tenant. Fits the ghost table to its present bound
    /// first. `now` is set once the eviction has met a deadline.
    pub(crate) fn ghost_recorder<'q>(
        &'q self,
        memcg: &Memcg,
        ghosts: &'q Ghosts,
        bound: u64,
        now: &'q OnceCell<Now>,
    ) -> Option<GhostRecorder<'q>> {
        ghosts.fit();
        let tenant = self.tenants.of(memcg)?;
        Some(GhostRecorder {
            tenant,
            ghosts,
            salt: self.salt(memcg, tenant),
            has_queues: self.has_queues(),
            is_scanning: tenant.is_scanning(),
            now,
            reach: bound / self.mean_charge_of(tenant).max(1),
        })
    }

    /// Returns the size of this struct, the directory of tenants and the lists, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        // Each list's footprint includes its own struct.
        let own = size_of::<Self>() - size_of_val(&self.probation) - size_of_val(&self.main);
        own + self.tenants.footprint() + (self.probation.footprint().get() + self.main.footprint().get()) as usize
    }

    /// Makes all ghosts of this cache unreachable, through a new salt.
    pub(crate) fn forget_ghosts(&self) {
        self.generation.store(next_generation(), Ordering::Relaxed);
    }

    /// Returns the number of records on lists of a node, for tests.
    #[cfg(test)]
    pub(crate) fn count_node(&self, node: NodeId) -> u64 {
        self.probation.count_node(node) + self.main.count_node(node)
    }

    /// Checks the structure of both queues, for tests.
    ///
    /// # Panics
    ///
    /// Panics if an invariant of a list does not hold.
    #[cfg(test)]
    pub(crate) fn assert_valid(&self) {
        self.probation.assert_valid();
        self.main.assert_valid();
    }
}
