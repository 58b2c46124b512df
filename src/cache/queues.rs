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
//! queues, with a share that adapts as in ARC). A read only counts up, and moves nothing.
//!
//! With [`Eviction::SecondChance`] everything is in main, and one use is counted.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{AddError, Isolated, ListLru, Memcg, NodeId, Occupancy};

use super::entry::{Entry, Handle};
use super::ghost::Ghosts;
use super::time::Now;

/// The order in which entries are let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// A short queue for what is new, a long one for what was used, and a memory of what left: what is read once leaves first. The
    /// share of the short one follows the workload.
    #[default]
    Adaptive,
    /// One queue; what was used since it was last looked at goes round once more. Remembers nothing of what left.
    SecondChance,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Probation,
    Main,
}

/// Reads on probation that make an entry worth keeping.
const PROMOTE_USES: u8 = 2;
/// A share of everything, in fixed point.
const ALL: u32 = 1 << 20;
/// Probation's share: at first, at least, at most.
const SHARE_FIRST: u32 = ALL / 10;
const SHARE_MIN: u32 = ALL / 100;
const SHARE_MAX: u32 = ALL / 10 * 9;
/// Entries of probation in one turn, at least, so that not every entry needs a turn of its own.
const TURN_MIN: u64 = 8;
/// Entries of a group on a node that may be on probation whatever the share: a tenant with three entries shall not lose the one
/// that was just written because a tenth of three is none.
const PROBATION_MIN: u64 = 4;
/// How often the other queue's ghosts count, at most, when one of the fewer is met.
const WEIGHT_MAX: u64 = 10;

/// See the module.
pub(super) struct Queues<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    probation: ListLru<Entry<K, V>>,
    main: ListLru<Entry<K, V>>,
    ghosts: Ghosts,
    /// Of all entries of a group on a node, those that may be on probation, of [`ALL`].
    share: AtomicU32,
    /// Ghosts met, by queue; halved now and then.
    met: [AtomicU32; 2],
    /// How many entries the cache held, when last somebody counted: every time some are evicted.
    len: AtomicUsize,
    eviction: Eviction,
}

/// What one turn of letting go came to.
pub(super) struct Turn<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Off their list, to be taken out of the index and freed.
    pub(super) old: Isolated<Entry<K, V>>,
    /// Off probation, to be put in main if they are still in the index.
    pub(super) promoted: Isolated<Entry<K, V>>,
    /// How many were looked at.
    pub(super) scanned: u64,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Queues<K, V> {
    pub(super) fn new(occupancy: &Arc<dyn Occupancy>, eviction: Eviction) -> Self {
        Self {
            probation: ListLru::with_occupancy(Arc::clone(occupancy)),
            main: ListLru::with_occupancy(Arc::clone(occupancy)),
            ghosts: Ghosts::default(),
            share: AtomicU32::new(SHARE_FIRST),
            met: [AtomicU32::new(0), AtomicU32::new(0)],
            len: AtomicUsize::new(0),
            eviction,
        }
    }

    fn lists(&self, queue: Queue) -> &ListLru<Entry<K, V>> {
        match queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        }
    }

    /// Chooses the queue for an entry that is new, and learns from it if its key, of this hash, left not long ago.
    pub(super) fn admit(&self, hash: u64) -> Queue {
        if self.eviction == Eviction::SecondChance {
            return Queue::Main;
        }
        let len = self.len();
        match self.ghosts.take(hash, len) {
            Some(queue) => {
                self.learn(queue, len as u64);
                Queue::Main
            }
            None => Queue::Probation,
        }
    }

    /// Says that a key of this hash will be admitted or remembered soon.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if self.eviction != Eviction::SecondChance {
            self.ghosts.prefetch(hash);
        }
    }

    /// Tells how many entries the cache holds.
    pub(super) fn count_is(&self, len: usize) {
        // Relaxed: a number that bounds ages and steps.
        self.len.store(len, Ordering::Relaxed);
    }

    fn len(&self) -> usize {
        // Relaxed: as in `count_is`.
        self.len.load(Ordering::Relaxed)
    }

    /// A key was missed that `queue` let go: it should have been longer.
    fn learn(&self, queue: Queue, len: u64) {
        let other = match queue {
            Queue::Probation => Queue::Main,
            Queue::Main => Queue::Probation,
        };
        // Relaxed, all of these: tallies that make a guess better; a lost step is no harm.
        let mine = self.met[queue as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let theirs = self.met[other as usize].load(Ordering::Relaxed);
        if u64::from(mine) + u64::from(theirs) > len.max(64) {
            self.met[queue as usize].store(mine / 2, Ordering::Relaxed);
            self.met[other as usize].store(theirs / 2, Ordering::Relaxed);
        }
        let weight = u64::from(theirs / mine.max(1)).clamp(1, WEIGHT_MAX);
        let step = u32::try_from(u64::from(ALL) * weight / len.max(1)).unwrap_or(ALL);
        let share = self.share.load(Ordering::Relaxed);
        let share = match queue {
            Queue::Probation => share.saturating_add(step).min(SHARE_MAX),
            Queue::Main => share.saturating_sub(step).max(SHARE_MIN),
        };
        self.share.store(share, Ordering::Relaxed);
    }

    /// Makes the list to which [`add`](Self::add) will add, so that this allocates nothing. Asks for nothing where it holds something.
    pub(super) fn prepare(&self, queue: Queue, memcg: &Memcg, node: NodeId) {
        if self.lists(queue).count_one(memcg, node) == 0 {
            // If there is no memory, `add` says so.
            let _made = self.lists(queue).prepare(memcg, node);
        }
    }

    /// Puts an entry on its queue. Under its segment's lock.
    pub(super) fn add(&self, entry: Handle<K, V>, memcg: &Memcg, node: NodeId) -> Result<(), AddError<Handle<K, V>>> {
        self.lists(entry.queue()).add(entry, memcg, node)
    }

    /// Takes an entry off its queue, and says whose it was; none if a walk has it. Under its segment's lock.
    pub(super) fn del(&self, entry: &Entry<K, V>) -> Option<(Handle<K, V>, Memcg)> {
        self.lists(entry.queue()).del_whose(entry)
    }

    /// On whose list an entry is; none if a walk has it.
    pub(super) fn whose(&self, entry: &Entry<K, V>) -> Option<Memcg> {
        self.lists(entry.queue()).whose(entry)
    }

    pub(super) fn count(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.probation.count_one(memcg, node) + self.main.count_one(memcg, node)
    }

    /// Looks at up to `nr` entries of a group on a node, of the queue whose turn it is.
    pub(super) fn turn(&self, memcg: &Memcg, node: NodeId, nr: u64, now: Now) -> Turn<K, V> {
        let (mut old, mut promoted) = (Isolated::new(), Isolated::new());
        let probation = self.probation.count_one(memcg, node);
        let main = self.main.count_one(memcg, node);
        // Relaxed: a guess.
        let share = (probation + main) * u64::from(self.share.load(Ordering::Relaxed)) / u64::from(ALL);
        let allowed = share.max(PROBATION_MIN);
        let over = probation.saturating_sub(allowed);
        let mut left;
        let asked;
        if over > 0 || main == 0 {
            asked = nr.min(over.max(TURN_MIN));
            left = asked;
            self.probation.walk_one(memcg, node, &mut left, |it| {
                let entry = it.item();
                if !entry.expires().is_past(now) && entry.uses() >= PROMOTE_USES {
                    entry.pay_uses(0);
                    it.isolate(&mut promoted)
                } else {
                    it.isolate(&mut old)
                }
            });
        } else {
            asked = nr;
            left = asked;
            let counted = if self.eviction == Eviction::SecondChance { 1 } else { u8::MAX };
            self.main.walk_one(memcg, node, &mut left, |it| {
                let entry = it.item();
                let uses = entry.uses().min(counted);
                if !entry.expires().is_past(now) && uses > 0 {
                    entry.pay_uses(uses - 1);
                    it.rotate()
                } else {
                    it.isolate(&mut old)
                }
            });
        }
        Turn { old, promoted, scanned: asked - left }
    }

    /// Remembers the key of this hash, which `queue` let go for its memory.
    pub(super) fn remember(&self, hash: u64, queue: Queue) {
        if self.eviction != Eviction::SecondChance {
            self.ghosts.remember(hash, queue, self.len());
        }
    }

    /// Bytes of ghosts, and of the lists beyond their groups' own.
    pub(super) fn footprint(&self) -> usize {
        self.ghosts.footprint() + (self.probation.footprint().get() + self.main.footprint().get()) as usize
    }

    /// Forgets what left.
    pub(super) fn forget(&self) {
        self.ghosts.forget();
    }

    /// For tests: entries on lists of a node.
    #[cfg(test)]
    pub(super) fn count_node(&self, node: NodeId) -> u64 {
        self.probation.count_node(node) + self.main.count_node(node)
    }

    /// For tests: both queues hold together.
    #[cfg(test)]
    pub(super) fn assert_valid(&self) {
        self.probation.assert_valid();
        self.main.assert_valid();
    }
}
