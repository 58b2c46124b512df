//! In what order entries are let go.
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
//!     missed soon after: into main, and          missed soon after: into main, and
//!     probation's share grows                    probation's share shrinks
//! ```
//!
//! New entries are on probation, where most that are read once only leave again without having cost a used one its place (the S3-FIFO
//! queues, with a share that adapts as in ARC). A read only counts up, and moves nothing. A new value for a key that is there goes behind the
//! queue where the old one was, with the reads that it had; the write itself earns nothing. Each tenant has queues, a share, and a clock of
//! its own ([`tenant`](super::tenant)): what one reads does not change what another keeps.
//!
//! While memory is still being filled, what finds probation full goes to main at once. Later it would have to come back to get there; and
//! a loop that is longer than the cache finds what came first still there, where a queue would have let go of all of it.
//!
//! The other orders are fixed, and use the same lists in their own way ([`Eviction`]): with [`S3Fifo`](Eviction::S3Fifo) the line between the
//! queues stays; with [`SecondChance`](Eviction::SecondChance) and [`Lru`](Eviction::Lru) everything is in main; with
//! [`Sieve`](Eviction::Sieve) the two are what its hand has yet to pass, and what it has passed.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::Arc;

use lowwater_base::hash::GOLDEN_RATIO;
use lowwater_lru_core::{AddError, ByteSize, Isolated, ListLru, Memcg, NodeId, Occupancy};
use lowwater_shrinker::{Miss, MissReporter, PairHint};

use super::batch::EvictionBatch;
use super::cost::RelativeCost;
use super::eviction::Eviction;
use super::ghost_recorder::GhostRecorder;
use super::queue::Queue;
use super::tenant::Tenant;
use super::tenants::Tenants;
use crate::cache::expiry::deadline::Now;
use crate::cache::record::{Handle, Record};
use crate::runtime::{Ghosts, KnownGhosts};

/// Reads on probation that make an entry worth keeping. In a probation of a handful one is enough: none stays there for long.
const PROMOTE_USES: u8 = 2;
const PROMOTE_USES_OF_FEW: u8 = 1;
const FEW: u64 = 16;
/// Records of probation in one batch, at least, so that not every record needs a batch of its own.
const PROBATION_BATCH_MIN: u64 = 8;
/// Entries of a group on a node that may be on probation whatever the share: a tenant with three entries shall not lose the one
/// that was just written because a tenth of three is none.
const PROBATION_MIN: u64 = 4;

/// See the module.
pub(crate) struct Queues<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    probation: ListLru<Record<K, V>>,
    main: ListLru<Record<K, V>>,
    tenants: Tenants,
    /// Reports ghost hits to the registry.
    reporter: MissReporter,
    /// How many entries the cache held, when last somebody counted: every time some are evicted.
    len: AtomicU32,
    /// The mean charge of an entry then, in bytes; 0 before.
    mean_charge: AtomicU32,
    /// Ghosts of other generations are not met.
    generation: AtomicU16,
    eviction: Eviction,
}

/// What a walk does with a record.
enum Decision {
    Evict,
    /// As the youngest of its queue, with so many uses left.
    Rotate(u8),
    /// To the other queue.
    Move,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Queues<K, V> {
    pub(crate) fn new(occupancy: &Arc<dyn Occupancy>, reporter: MissReporter, eviction: Eviction) -> Self {
        Self {
            probation: ListLru::with_occupancy(Arc::clone(occupancy)),
            main: ListLru::with_occupancy(Arc::clone(occupancy)),
            tenants: Tenants::default(),
            reporter,
            len: AtomicU32::new(0),
            mean_charge: AtomicU32::new(0),
            generation: AtomicU16::new(0),
            eviction,
        }
    }

    fn lists(&self, queue: Queue) -> &ListLru<Record<K, V>> {
        match queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        }
    }

    /// Tells whether the order has two queues, and learns from ghosts which of them is too short.
    pub(crate) fn has_queues(&self) -> bool {
        matches!(self.eviction, Eviction::Adaptive | Eviction::S3Fifo)
    }

    /// The tenant of `memcg`, if one was made.
    pub(crate) fn find_tenant(&self, memcg: &Memcg) -> Option<&Tenant> {
        self.tenants.get(memcg)
    }

    /// Resets the tenant of a group that ends.
    pub(crate) fn forget_tenant(&self, memcg: &Memcg) {
        self.tenants.forget(memcg);
    }

    /// What the hashes of a tenant's keys are mixed with in the ghost table.
    fn salt(&self, memcg: &Memcg) -> u64 {
        let pair = u64::from(self.reporter.id().get()) << 32 | u64::from(memcg.id().get());
        // Relaxed: as the ghosts themselves.
        let generation = u64::from(self.generation.load(Ordering::Relaxed));
        (pair ^ generation << 48).wrapping_add(1).wrapping_mul(GOLDEN_RATIO).rotate_left(32)
    }

    /// Prefetches the ghost of this hash, if the tenant can have one.
    #[inline]
    pub(crate) fn prefetch_ghost(&self, hash: u64, memcg: &Memcg, ghosts: KnownGhosts<'_>) {
        if self.tenants.get(memcg).is_some_and(|tenant| tenant.ghost_weight(hash).is_some()) {
            ghosts.prefetch(hash ^ self.salt(memcg));
        }
    }

    /// Takes the ghost of this hash, if there is one, and reports it. Returns whether the ghost is so young that a tenant a
    /// little larger would have kept the record. A tenant that was never made has no ghosts.
    #[inline]
    pub(crate) fn ghost_hit(
        &self,
        hash: u64,
        memcg: &Memcg,
        tenant: Option<&Tenant>,
        cost: RelativeCost,
        ghosts: KnownGhosts<'_>,
    ) -> bool {
        let Some(tenant) = tenant else { return false };
        tenant.note_insert();
        let Some(weight) = tenant.ghost_weight(hash) else { return false };
        let Some(ghost) = ghosts.take(hash ^ self.salt(memcg)) else { return false };
        let hit = tenant.ghost_hit(ghost, weight, self.eviction == Eviction::Adaptive);
        let distance = ByteSize::new(hit.evictions.saturating_mul(self.mean_charge_of(tenant)));
        self.reporter.miss_at(&tenant.pair, memcg, Miss::at(distance).cost(cost.sixteenths()).weight(weight));
        // A fixed line learns nothing from what left main.
        self.has_queues() && hit.is_near && !(self.eviction == Eviction::S3Fifo && ghost.is_main)
    }

    /// Where the registry has the pair of this cache and a group, if the group holds something.
    pub(crate) fn pair<'t>(&self, memcg: &Memcg, tenant: &'t Tenant) -> Option<&'t PairHint> {
        self.reporter.is_known(&tenant.pair, memcg).then_some(&tenant.pair)
    }

    /// Reports what a miss costs on average.
    pub(crate) fn note_mean_cost(&self, cost: RelativeCost) {
        self.reporter.set_mean_cost(cost.sixteenths());
    }

    /// The mean charge of an entry of a tenant; of the cache's, before the tenant let one go.
    fn mean_charge_of(&self, tenant: &Tenant) -> u64 {
        tenant.mean_charge().unwrap_or_else(|| self.mean_charge())
    }

    /// The bytes of so many entries of a group, at the mean of what it let go lately.
    pub(crate) fn weigh(&self, memcg: &Memcg, entries: u64) -> ByteSize {
        let mean = self.tenants.get(memcg).map_or_else(|| self.mean_charge(), |tenant| self.mean_charge_of(tenant));
        ByteSize::new(entries.saturating_mul(mean))
    }

    /// The mean charge of an entry, when they were last counted; 0 before.
    pub(crate) fn mean_charge(&self) -> u64 {
        self.mean_charge.load(Ordering::Relaxed).into()
    }

    /// The queue of a new record of `memcg`.
    pub(crate) fn initial_queue(&self, memcg: &Memcg, tenant: Option<&Tenant>, node: NodeId) -> Queue {
        match self.eviction {
            Eviction::Adaptive => {
                if tenant.is_some_and(|tenant| !tenant.is_filling()) {
                    return Queue::Probation;
                }
                let probation = self.probation.count_one(memcg, node);
                match probation >= self.probation_limit(tenant, probation + self.main.count_one(memcg, node)) {
                    true => Queue::Main,
                    false => Queue::Probation,
                }
            }
            Eviction::S3Fifo => Queue::Probation,
            Eviction::Sieve => self.ahead_of_hand(memcg, node),
            Eviction::SecondChance | Eviction::Lru => Queue::Main,
        }
    }

    /// Tells whether a use moves a record on its list.
    pub(crate) fn is_lru(&self) -> bool {
        self.eviction == Eviction::Lru
    }

    /// With [`Eviction::Lru`], moves a used record behind all others.
    pub(crate) fn promote(&self, record: &Record<K, V>) {
        if self.is_lru() {
            self.main.promote(record);
        }
    }

    /// The queue that SIEVE's hand has yet to pass, of a tenant on a node.
    fn ahead_of_hand(&self, memcg: &Memcg, node: NodeId) -> Queue {
        match self.tenants.get(memcg).is_some_and(|tenant| tenant.is_lap_odd(node)) {
            false => Queue::Probation,
            true => Queue::Main,
        }
    }

    /// The number of records that may be on probation, of a tenant with `entries` records on a node.
    fn probation_limit(&self, tenant: Option<&Tenant>, entries: u64) -> u64 {
        tenant
            .map_or_else(|| Tenant::default().probation_limit(entries), |tenant| tenant.probation_limit(entries))
            .max(PROBATION_MIN)
    }

    /// An entry that is on no list yet takes the place of another: what reads have earned the key goes over to it. A write earns nothing.
    pub(crate) fn inherit(&self, new: &Record<K, V>, old: &Record<K, V>) {
        let is_main = self.has_queues() && old.queue() == Queue::Main;
        new.inherit(old, if is_main { Queue::Main } else { new.queue() });
    }

    /// Notes the number of records in the cache, and what they are charged.
    pub(crate) fn note_len(&self, len: usize, bytes: ByteSize, ghosts: &Ghosts) {
        if let Some(mean) = bytes.get().checked_div(len as u64) {
            self.mean_charge.store(u32::try_from(mean).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        // Relaxed: a number that bounds the ghosts; the swap, so that each change is told once.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        ghosts.note_entries(self.len.swap(len, Ordering::Relaxed) as usize, len as usize);
    }

    /// Makes the list to which [`add`](Self::add) will add, so that this allocates nothing. Asks for nothing where it holds something.
    pub(crate) fn prepare(&self, queue: Queue, memcg: &Memcg, node: NodeId) {
        if self.lists(queue).count_one(memcg, node) == 0 {
            // If there is no memory, `add` says so.
            let _made = self.lists(queue).prepare(memcg, node);
        }
    }

    /// Puts an entry on its queue. Under its segment's lock.
    pub(crate) fn add(&self, record: Handle<K, V>, memcg: &Memcg, node: NodeId) -> Result<(), AddError<Handle<K, V>>> {
        self.lists(record.queue()).add(record, memcg, node)
    }

    /// Puts an entry in the place of another, as that one is: with its reads, its queue, its time. Comes back if a walk has the other. Under
    /// their segment's lock.
    pub(crate) fn replace(&self, old: &Record<K, V>, new: Handle<K, V>) -> Result<Handle<K, V>, Handle<K, V>> {
        new.inherit(old, old.queue());
        new.set_deadline(old.deadline());
        let old = self.lists(old.queue()).replace(old, new)?;
        old.set_moved();
        Ok(old)
    }

    /// Takes an entry off its queue, and says whose it was; none if a walk has it. Under its segment's lock.
    pub(crate) fn del(&self, record: &Record<K, V>) -> Option<(Handle<K, V>, Memcg)> {
        self.lists(record.queue()).del_with_memcg(record)
    }

    /// On whose list an entry is; none if a walk has it.
    pub(crate) fn owner(&self, record: &Record<K, V>) -> Option<Memcg> {
        self.lists(record.queue()).memcg_of(record)
    }

    pub(crate) fn count(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.probation.count_one(memcg, node) + self.main.count_one(memcg, node)
    }

    /// Walks up to `nr` records of a group on a node, of the queue that is to be evicted from next; or of the
    /// other queue, if the queues are to be `swapped`, and the other one has any.
    pub(crate) fn isolate_batch(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr: u64,
        now: Now,
        swapped: bool,
    ) -> EvictionBatch<K, V> {
        match self.eviction {
            Eviction::Adaptive | Eviction::S3Fifo => {
                let probation = self.probation.count_one(memcg, node);
                let main = self.main.count_one(memcg, node);
                let probation_limit = self.probation_limit(self.tenants.get(memcg), probation + main);
                let over = probation.saturating_sub(probation_limit);
                let promote = match self.eviction {
                    Eviction::Adaptive if probation_limit <= FEW => PROMOTE_USES_OF_FEW,
                    _ => PROMOTE_USES,
                };
                let is_probation = match swapped {
                    false => over > 0 || main == 0,
                    true => (over == 0 || main == 0) && probation > 0,
                };
                let batch = if is_probation {
                    let nr = nr.min(over.max(PROBATION_BATCH_MIN));
                    self.walk(Queue::Probation, memcg, node, nr, now, |uses| match uses < promote {
                        true => Decision::Evict,
                        false => Decision::Move,
                    })
                } else {
                    self.walk(Queue::Main, memcg, node, nr, now, |uses| {
                        uses.checked_sub(1).map_or(Decision::Evict, Decision::Rotate)
                    })
                };
                EvictionBatch { entries: probation + main, ..batch }
            }
            Eviction::SecondChance => self.walk(Queue::Main, memcg, node, nr, now, |uses| match uses {
                0 => Decision::Evict,
                _ => Decision::Rotate(0),
            }),
            Eviction::Lru => self.walk(Queue::Main, memcg, node, nr, now, |_| Decision::Evict),
            Eviction::Sieve => {
                if self.lists(self.ahead_of_hand(memcg, node)).count_one(memcg, node) == 0 {
                    self.tenants.of(memcg).next_lap(node);
                }
                let ahead = self.ahead_of_hand(memcg, node);
                let passed = ahead.other();
                let queue = if swapped && self.lists(passed).count_one(memcg, node) > 0 { passed } else { ahead };
                self.walk(queue, memcg, node, nr, now, |uses| match uses {
                    0 => Decision::Evict,
                    _ => Decision::Move,
                })
            }
        }
    }

    /// Looks at up to `nr` entries of a queue, the oldest first. What has expired goes.
    fn walk(
        &self,
        queue: Queue,
        memcg: &Memcg,
        node: NodeId,
        nr: u64,
        now: Now,
        decide: impl Fn(u8) -> Decision,
    ) -> EvictionBatch<K, V> {
        let (mut old, mut moved) = (Isolated::new(), Isolated::new());
        let mut left = nr;
        self.lists(queue).walk_one(memcg, node, &mut left, |it| {
            let record = it.item();
            match decide(record.uses()) {
                Decision::Rotate(uses) if !record.deadline().is_past(now) => {
                    record.set_uses(uses);
                    it.rotate()
                }
                Decision::Move if !record.deadline().is_past(now) => {
                    record.set_uses(0);
                    it.isolate(&mut moved)
                }
                _ => it.isolate(&mut old),
            }
        });
        EvictionBatch { old, moved, to: queue.other(), entries: 0, scanned: nr - left }
    }

    /// Takes up to `nr` entries off a queue, whatever they are.
    pub(crate) fn take(&self, queue: Queue, memcg: &Memcg, node: NodeId, nr: u64) -> Isolated<Record<K, V>> {
        let (mut taken, mut left) = (Isolated::new(), nr);
        self.lists(queue).walk_one(memcg, node, &mut left, |it| it.isolate(&mut taken));
        taken
    }

    /// The recorder of ghosts for evictions from `memcg`, under a budget of so many bytes.
    pub(crate) fn ghost_recorder<'q>(&'q self, memcg: &Memcg, ghosts: &'q Ghosts, budget: u64) -> GhostRecorder<'q> {
        ghosts.fit();
        let tenant = self.tenants.of(memcg);
        GhostRecorder {
            tenant,
            ghosts,
            salt: self.salt(memcg),
            has_queues: self.has_queues(),
            reach: budget / self.mean_charge_of(tenant).max(1),
        }
    }

    /// Bytes of this, of what is known of tenants, and of the lists.
    pub(crate) fn footprint(&self) -> usize {
        // The lists count themselves.
        let own = size_of::<Self>() - size_of_val(&self.probation) - size_of_val(&self.main);
        own + self.tenants.footprint() + (self.probation.footprint().get() + self.main.footprint().get()) as usize
    }

    /// Forgets all ghosts of this cache.
    pub(crate) fn forget_ghosts(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// For tests: entries on lists of a node.
    #[cfg(test)]
    pub(crate) fn count_node(&self, node: NodeId) -> u64 {
        self.probation.count_node(node) + self.main.count_node(node)
    }

    /// For tests: both queues hold together.
    #[cfg(test)]
    pub(crate) fn assert_valid(&self) {
        self.probation.assert_valid();
        self.main.assert_valid();
    }
}
