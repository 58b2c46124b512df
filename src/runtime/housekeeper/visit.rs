//! Visiting each cache in turn, under the lease.
//!
//! A cache in which another thread is held up is left out, so a blocked callback delays only its
//! own cache.
//!
//! A change must ensure that no cache is visited by two threads at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater_base::unwind::caught;

use super::lease::{Lease, LeaseLost};
use super::shared::HousekeeperShared;
use crate::runtime::maintenance::{Maintenance, MaintenanceId, NextRun};

/// The time after which the work on a cache, or on a dropped group, begins no further call.
pub(super) const WORK: Duration = Duration::from_micros(500);

impl HousekeeperShared {
    /// Runs `f` on each cache, again and again for [`WORK`] as long as there is more to do. Returns
    /// how long until the next run; none: when notified.
    pub(super) fn maintain(
        &self,
        lease: Lease,
        f: impl Fn(&dyn Maintenance) -> NextRun,
    ) -> Result<Option<Duration>, LeaseLost> {
        let (mut wait, mut rest): (Option<Duration>, _) = (None, Duration::ZERO);
        self.visit_each(lease, |maintenance| {
            let start = Instant::now();
            let next = loop {
                match f(maintenance) {
                    NextRun::Now { rest: times } if start.elapsed() >= WORK => {
                        rest += start.elapsed() * times;
                        break Duration::ZERO;
                    }
                    NextRun::Now { .. } => {}
                    NextRun::In(time) => break time,
                    NextRun::WhenNotified => return,
                }
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        })?;
        Ok(wait.map(|wait| wait.max(rest)))
    }

    /// Runs `f` on each cache, without the housekeeper's lock. Returns the caches that were left
    /// out because another thread is blocked in them. A panic of `f` ends the visit of that cache
    /// only.
    pub(super) fn visit_each(
        &self,
        lease: Lease,
        mut f: impl FnMut(&dyn Maintenance),
    ) -> Result<Vec<MaintenanceId>, LeaseLost> {
        let (mut after, mut left_out) = (MaintenanceId(0), Vec::new());
        loop {
            // Inserts may wait for their memory.
            self.drop_leftovers(lease)?;
            let mut state = self.state.lock();
            let Some((id, maintenance)) = state.next_cache(after) else { return Ok(left_out) };
            after = id;
            if state.in_callback.contains(&id) {
                left_out.push(id);
                continue;
            }
            let maintenance = Arc::clone(maintenance);
            state.in_callback.push(id);
            self.before_callback(&mut state);
            drop(state);
            let _panicked = caught(|| f(&*maintenance));
            // The last handle, if the cache was dropped meanwhile: its drop runs user code, that of
            // all values the cache has captured.
            let _panicked = caught(|| drop(maintenance));
            let mut state = self.state.lock();
            state.in_callback.retain(|at| *at != id);
            self.callback_done.notify_all();
            self.after_callback(&mut state, lease)?;
        }
    }
}
