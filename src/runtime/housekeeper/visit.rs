//! Visiting each cache in turn, under the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater_lru_core::unwind::caught;

use super::lease::{Replaced, Seat};
use super::shared::Shared;
use crate::runtime::maintenance::{Chores, ChoresId, Next};

/// How long it works without a rest.
pub(super) const WORK: Duration = Duration::from_micros(500);

impl Shared {
    /// Has each cache do a part of what it has to do. How long until the next.
    pub(super) fn go_on(&self, seat: Seat, f: impl Fn(&dyn Chores) -> Next) -> Result<Option<Duration>, Replaced> {
        let (mut wait, mut rest): (Option<Duration>, _) = (None, Duration::ZERO);
        self.each(seat, |chores| {
            let start = Instant::now();
            let next = loop {
                match f(chores) {
                    Next::Now { rest: times } if start.elapsed() >= WORK => {
                        rest += start.elapsed() * times;
                        break Duration::ZERO;
                    }
                    Next::Now { .. } => {}
                    Next::In(time) => break time,
                    Next::Told => return,
                }
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        })?;
        Ok(wait.map(|wait| wait.max(rest)))
    }

    /// Works on each cache, without the lock, but for those where another thread is held up, which come back. What panics there is that cache's
    /// own code, and costs it a part of this round.
    pub(super) fn each(&self, seat: Seat, mut f: impl FnMut(&dyn Chores)) -> Result<Vec<ChoresId>, Replaced> {
        let (mut after, mut left_out) = (ChoresId(0), Vec::new());
        loop {
            let mut state = self.state.lock();
            let Some((id, chores)) = state.caches.iter().find(|(id, _)| *id > after) else { return Ok(left_out) };
            let (id, chores) = (*id, chores);
            after = id;
            if state.at_work.contains(&id) {
                left_out.push(id);
                continue;
            }
            let chores = Arc::clone(chores);
            state.at_work.push(id);
            self.begins(&mut state);
            drop(state);
            let _panicked = caught(|| f(&*chores));
            // The last handle, if the cache was dropped meanwhile: then all that it has captured goes with it.
            let _panicked = caught(|| drop(chores));
            let mut state = self.state.lock();
            state.at_work.retain(|at| *at != id);
            self.left.notify_all();
            self.has_run(&mut state, seat)?;
        }
    }
}
