//! What is left in few of many places moves together, so that memory goes back to the system.
//!
//! When most entries leave, those that stay are scattered: of 64 KiB a single one keeps all from the system, and what was freed is so only
//! by the count. An entry itself cannot move, as readers look at it. So a clone of its key and of its value takes its place in the index
//! and on its list, as old as it was, with its reads, its time and its charge; and what was there leaves as others do, when its readers have
//! left. Nobody is told, and nothing is counted.
//!
//! The keeper does it, half of the time that it takes, when less than half of the memory of a node is used and the number of entries does
//! not fall any more: a reclaim that goes on would have what was moved leave after all.

pub(super) mod state;

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::Duration;

use lowwater_lru_core::index::{Cursor, PutError};
use lowwater_lru_core::unwind::caught;
use lowwater_lru_core::{pin, Bytes, Guard, NodeId};

use super::core::Core;
use super::expiry::deadline::Deadline;
use super::record::{Handle, Record};
use crate::runtime::Next;
use state::{Moved, State, UnderWay};

/// How long the number of entries must stay as it is before, but for one in so many; and how often readers are looked for.
const QUIET: Duration = Duration::from_millis(50);
const QUIET_PARTS: usize = 64;
/// Readers that hold that back are waited for so long, and then again.
const STAYS: Duration = Duration::from_millis(10);
/// What is larger stays where it is: it may have to be copied, and is as much as it keeps from the system.
const MOVED_MAX: Bytes = Bytes::kib(64);
/// When a migration has given back such a part, there may be more to be had by another.
const GAINS_ONE_IN: u64 = 8;
/// So much rest for the time it works.
const REST: u32 = 1;

/// Why an entry stays where it is.
enum Stays {
    /// It is not there any more, a walk has it, it is too large, or its own code panics.
    Busy,
    NoMemory,
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Asks for entries to be moved together, if that is worth it.
    pub(super) fn want_migration(&self) {
        if self.index.slab().is_sparse() {
            // Relaxed: the bell is behind a lock.
            self.migration.wanted.store(true, Ordering::Relaxed);
            self.bell.ring();
        }
    }

    /// Moves the next few hundred.
    pub(super) fn migrate(&self) -> Next {
        let slab = self.index.slab();
        let Some(state) = self.migration.state() else { return Next::Told };
        let mut state = state.lock();
        if state.under_way.is_none() {
            match self.begin_migration(&mut state.len) {
                Ok(begun) => state.under_way = Some(Box::new(begun)),
                Err(next) => return next,
            }
        }
        let Some(under_way) = &mut state.under_way else { unreachable!("one was begun") };
        // Old entries are not charged, so they wait in what the budget allows beside it; of which
        // inserts shall find most.
        let retired = self.bell.retired();
        if retired.is_above_low() && retired.sweep() == 0 {
            return Next::In(STAYS);
        }
        if under_way.moved.is_enough() {
            if slab.collect_some(usize::MAX).get() > 0 {
                return Next::In(STAYS);
            }
            under_way.moved = Moved::default();
        }
        let is_full = self.migrate_some(&mut under_way.at, &mut under_way.moved);
        if !is_full && !under_way.at.is_done() {
            return Next::Now { rest: REST };
        }
        // What readers hold back goes when it does.
        let _stays = slab.collect();
        slab.end_migration();
        let gained = under_way.footprint.saturating_sub(slab.footprint());
        let is_worth_it = gained.get() >= under_way.footprint.get() / GAINS_ONE_IN;
        *state = State::default();
        drop(state);
        self.trim();
        if is_worth_it {
            // Many may have left since it began.
            self.want_migration();
        }
        Next::In(QUIET)
    }

    /// Chooses what is to be moved, if the number of entries, which was `len`, has come to rest; else says when to ask again.
    fn begin_migration(&self, len: &mut usize) -> Result<UnderWay, Next> {
        let slab = self.index.slab();
        // Relaxed: as in `want_migration`.
        if !self.migration.wanted.load(Ordering::Relaxed) {
            return Err(Next::Told);
        }
        let now = self.counters.len();
        if std::mem::replace(len, now).abs_diff(now) > now / QUIET_PARTS {
            return Err(Next::In(QUIET));
        }
        // What readers hold back would come to be more and more.
        if slab.collect_some(usize::MAX).get() > 0 {
            return Err(Next::In(QUIET));
        }
        // Relaxed: as in `want_migration`; what leaves from here on asks again.
        self.migration.wanted.store(false, Ordering::Relaxed);
        match slab.begin_migration() {
            0 => Err(Next::Told),
            _ => Ok(UnderWay { at: Cursor::new(), moved: Moved::default(), footprint: slab.footprint() }),
        }
    }

    /// Those of the next part of the index, or some of them; `moved` counts them. Is there no memory for more?
    pub(super) fn migrate_some(&self, at: &mut Cursor, moved: &mut Moved) -> bool {
        // Dropped after the guard.
        let mut old = Vec::new();
        let (guard, mut leaving, here) = (pin(), Vec::new(), at.clone());
        self.index.visit_leaving(at, &guard, |record, node| leaving.push((node, record)));
        // A thread makes entries on one node at a time.
        leaving.sort_unstable_by_key(|(node, _)| *node);
        for (node, record) in leaving {
            if moved.is_enough() {
                // The others come with the next part, which begins here again.
                *at = here;
                break;
            }
            match self.move_entry(record, node, &guard) {
                Ok(handle) => {
                    moved.entries += 1;
                    moved.bytes = moved.bytes.saturating_add(handle.charge());
                    old.push(handle);
                }
                Err(Stays::Busy) => {}
                Err(Stays::NoMemory) => return true,
            }
        }
        false
    }

    /// Puts another in an entry's place, and returns the handle of that one, to be dropped.
    fn move_entry(&self, record: &Record<K, V>, node: NodeId, guard: &Guard) -> Result<Handle<K, V>, Stays> {
        if record.charge() > MOVED_MAX {
            return Err(Stays::Busy);
        }
        let copied = caught(|| (self.hash(&record.key), (self.copy)(record)));
        let Some((hash, (key, value))) = copied else { return Err(Stays::Busy) };
        // What may change meanwhile is told when it takes the place.
        let new = Record::new(key, value, Deadline::NEVER, record.charge());
        let new = self.index.slab().alloc(new, node).map_err(|_| Stays::NoMemory)?;
        let is_it = |there: &Record<K, V>, _: &Record<K, V>| std::ptr::eq(there, record);
        let hasher = |record: &Record<K, V>| self.hash(&record.key);
        let put = self.index.put(new, hash, guard, is_it, &hasher, |new, there| match there {
            Some(there) => self.queues.replace(there, new),
            None => Err(new),
        });
        match put {
            Ok((_, old)) => Ok(old),
            Err(PutError::Refused(_) | PutError::Indexed(_)) => Err(Stays::Busy),
            Err(PutError::NoMemory(_)) => Err(Stays::NoMemory),
        }
    }
}
