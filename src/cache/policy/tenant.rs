//! What a cache has learnt of each tenant, by what came back after it was let go.
//!
//! 40 bytes for a tenant, in pages of 32 tenants with neighbouring ids. There is nothing until something was let go; then a page stays until
//! the cache is dropped. The directory of pages is itself made in parts, each twice as long as the one before, of 16 bytes a page: so what the
//! first word of a tenant costs hardly depends on its id. All of it are tallies that make a guess better: everything is Relaxed, a lost step is no harm, and nothing is read
//! through them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};

use lowwater_lru_core::NodeId;

use super::deficit::Deficit;
use super::ghost::{Ghost, TIMES};
use super::queue::Queue;

/// A share of everything, in fixed point.
const ALL: u32 = 1 << 20;
/// Probation's share of a tenant's entries: at first, at least, at most.
const SHARE_FIRST: u32 = ALL / 10;
const SHARE_MIN: u32 = ALL / 100;
const SHARE_MAX: u32 = ALL / 10 * 9;
/// A tenant with fewer entries is judged as if it had so many: a handful says nothing.
const SIZE_MIN: u64 = 64;
/// Of the entries let go lately, one in so many has to be wanted again, or the tenant is only passing through.
const EARNS_ONE_IN: u32 = 64;
/// So many let go are enough to judge by.
const JUDGED_BY: u32 = 64;
/// Tallies of what happened lately are halved at so many.
const LATELY_MAX: u32 = 256;
/// Of what a tenant lets go that only passes through, one in so many is remembered, in case that changes.
const PASSING_ONE_IN: u32 = 64;
/// A ghost of probation counts until so many times as many were let go as the tenant has entries.
const GHOST_TIMES: u64 = 3;
/// The clock's steps that one tick of a ghost's time is made of, at most: 2 to the power of this.
const SHIFT_MAX: u32 = 24;

/// One tenant. See the module.
#[derive(Default)]
pub(crate) struct Tenant {
    /// Entries let go so far, by queue: the clock that tells a ghost's age.
    let_go: [AtomicU32; 2],
    /// Probation's share, less [`SHARE_FIRST`], so that zero is a beginning.
    share: AtomicU32,
    /// Of those let go lately: how many, and how many were wanted again.
    lately: AtomicU32,
    wanted: AtomicU32,
    /// Entries that it had when it last let one go.
    entries: AtomicU32,
    pub(crate) deficit: Deficit,
    /// Steps of the clock in one tick, as a power of two.
    shift: AtomicU8,
    /// Was anything inserted since somebody last looked whether the tenant is idle?
    inserted: AtomicBool,
    /// With SIEVE, a bit for each node: main is what the hand has yet to pass there, and not probation.
    turned: AtomicU64,
}

impl Tenant {
    /// Of so many entries, those that may be on probation.
    pub(crate) fn share_of(&self, entries: u64) -> u64 {
        let share = self.share.load(Ordering::Relaxed).wrapping_add(SHARE_FIRST);
        entries * u64::from(share) / u64::from(ALL)
    }

    /// An entry was let go for its memory by `queue`, of a tenant that has `entries`. The ghost to be remembered, if one is.
    pub(crate) fn let_go(&self, queue: Queue, entries: u64) -> Option<Ghost> {
        let clock = bump(&self.let_go[queue as usize]);
        if bump(&self.lately) >= LATELY_MAX {
            halve(&self.lately);
            halve(&self.wanted);
        }
        self.entries.store(u32::try_from(entries).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.fit_clock(entries);
        (!self.is_scanning() || clock.is_multiple_of(PASSING_ONE_IN)).then(|| Ghost { queue, time: self.ticks(clock) })
    }

    /// A key is inserted that was let go: is that still news, for a tenant of this size? Then it learns from it, if it does.
    ///
    /// Probation's ghosts count until three times as many were let go as the tenant has: one that comes back by then would be kept by a
    /// cache four times as large, and was used twice in that time. Where the line is fixed, half as many again: S3-FIFO has no use for more.
    /// Main's count for a tenth, or where that is a handful, for a little more: of a hundred entries few are read in the time that it takes
    /// to go round once. Where the line between the two queues should be is told only by those near it: what came back within a tenth of the
    /// tenant's size.
    pub(crate) fn came_back(&self, ghost: Ghost, learns: bool) -> bool {
        let clock = self.let_go[ghost.queue as usize].load(Ordering::Relaxed);
        let age = u64::from(self.ticks(clock).wrapping_sub(ghost.time) % TIMES) << self.shift();
        let entries = u64::from(self.entries.load(Ordering::Relaxed)).max(SIZE_MIN);
        let near = entries / 10;
        let limit = match ghost.queue {
            Queue::Probation if learns => entries * GHOST_TIMES,
            Queue::Probation => entries + entries / 2,
            Queue::Main => near.max(SIZE_MIN),
        };
        if age > limit {
            return false;
        }
        // Of what passes through, only a part was remembered.
        let counts = if self.is_scanning() { PASSING_ONE_IN } else { 1 };
        self.wanted.store(self.wanted.load(Ordering::Relaxed).saturating_add(counts), Ordering::Relaxed);
        if learns && age <= near {
            self.learn(ghost.queue, entries);
        }
        true
    }

    /// `queue` should have been longer by one.
    fn learn(&self, queue: Queue, entries: u64) {
        let step = (u64::from(ALL) / entries) as u32;
        let share = self.share.load(Ordering::Relaxed).wrapping_add(SHARE_FIRST);
        let share = match queue {
            Queue::Probation => share.saturating_add(step).min(SHARE_MAX),
            Queue::Main => share.saturating_sub(step).max(SHARE_MIN),
        };
        self.share.store(share.wrapping_sub(SHARE_FIRST), Ordering::Relaxed);
    }

    /// Tells whether the tenant scans: next to no recent eviction was followed by a ghost hit, so more memory would earn the tenant nothing.
    pub(crate) fn is_scanning(&self) -> bool {
        let lately = self.lately.load(Ordering::Relaxed);
        lately >= JUDGED_BY && self.wanted.load(Ordering::Relaxed) * EARNS_ONE_IN < lately
    }

    /// Has nothing been let go yet? Then its memory is still being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.let_go.iter().all(|queue| queue.load(Ordering::Relaxed) == 0)
    }

    /// Notes an insert: the tenant is not idle.
    #[inline]
    pub(crate) fn note_insert(&self) {
        // Mostly the flag is set.
        if !self.inserted.load(Ordering::Relaxed) {
            self.inserted.store(true, Ordering::Relaxed);
        }
    }

    /// Begins a new observation for idleness. Returns whether the tenant was idle in the last one: nothing was inserted.
    pub(crate) fn take_idle(&self) -> bool {
        let idle = !self.inserted.load(Ordering::Relaxed);
        self.inserted.store(false, Ordering::Relaxed);
        idle
    }

    /// Has SIEVE's hand gone round an odd number of times? Nodes beyond 64 share bits, which costs a lap.
    pub(crate) fn is_turned(&self, node: NodeId) -> bool {
        self.turned.load(Ordering::Relaxed) >> (node.index() % 64) & 1 == 1
    }

    /// The hand begins again.
    pub(crate) fn turn(&self, node: NodeId) {
        self.turned.fetch_xor(1 << (node.index() % 64), Ordering::Relaxed);
    }

    /// Makes ticks coarse enough that the oldest ghost that counts is told from one a lap later, and not much coarser. When that
    /// changes, ghosts get another age than they have; it does when a tenant has become twice as large.
    fn fit_clock(&self, entries: u64) {
        let span = entries.max(SIZE_MIN) * (GHOST_TIMES + 1) * 2;
        let wanted = span.ilog2().saturating_sub(TIMES.ilog2()).min(SHIFT_MAX);
        let shift = self.shift();
        if wanted > shift || wanted + 1 < shift {
            self.shift.store(wanted as u8, Ordering::Relaxed);
        }
    }

    fn shift(&self) -> u32 {
        u32::from(self.shift.load(Ordering::Relaxed))
    }

    fn ticks(&self, clock: u32) -> u32 {
        (clock >> self.shift()) % TIMES
    }

    pub(crate) fn forget(&self) {
        let all = [&self.share, &self.lately, &self.wanted, &self.entries];
        all.into_iter().chain(&self.let_go).for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.deficit.forget();
        self.shift.store(0, Ordering::Relaxed);
        self.inserted.store(false, Ordering::Relaxed);
        self.turned.store(0, Ordering::Relaxed);
    }
}

/// One more. What it was before.
fn bump(tally: &AtomicU32) -> u32 {
    let before = tally.load(Ordering::Relaxed);
    tally.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

fn halve(tally: &AtomicU32) {
    tally.store(tally.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_follows_what_comes_back_soon_and_stays_in_its_bounds() {
        let tenant = Tenant::default();
        assert_eq!(tenant.share_of(1_000), 99);
        for _ in 0..10_000 {
            let ghost = tenant.let_go(Queue::Probation, 1_000);
            if let Some(ghost) = ghost {
                assert!(tenant.came_back(ghost, true));
            }
        }
        assert_eq!(tenant.share_of(1_000), 899);
        for _ in 0..10_000 {
            if let Some(ghost) = tenant.let_go(Queue::Main, 1_000) {
                assert!(tenant.came_back(ghost, true));
            }
        }
        assert_eq!(tenant.share_of(1_000), 9);
    }

    #[test]
    fn a_ghost_counts_for_as_long_as_its_queue_says() {
        let cases = [
            (Queue::Probation, 1_000, 3_000),
            (Queue::Main, 1_000, 100),
            (Queue::Probation, 100, 300),
            (Queue::Main, 100, 64),
            (Queue::Probation, 3, 192),
            (Queue::Main, 3, 64),
        ];
        for (queue, entries, counts) in cases {
            let tenant = Tenant::default();
            let ghost = tenant.let_go(queue, entries).expect("nothing is known against it");
            for _ in 0..counts - 1 {
                tenant.let_go(queue, entries);
            }
            assert!(tenant.came_back(ghost, true));
            tenant.let_go(queue, entries);
            assert!(!tenant.came_back(ghost, true), "{queue:?} of {entries}");
        }
    }

    #[test]
    fn one_who_only_passes_is_known_and_may_better() {
        let tenant = Tenant::default();
        let remembered = (0..1_600).filter(|_| tenant.let_go(Queue::Probation, 1_000).is_some()).count();
        assert!(tenant.is_scanning());
        assert!((80..100).contains(&remembered), "first {JUDGED_BY}, then one in {PASSING_ONE_IN}: {remembered}");
        for _ in 0..PASSING_ONE_IN {
            if let Some(ghost) = tenant.let_go(Queue::Probation, 1_000) {
                tenant.came_back(ghost, true);
            }
        }
        assert!(!tenant.is_scanning());
        tenant.forget();
        assert!(!tenant.is_scanning() && tenant.is_filling());
    }

    #[test]
    fn the_clock_of_a_large_tenant_ticks_slower_and_still_tells() {
        let tenant = Tenant::default();
        let many = 1_000_000;
        tenant.let_go(Queue::Probation, many);
        let ghost = tenant.let_go(Queue::Probation, many).expect("nothing is known against it");
        for _ in 0..5 * many / 2 {
            tenant.let_go(Queue::Probation, many);
        }
        assert!(tenant.came_back(ghost, true), "two and a half millions of a million let go since");
        for _ in 0..many {
            tenant.let_go(Queue::Probation, many);
        }
        assert!(!tenant.came_back(ghost, true), "three and a half");
    }
}
