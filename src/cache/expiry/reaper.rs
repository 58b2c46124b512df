//! Letting go in idle time: of what has expired though nobody met it, and of what belonged to a group that was dropped.
//!
//! An entry has no room for links of a timer wheel, and a wheel that only names entries would have to name those, too, that have long been
//! replaced. So all entries are gone over, a part of the index at a time, by the runtime's keeper thread. A round begins when the first
//! time is over that is known of: the soonest that the last round saw, or that was said since. Where nothing has a time there is none.
//!
//! # How late
//!
//! A round begins [`PERIOD`] after the last one began, at the earliest, and takes 20 times what going over all entries takes. An entry leaves
//! after its time is over, when the next round comes by: so within a period and two rounds.

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use lowwater_lru_core::index::Cursor;
use lowwater_lru_core::{pin, Bytes, Memcg, NodeId};

use super::deadline::Deadline;
use super::sweep::Round;
use crate::cache::core::Core;
use crate::cache::handle::Inner;
use crate::cache::policy::queue::Queue;
use crate::cache::record::Record;
use crate::cache::removal::RemovalCause;
use crate::cache::shrink::{Evicted, EvictionSource};
use crate::runtime::{Chores, Next};

/// From the beginning of one round to that of the next, at least.
const PERIOD: Duration = Duration::from_millis(250);
/// Entries taken off a list under its lock at once.
const BATCH: u64 = 64;
/// Many have expired where one in so many has.
const MANY_ONE_IN: usize = 4;
/// Rest for the time it works, where many have, and where few have.
const REST_MANY: u32 = 3;
const REST_FEW: u32 = 19;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Inner<K, V, S> {
    /// An entry that is in the index expires then.
    #[inline]
    pub(crate) fn says(&self, at: Deadline) {
        if self.core.rounds.says(at, &self.core.clock) {
            self.runtime.keeper().nudge();
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Lets those entries of a group go that are not where their hash leads to, by going over the
    /// whole index. How many.
    fn let_lost_go(&self, group: &Memcg) -> u64 {
        let (mut freed, mut at) = (0, Cursor::new());
        while !at.is_done() {
            let mut gone = Vec::new();
            let (guard, here) = (pin(), at.clone());
            let mut there = Vec::new();
            self.index.visit(&mut at, &guard, |record| there.push(record));
            for record in there.into_iter().filter(|record| self.queues.owner(record).as_ref() == Some(group)) {
                let taken = self.unlink_at(&here, &guard, record, |_| true, RemovalCause::Explicit);
                gone.extend(taken.map(|(_, removal)| removal));
            }
            drop(guard);
            freed += gone.len() as u64;
        }
        freed
    }
}

impl<K, V, S> Chores for Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn let_expired_go(&self) -> Next {
        let Some(round) = self.rounds.round() else { return Next::Told };
        let mut round = round.lock();
        let now = self.clock.now();
        if round.at.is_none() {
            let next = Deadline::earlier(round.seen, self.rounds.said(), now);
            let rest = round.began.map_or(Duration::ZERO, |began| PERIOD.saturating_sub(began.elapsed()));
            if !next.is_past(now) || !rest.is_zero() {
                let stays = std::mem::take(&mut round.stays);
                drop(round);
                if stays {
                    self.settle();
                    return Next::In(PERIOD);
                }
                return next.until(now).map_or(Next::Told, |until| Next::In(rest.max(until)));
            }
            self.rounds.said.begin();
            let (at, began, stays) = (Some(Cursor::new()), Some(Instant::now()), round.stays);
            *round = Round { at, began, stays, ..Round::default() };
        }
        let Round { at: Some(at), seen, .. } = &mut *round else { unreachable!("a round was begun") };
        // The removals are finished after the guard is dropped, also when the key's own code panics.
        let mut gone = Vec::new();
        let (guard, mut expired, mut looked, here) = (pin(), Vec::new(), 0, at.clone());
        self.index.visit(at, &guard, |record| {
            looked += 1;
            match record.deadline() {
                at if at.is_past(now) => expired.push(record),
                at => *seen = Deadline::earlier(*seen, at, now),
            }
        });
        let is_done = at.is_done();
        let many = !expired.is_empty() && expired.len() >= looked / MANY_ONE_IN;
        for record in expired {
            let is_expired = |there: &Record<K, V>| self.is_expired(there);
            let taken = self.unlink_at(&here, &guard, record, is_expired, RemovalCause::Expired);
            round.freed |= taken.is_some();
            gone.extend(taken.and_then(|(_, removal)| removal));
        }
        let freed = round.freed;
        if is_done {
            round.at = None;
        }
        drop(guard);
        drop(round);
        drop(gone);
        if is_done && freed {
            self.settle();
        }
        Next::Now { rest: if many { REST_MANY } else { REST_FEW } }
    }

    fn forget_group(&self, dying: &Memcg) {
        self.queues.forget_tenant(dying);
    }

    fn migrate(&self) -> Next {
        Core::migrate(self)
    }

    fn let_group_go(&self, group: &Memcg, node: NodeId) -> u64 {
        // Nothing of it is remembered, so it does not matter how many there were.
        let source = EvictionSource { memcg: group, entries: 0, ghost_recorder: None };
        let mut gone = Evicted::default();
        // All are looked at before the answer is that none can go.
        let mut batches = self.queues.count(group, node) / BATCH + 1;
        while gone.freed == 0 && batches > 0 {
            batches -= 1;
            for queue in [Queue::Probation, Queue::Main] {
                let old = self.queues.take(queue, group, node, BATCH);
                self.evict_batch(old, source, |_| RemovalCause::Explicit, &mut gone);
            }
        }
        group.uncharge(gone.bytes);
        if gone.freed == 0 && self.has_any(group, node) {
            return self.let_lost_go(group);
        }
        gone.freed
    }

    fn has_any(&self, group: &Memcg, node: NodeId) -> bool {
        self.queues.count(group, node) > 0
    }

    fn settle(&self) {
        let stays = self.index.collect() != Bytes::ZERO;
        self.trim();
        self.want_migration();
        if stays {
            self.rounds.round.get_or_init(Box::default).lock().stays = true;
        }
    }
}
