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
use super::schedule::Run;
use super::shared::{HousekeeperShared, PATIENCE};
use super::work_time::WorkTime;
use crate::runtime::maintenance::{Maintenance, MaintenanceId, NextRun};

/// The longest planned visit of a cache, far below the standby's patience.
pub(super) const VISIT_MAX: Duration = Duration::from_millis(50);

impl HousekeeperShared {
    /// Runs `f` on each cache, again and again for `limit` as long as there is more to do and the
    /// cache is not being dropped. A call after which there is no more at once is followed by a
    /// rest of `idle_rest` times its processor time.
    pub(super) fn maintain(
        &self,
        lease: Lease,
        limit: Duration,
        idle_rest: u32,
        f: impl Fn(&dyn Maintenance) -> NextRun,
    ) -> Result<Run, LeaseLost> {
        let mut run = Run::default();
        self.visit_each(lease, |id, maintenance| {
            // The drop of a cache removes it, and waits for the visit.
            let is_removed = || self.state.lock().caches.get(id.0).is_none();
            let start = Instant::now();
            let mut time = WorkTime::start();
            loop {
                let next = f(maintenance);
                let now = Instant::now();
                let times = if let NextRun::Now { rest } = next { rest } else { idle_rest };
                // Longer only if the standby could not take the lease over.
                run.rest += time.lap().min(PATIENCE) * times;
                let wait = match next {
                    NextRun::Now { .. } if now - start < limit && !is_removed() => continue,
                    NextRun::Now { .. } => Some(Duration::ZERO),
                    NextRun::In(time) => Some(time),
                    NextRun::WhenNotified => None,
                };
                if wait != Some(Duration::ZERO) {
                    run.finished += now - start;
                }
                run.wait = run.wait.into_iter().chain(wait).min();
                return;
            }
        })?;
        Ok(run)
    }

    /// Runs `f` on each cache, without the housekeeper's lock. Returns the caches that were left
    /// out because another thread is blocked in them. A panic of `f` ends the visit of that cache
    /// only.
    pub(super) fn visit_each(
        &self,
        lease: Lease,
        mut f: impl FnMut(MaintenanceId, &dyn Maintenance),
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
            let _panicked = caught(|| f(id, &*maintenance));
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

#[cfg(test)]
mod tests {
    use super::super::schedule::WORK;
    use super::super::{any_retired, Housekeeper};
    use super::*;
    use crate::runtime::maintenance::no_records::NoRecords;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Sweeps caches, without the housekeeper's threads. Each call for a cache works for a
    /// millisecond, and the calls for one cache return `next`.
    fn sweep(caches: u64, limit: Duration, next: [NextRun; 2]) -> Run {
        let housekeeper = Housekeeper { shared: Arc::new(HousekeeperShared::new(1, any_retired())) };
        for id in 1..=caches {
            let calls = AtomicUsize::new(0);
            // Relaxed: one thread.
            let cache = NoRecords::reaping(move || {
                let mut time = WorkTime::start();
                let mut worked = Duration::ZERO;
                while worked < Duration::from_millis(1) {
                    worked += time.lap();
                }
                next[calls.fetch_add(1, Ordering::Relaxed)]
            });
            housekeeper.add(MaintenanceId(id), Arc::new(cache));
        }
        let run = housekeeper.shared.maintain(Lease::default(), limit, 19, |maintenance| maintenance.reap_expired());
        run.ok().unwrap()
    }

    #[test]
    fn each_sweep_is_followed_by_a_rest() {
        let ms = Duration::from_millis;
        let run = sweep(8, Duration::MAX, [NextRun::Now { rest: 3 }, NextRun::In(ms(1))]);
        assert!(run.rest >= ms(8 * (3 + 19)) && run.finished >= ms(8 * 2), "{run:?}");
        assert_eq!(run.wait, Some(ms(1)));
        let run = sweep(8, WORK, [NextRun::Now { rest: 3 }; 2]);
        assert!(run.rest >= ms(8 * 3), "{run:?}");
        assert_eq!((run.wait, run.finished), (Some(Duration::ZERO), Duration::ZERO));
        let run = sweep(1, WORK, [NextRun::WhenNotified; 2]);
        assert!(run.rest >= ms(19), "{run:?}");
        assert_eq!(run.wait, None);
    }

    /// The drop of the cache waits for the visit.
    #[test]
    fn the_visit_of_a_removed_cache_ends_with_the_present_call() {
        let housekeeper = Housekeeper { shared: Arc::new(HousekeeperShared::new(1, any_retired())) };
        let (shared, calls) = (Arc::clone(&housekeeper.shared), Arc::new(AtomicUsize::new(0)));
        // Relaxed, both accesses: one thread.
        let count = Arc::clone(&calls);
        let cache = NoRecords::reaping(move || {
            count.fetch_add(1, Ordering::Relaxed);
            drop(shared.state.lock().caches.remove(1));
            std::thread::sleep(Duration::from_millis(1));
            NextRun::Now { rest: 3 }
        });
        housekeeper.add(MaintenanceId(1), Arc::new(cache));
        let run =
            housekeeper.shared.maintain(Lease::default(), VISIT_MAX, 19, |maintenance| maintenance.reap_expired());
        assert!(run.is_ok());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
