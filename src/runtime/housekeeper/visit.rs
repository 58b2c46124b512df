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
use super::schedule::{Bounds, Run, WORK};
use super::shared::{HousekeeperShared, PATIENCE};
use super::work_time::WorkTime;
use crate::runtime::maintenance::{Maintenance, MaintenanceId, NextRun};

/// The longest planned visit of a cache, far below the standby's patience.
pub(super) const VISIT_MAX: Duration = Duration::from_millis(50);
/// The time of visits after which a run begins no further one. So another kind of work waits for
/// this and one visit at most, per kind.
const RUN_MAX: Duration = Duration::from_millis(50);

/// The most that counts as the work of one call where the processor time is not known: the call may
/// have blocked.
const UNKNOWN_MAX: Duration = Duration::from_millis(5);

impl HousekeeperShared {
    /// Runs `f` on each cache, again and again for `bounds.visit` as long as there is more to do
    /// and the cache is not being dropped. A call after which there is no more at once is followed
    /// by a rest of `idle_rest` times its processor time.
    ///
    /// Ends when the visits of caches with something to do have taken [`RUN_MAX`]. Those of idle
    /// caches do not count: with very many, the housekeeper would never sleep.
    pub(super) fn maintain(
        &self,
        lease: Lease,
        bounds: Bounds,
        idle_rest: u32,
        f: impl Fn(&dyn Maintenance) -> NextRun,
    ) -> Result<Run, LeaseLost> {
        let mut run = Run { last: bounds.after, ..Run::default() };
        let mut worked = Duration::ZERO;
        let above = (bounds.after, MaintenanceId(u64::MAX));
        let others = (MaintenanceId::default(), bounds.after);
        for (mut after, to) in [above, others] {
            while let Some(visited) = self.visit_next(lease, after, to, |id, maintenance| {
                worked += self.maintain_one(id, bounds, idle_rest, &mut run, || f(maintenance));
            })? {
                after = visited.id;
                run.last = visited.id;
                if worked >= RUN_MAX {
                    run.wait = Some(Duration::ZERO);
                    return Ok(run);
                }
            }
        }
        Ok(run)
    }

    /// The visit of one cache by [`maintain`](Self::maintain). Returns its time, or zero if the
    /// cache had nothing to do.
    fn maintain_one(
        &self,
        id: MaintenanceId,
        bounds: Bounds,
        idle_rest: u32,
        run: &mut Run,
        f: impl Fn() -> NextRun,
    ) -> Duration {
        // The drop of a cache removes it, and waits for the visit.
        let is_removed = || self.state.lock().caches.get(id.0).is_none();
        let (start, mut time) = (Instant::now(), WorkTime::start());
        // When the present call has begun, and the end of the calls that had something to do.
        let (mut begun, mut worked) = (Duration::ZERO, Duration::ZERO);
        let wait = loop {
            let next = f();
            let elapsed = start.elapsed();
            let times = if let NextRun::Now { rest } = next { rest } else { idle_rest };
            // Longer only if the standby could not take the lease over.
            run.rest += time.lap(UNKNOWN_MAX).min(PATIENCE) * times;
            match next {
                NextRun::Now { .. } => worked = elapsed,
                NextRun::In(time) => break Some(time),
                NextRun::WhenNotified => break None,
            }
            if elapsed >= bounds.visit || is_removed() {
                break Some(Duration::ZERO);
            }
            begun = elapsed;
        };
        if wait != Some(Duration::ZERO) && begun < WORK {
            run.finished += start.elapsed();
        }
        run.wait = run.wait.into_iter().chain(wait).min();
        worked
    }

    /// Runs `f` on each cache. Returns the caches that were left out because another thread is
    /// blocked in them.
    pub(super) fn visit_each(
        &self,
        lease: Lease,
        mut f: impl FnMut(&dyn Maintenance),
    ) -> Result<Vec<MaintenanceId>, LeaseLost> {
        let (mut after, mut left_out) = (MaintenanceId::default(), Vec::new());
        let last = MaintenanceId(u64::MAX);
        while let Some(visited) = self.visit_next(lease, after, last, |_, maintenance| f(maintenance))? {
            after = visited.id;
            left_out.extend(visited.is_left_out.then_some(visited.id));
        }
        Ok(left_out)
    }

    /// Runs `f`, without the housekeeper's lock, on the cache with the least id above `after`, at
    /// most `to`; none if there is no such cache. A panic of `f` ends the visit of that cache only.
    fn visit_next(
        &self,
        lease: Lease,
        after: MaintenanceId,
        to: MaintenanceId,
        f: impl FnOnce(MaintenanceId, &dyn Maintenance),
    ) -> Result<Option<Visited>, LeaseLost> {
        // Inserts may wait for their memory.
        self.drop_leftovers(lease)?;
        let mut state = self.state.lock();
        let Some((id, maintenance)) = state.next_cache(after).filter(|(id, _)| *id <= to) else { return Ok(None) };
        if state.in_callback.contains(&id) {
            return Ok(Some(Visited { id, is_left_out: true }));
        }
        let maintenance = Arc::clone(maintenance);
        state.in_callback.push(id);
        self.before_callback(&mut state);
        drop(state);
        let _panicked = caught(|| f(id, &*maintenance));
        // The last handle, if the cache was dropped meanwhile: its drop runs user code, that of all
        // values the cache has captured.
        let _panicked = caught(|| drop(maintenance));
        let mut state = self.state.lock();
        state.in_callback.retain(|at| *at != id);
        self.callback_done.notify_all();
        self.after_callback(&mut state, lease)?;
        Ok(Some(Visited { id, is_left_out: false }))
    }
}

/// A visited cache.
struct Visited {
    id: MaintenanceId,
    /// The cache was not visited: another thread is blocked in it.
    is_left_out: bool,
}

#[cfg(test)]
mod tests {
    use super::super::{any_retired, Housekeeper};
    use super::*;
    use crate::runtime::maintenance::no_records::NoRecords;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Sweeps caches, without the housekeeper's threads, from the sixth one on. Each call for a
    /// cache works for a millisecond, and the calls for one cache return `next`.
    fn sweep(caches: u64, visit: Duration, next: [NextRun; 2]) -> Run {
        let housekeeper = Housekeeper { shared: Arc::new(HousekeeperShared::new(1, any_retired())) };
        for id in 1..=caches {
            let calls = AtomicUsize::new(0);
            // Relaxed: one thread.
            let cache = NoRecords::reaping(move || {
                let mut time = WorkTime::start();
                let mut worked = Duration::ZERO;
                while worked < Duration::from_millis(1) {
                    worked += time.lap(UNKNOWN_MAX);
                }
                next[calls.fetch_add(1, Ordering::Relaxed)]
            });
            housekeeper.add(MaintenanceId(id), Arc::new(cache));
        }
        let bounds = Bounds { after: MaintenanceId(5), visit };
        let run = housekeeper.shared.maintain(Lease::default(), bounds, 19, |maintenance| maintenance.reap_expired());
        run.ok().unwrap()
    }

    /// Runs sweeps until one is as expected: on a busy machine this thread may be suspended for
    /// longer than a run may take, which then ends early.
    fn some_sweep(caches: u64, visit: Duration, next: [NextRun; 2], is_expected: impl Fn(&Run) -> bool) {
        let mut runs = (0..1_000).map(|_| sweep(caches, visit, next)).inspect(|run| println!("{run:?}"));
        assert!(runs.any(|run| is_expected(&run)), "see the output");
    }

    #[test]
    fn each_sweep_is_followed_by_a_rest() {
        let ms = Duration::from_millis;
        some_sweep(8, Duration::MAX, [NextRun::Now { rest: 3 }, NextRun::In(ms(1))], |run| {
            // Longer than `WORK`, so not in `finished`.
            run.rest >= ms(8 * (3 + 19)) && (run.wait, run.finished) == (Some(ms(1)), Duration::ZERO)
        });
        some_sweep(8, WORK, [NextRun::Now { rest: 3 }; 2], |run| {
            run.rest >= ms(8 * 3) && (run.wait, run.finished) == (Some(Duration::ZERO), Duration::ZERO)
        });
        some_sweep(1, WORK, [NextRun::WhenNotified; 2], |run| {
            run.rest >= ms(19) && run.finished >= ms(1) && run.wait.is_none()
        });
    }

    #[test]
    fn a_run_ends_before_it_has_visited_all_caches_with_something_to_do() {
        let idle = NextRun::In(Duration::from_secs(1));
        let run = sweep(100, WORK, [NextRun::Now { rest: 3 }; 2]);
        assert!(run.last > MaintenanceId(5) && run.last <= MaintenanceId(55), "{run:?}");
        assert_eq!(run.wait, Some(Duration::ZERO));
        // The time of visits of idle caches does not count.
        let run = sweep(100, WORK, [idle; 2]);
        assert_eq!((run.last, run.wait), (MaintenanceId(5), Some(Duration::from_secs(1))), "all were visited");
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
        let bounds = Bounds { after: MaintenanceId(0), visit: VISIT_MAX };
        let run = housekeeper.shared.maintain(Lease::default(), bounds, 19, |maintenance| maintenance.reap_expired());
        assert!(run.is_ok());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
