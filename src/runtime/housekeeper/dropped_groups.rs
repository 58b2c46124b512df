//! Emptying and ending dropped groups.

use std::time::{Duration, Instant};

use lowwater_lru_core::unwind::caught;
use lowwater_lru_core::{Memcg, MemcgError, NodeId};

use super::lease::{Replaced, Seat};
use super::shared::{Dropped, Shared};
use super::visit::WORK;
use crate::runtime::maintenance::Chores;

/// How long it waits for charges of a dropped group that belong to no entry, between two looks, and in all.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_MAX: Duration = Duration::from_millis(100);
/// How long until it is tried again to end a group that has children.
const RETRY: Duration = Duration::from_millis(100);

/// What letting a group's entries go came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// There may be more.
    More,
    /// Only where a thread is held up.
    HeldUp,
    All,
}

impl Shared {
    /// Works on each dropped group in turn, from the one after that which was worked on last, while there is time.
    pub(super) fn empty_groups(&self, seat: Seat, start: Instant) -> Result<Option<Duration>, Replaced> {
        let mut wait: Option<Duration> = None;
        let nr = self.state.lock().dropped.len();
        for _ in 0..nr {
            if start.elapsed() >= WORK {
                return Ok(Some(WORK));
            }
            let Some(Dropped { group, empty }) = self.state.lock().dropped.front().cloned() else { break };
            let emptied = self.empty(seat, &group, start)?;
            if emptied == Emptied::More {
                self.turn(None);
                return Ok(Some(WORK));
            }
            // What is charged and is no entry is on its way to become one; or it is somebody else's, and is not waited for.
            let since = empty.unwrap_or(start);
            let next = if emptied == Emptied::HeldUp {
                self.turn(None);
                RETRY
            } else if group.usage().get() > 0 && since.elapsed() < SETTLE_MAX {
                self.turn(Some(since));
                SETTLE
            } else if self.end_group(seat, &group)? == Some(Err(MemcgError::HasChildren)) {
                self.turn(empty);
                RETRY
            } else {
                // The handle may be the last.
                let ended = self.state.lock().dropped.pop_front();
                drop(ended);
                self.each(seat, |chores| chores.settle())?;
                continue;
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        }
        Ok(wait)
    }

    /// Ends a group; none if a hook of the tree panicked. The group is offline then, too.
    fn end_group(&self, seat: Seat, group: &Memcg) -> Result<Option<Result<(), MemcgError>>, Replaced> {
        self.begins(&mut self.state.lock());
        // Hooks are the user's code.
        let ended = caught(|| group.offline());
        self.has_run(&mut self.state.lock(), seat)?;
        Ok(ended)
    }

    /// The first dropped group has had its turn, and is empty since then.
    fn turn(&self, empty: Option<Instant>) {
        let dropped = &mut self.state.lock().dropped;
        if let Some(mut first) = dropped.pop_front() {
            first.empty = empty;
            dropped.push_back(first);
        }
    }

    /// Lets go of what a group has, for a while.
    fn empty(&self, seat: Seat, group: &Memcg, start: Instant) -> Result<Emptied, Replaced> {
        let mut is_empty = true;
        let nodes = || (0..self.nodes).map(|node| NodeId::new(node as u16));
        let left_out = self.each(seat, |chores| {
            for node in nodes() {
                // All are asked before it counts as empty.
                while (is_empty || start.elapsed() < WORK) && chores.let_group_go(group, node) > 0 {
                    is_empty = false;
                }
            }
        })?;
        let has_any = |chores: &dyn Chores| nodes().any(|node| chores.has_any(group, node));
        let is_held_up = || {
            let state = self.state.lock();
            state.caches.iter().any(|(id, chores)| left_out.contains(id) && has_any(&**chores))
        };
        Ok(match is_empty {
            false => Emptied::More,
            true if is_held_up() => Emptied::HeldUp,
            true => Emptied::All,
        })
    }
}
