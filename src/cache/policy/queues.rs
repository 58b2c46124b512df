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

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{AddError, Bytes, Guard, Isolated, ListLru, Memcg, MemcgId, NodeId, Occupancy};

use super::eviction::Eviction;
use super::ghost::{Ghosts, Known};
use super::queue::Queue;
use super::tenant::Tenant;
use super::tenants::Tenants;
use crate::cache::expiry::deadline::Now;
use crate::cache::record::{Handle, Record};

/// Reads on probation that make an entry worth keeping. In a probation of a handful one is enough: none stays there for long.
const PROMOTE_USES: u8 = 2;
const PROMOTE_USES_OF_FEW: u8 = 1;
const FEW: u64 = 16;
/// Entries of probation in one turn, at least, so that not every entry needs a turn of its own.
const TURN_MIN: u64 = 8;
/// Entries of a group on a node that may be on probation whatever the share: a tenant with three entries shall not lose the one
/// that was just written because a tenth of three is none.
const PROBATION_MIN: u64 = 4;

/// See the module.
pub(crate) struct Queues<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    probation: ListLru<Record<K, V>>,
    main: ListLru<Record<K, V>>,
    ghosts: Ghosts,
    tenants: Tenants,
    /// How many entries the cache held, when last somebody counted: every time some are evicted.
    len: AtomicUsize,
    /// One who owes much: one more than its number, or [`NOBODY`].
    debtor: AtomicU32,
    eviction: Eviction,
}

const NOBODY: u32 = 0;

/// What becomes of an entry that was looked at.
enum Fate {
    Goes,
    /// As the youngest of its queue, with so many uses left.
    Stays(u8),
    /// To the other queue.
    Moves,
}

/// What it takes to remember the keys that a tenant lets go.
pub(crate) struct Remembering<'q> {
    tenant: &'q Tenant,
    ghosts: &'q Ghosts,
    eviction: Eviction,
}

impl Remembering<'_> {
    /// Says that a key of this hash will be remembered soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        self.ghosts.known(guard).prefetch(hash);
    }

    /// Remembers the key of this hash, which `queue` let go for its memory when its tenant had so many entries.
    pub(crate) fn remember(&self, hash: u64, queue: Queue, entries: u64, guard: &Guard) {
        // A fixed line learns nothing from what main let go.
        if self.eviction == Eviction::Adaptive || queue == Queue::Probation {
            if let Some(ghost) = self.tenant.let_go(queue, entries) {
                self.ghosts.known(guard).remember(hash, ghost);
            }
        }
    }
}

/// What one turn of letting go came to.
pub(crate) struct Turn<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Off their list, to be taken out of the index and freed.
    pub(crate) old: Isolated<Record<K, V>>,
    /// Off their list, to be put on the other if they are still in the index.
    pub(crate) moved: Isolated<Record<K, V>>,
    /// ... which is this one.
    pub(crate) to: Queue,
    /// How many the group had on the node before, where its order remembers what left.
    pub(crate) entries: u64,
    /// How many were looked at.
    pub(crate) scanned: u64,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Queues<K, V> {
    pub(crate) fn new(occupancy: &Arc<dyn Occupancy>, eviction: Eviction) -> Self {
        Self {
            probation: ListLru::with_occupancy(Arc::clone(occupancy)),
            main: ListLru::with_occupancy(Arc::clone(occupancy)),
            ghosts: Ghosts::default(),
            tenants: Tenants::default(),
            len: AtomicUsize::new(0),
            debtor: AtomicU32::new(NOBODY),
            eviction,
        }
    }

    fn lists(&self, queue: Queue) -> &ListLru<Record<K, V>> {
        match queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        }
    }

    /// Is what was let go remembered? Only then can be told who would use more memory.
    pub(crate) fn remembers(&self) -> bool {
        matches!(self.eviction, Eviction::Adaptive | Eviction::S3Fifo)
    }

    /// What is known of `memcg`.
    pub(crate) fn tenant(&self, memcg: &Memcg) -> &Tenant {
        self.tenants.of(memcg)
    }

    /// What is known of `memcg`, if anything can be.
    pub(crate) fn tenant_if_known(&self, memcg: &Memcg) -> Option<&Tenant> {
        self.tenants.get(memcg)
    }

    /// A group's end has come.
    pub(crate) fn forget_tenant(&self, memcg: &Memcg) {
        self.tenants.forget(memcg);
    }

    /// The keys that left; none where they are not remembered.
    #[inline]
    pub(crate) fn known<'g>(&'g self, guard: &'g Guard) -> Known<'g> {
        self.ghosts.known(guard)
    }

    /// Did this tenant let go of the key of this hash, so lately that it would have been kept with a little more memory? Then that is
    /// learnt, and the key forgotten. Of whom nothing is known has let nothing go.
    #[inline]
    pub(crate) fn came_back(&self, hash: u64, tenant: Option<&Tenant>, guard: &Guard) -> bool {
        let Some(tenant) = tenant else { return false };
        let ghost = self.known(guard).take(hash);
        ghost.is_some_and(|ghost| tenant.came_back(ghost, self.eviction == Eviction::Adaptive))
    }

    /// A new entry of so many bytes was put in for `memcg`, of which this is known; if its key came back, by that so much was earned.
    #[inline]
    pub(crate) fn settle(&self, memcg: &Memcg, tenant: &Tenant, bytes: Bytes, earned: Bytes) {
        if !self.remembers() {
            return;
        }
        tenant.deficit.insert(bytes, earned);
        let number = memcg.id().get().wrapping_add(1);
        // Relaxed, here and in `debtor`: a hint.
        if tenant.deficit.is_high(bytes) && self.debtor.load(Ordering::Relaxed) != number {
            self.debtor.store(number, Ordering::Relaxed);
        }
    }

    /// An entry of so many bytes ended that `memcg` took out itself, or put another in the place of, or that had expired.
    pub(crate) fn gave_back(&self, memcg: &Memcg, bytes: Bytes) {
        if let Some(tenant) = self.tenants.get(memcg).filter(|_| self.remembers()) {
            tenant.deficit.credit(bytes, bytes);
        }
    }

    /// One who owed much lately, if somebody did since this was last asked.
    pub(crate) fn debtor(&self) -> Option<MemcgId> {
        let debtor = self.debtor.swap(NOBODY, Ordering::Relaxed);
        (debtor != NOBODY).then(|| MemcgId::new(debtor - 1))
    }

    /// The queue for an entry of `memcg` that is new, of which so much is known.
    pub(crate) fn choose(&self, memcg: &Memcg, tenant: Option<&Tenant>, node: NodeId) -> Queue {
        match self.eviction {
            Eviction::Adaptive => {
                if tenant.is_some_and(|tenant| !tenant.is_filling()) {
                    return Queue::Probation;
                }
                let probation = self.probation.count_one(memcg, node);
                match probation >= self.allowed(tenant, probation + self.main.count_one(memcg, node)) {
                    true => Queue::Main,
                    false => Queue::Probation,
                }
            }
            Eviction::S3Fifo => Queue::Probation,
            Eviction::Sieve => self.ahead_of_the_hand(memcg, node),
            Eviction::SecondChance | Eviction::Lru => Queue::Main,
        }
    }

    /// Does a use move an entry?
    pub(crate) fn are_by_use(&self) -> bool {
        self.eviction == Eviction::Lru
    }

    /// Where uses move entries, this one goes behind all others.
    pub(crate) fn used_last(&self, record: &Record<K, V>) {
        if self.are_by_use() {
            self.main.touch(record);
        }
    }

    /// What SIEVE's hand has yet to pass of a tenant's entries on a node.
    fn ahead_of_the_hand(&self, memcg: &Memcg, node: NodeId) -> Queue {
        match self.tenants.get(memcg).is_some_and(|tenant| tenant.is_turned(node)) {
            false => Queue::Probation,
            true => Queue::Main,
        }
    }

    /// Of so many entries of a tenant on a node, those that may be on probation.
    fn allowed(&self, tenant: Option<&Tenant>, entries: u64) -> u64 {
        tenant.map_or_else(|| Tenant::default().share_of(entries), |tenant| tenant.share_of(entries)).max(PROBATION_MIN)
    }

    /// An entry that is on no list yet takes the place of another: what reads have earned the key goes over to it. A write earns nothing.
    pub(crate) fn inherit(&self, new: &Record<K, V>, old: &Record<K, V>) {
        let is_main = self.remembers() && old.queue() == Queue::Main;
        new.inherit(old, if is_main { Queue::Main } else { new.queue() });
    }

    /// Tells how many entries the cache holds.
    pub(crate) fn count_is(&self, len: usize) {
        // Relaxed: a number that bounds ages and steps.
        self.len.store(len, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: as in `count_is`.
        self.len.load(Ordering::Relaxed)
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
        new.expire_at(old.expires());
        let old = self.lists(old.queue()).replace(old, new)?;
        old.set_moved();
        Ok(old)
    }

    /// Takes an entry off its queue, and says whose it was; none if a walk has it. Under its segment's lock.
    pub(crate) fn del(&self, record: &Record<K, V>) -> Option<(Handle<K, V>, Memcg)> {
        self.lists(record.queue()).del_whose(record)
    }

    /// On whose list an entry is; none if a walk has it.
    pub(crate) fn whose(&self, record: &Record<K, V>) -> Option<Memcg> {
        self.lists(record.queue()).whose(record)
    }

    pub(crate) fn count(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.probation.count_one(memcg, node) + self.main.count_one(memcg, node)
    }

    /// Looks at up to `nr` entries of a group on a node, of the queue whose turn it is; or of the
    /// other, if they are to be `swapped`, and it has any.
    pub(crate) fn turn(&self, memcg: &Memcg, node: NodeId, nr: u64, now: Now, swapped: bool) -> Turn<K, V> {
        match self.eviction {
            Eviction::Adaptive | Eviction::S3Fifo => {
                let probation = self.probation.count_one(memcg, node);
                let main = self.main.count_one(memcg, node);
                let allowed = self.allowed(self.tenants.get(memcg), probation + main);
                let over = probation.saturating_sub(allowed);
                let promote = match self.eviction {
                    Eviction::Adaptive if allowed <= FEW => PROMOTE_USES_OF_FEW,
                    _ => PROMOTE_USES,
                };
                let is_probation = match swapped {
                    false => over > 0 || main == 0,
                    true => (over == 0 || main == 0) && probation > 0,
                };
                let turn = if is_probation {
                    let nr = nr.min(over.max(TURN_MIN));
                    self.walk(Queue::Probation, memcg, node, nr, now, |uses| match uses < promote {
                        true => Fate::Goes,
                        false => Fate::Moves,
                    })
                } else {
                    self.walk(Queue::Main, memcg, node, nr, now, |uses| {
                        uses.checked_sub(1).map_or(Fate::Goes, Fate::Stays)
                    })
                };
                Turn { entries: probation + main, ..turn }
            }
            Eviction::SecondChance => self.walk(Queue::Main, memcg, node, nr, now, |uses| match uses {
                0 => Fate::Goes,
                _ => Fate::Stays(0),
            }),
            Eviction::Lru => self.walk(Queue::Main, memcg, node, nr, now, |_| Fate::Goes),
            Eviction::Sieve => {
                if self.lists(self.ahead_of_the_hand(memcg, node)).count_one(memcg, node) == 0 {
                    self.tenants.of(memcg).turn(node);
                }
                let ahead = self.ahead_of_the_hand(memcg, node);
                let passed = ahead.other();
                let queue = if swapped && self.lists(passed).count_one(memcg, node) > 0 { passed } else { ahead };
                self.walk(queue, memcg, node, nr, now, |uses| match uses {
                    0 => Fate::Goes,
                    _ => Fate::Moves,
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
        fate: impl Fn(u8) -> Fate,
    ) -> Turn<K, V> {
        let (mut old, mut moved) = (Isolated::new(), Isolated::new());
        let mut left = nr;
        self.lists(queue).walk_one(memcg, node, &mut left, |it| {
            let record = it.item();
            match fate(record.uses()) {
                Fate::Stays(uses) if !record.expires().is_past(now) => {
                    record.pay_uses(uses);
                    it.rotate()
                }
                Fate::Moves if !record.expires().is_past(now) => {
                    record.pay_uses(0);
                    it.isolate(&mut moved)
                }
                _ => it.isolate(&mut old),
            }
        });
        Turn { old, moved, to: queue.other(), entries: 0, scanned: nr - left }
    }

    /// Takes up to `nr` entries off a queue, whatever they are.
    pub(crate) fn take(&self, queue: Queue, memcg: &Memcg, node: NodeId, nr: u64) -> Isolated<Record<K, V>> {
        let (mut taken, mut left) = (Isolated::new(), nr);
        self.lists(queue).walk_one(memcg, node, &mut left, |it| it.isolate(&mut taken));
        taken
    }

    /// To remember what `memcg` is about to let go; none where nothing is remembered.
    pub(crate) fn remembering(&self, memcg: &Memcg) -> Option<Remembering<'_>> {
        self.remembers().then(|| {
            self.ghosts.fit(self.len());
            Remembering { tenant: self.tenants.of(memcg), ghosts: &self.ghosts, eviction: self.eviction }
        })
    }

    /// Bytes of this, of ghosts, of what is known of tenants, and of the lists.
    pub(crate) fn footprint(&self) -> usize {
        // The lists count themselves.
        let own = size_of::<Self>() - size_of_val(&self.probation) - size_of_val(&self.main);
        own + self.ghosts.footprint()
            + self.tenants.footprint()
            + (self.probation.footprint().get() + self.main.footprint().get()) as usize
    }

    /// Forgets what left.
    pub(crate) fn forget(&self) {
        self.ghosts.forget();
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
