//! The housekeeper's threads: the lease holder, and a standby that takes the lease over when user
//! code blocks the holder.
//!
//! A change must ensure that one thread at a time holds the lease, that a panic of user code ends
//! no thread, and that no thread holds the housekeeper's lock while user code may run.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowwater_shrinker::CallbackScope;

use super::lease::{Lease, LeaseLost};
use super::schedule::{Bounds, Run, Work};
use super::shared::{HousekeeperShared, HousekeeperState, PATIENCE};
use super::visit::VISIT_MAX;
use super::work_time::WorkTime;

/// Rests after work that finds nothing to do at once, or that is not on one cache, as multiples of
/// its processor time: those of the table in `housekeeper.rs`.
const REST: u32 = 1;
const REST_REAP: u32 = 19;

impl HousekeeperShared {
    /// Runs a thread: the first one, which has the lease, or a standby.
    pub(super) fn run(self: &Arc<Self>, mut lease: Option<Lease>) {
        // `Housekeeper::remove` and the housekeeper's drop wait for this thread, so no code on it
        // may wait for other threads' callbacks.
        let _scope = CallbackScope::enter();
        while let Some(has) = lease.or_else(|| self.standby_loop()) {
            match self.work_until_stopped(has) {
                Ok(()) => return,
                Err(LeaseLost) if self.claim_standby() => lease = None,
                Err(LeaseLost) => return,
            }
        }
    }

    /// Works and sleeps until the housekeeper is dropped.
    fn work_until_stopped(&self, lease: Lease) -> Result<(), LeaseLost> {
        loop {
            self.drop_leftovers(lease)?;
            for work in Work::ALL {
                let begun = self.state.lock().schedule(work).begin(Instant::now(), VISIT_MAX);
                if let Some(bounds) = begun {
                    let run = self.work(lease, work, bounds)?;
                    self.state.lock().schedule(work).end(run, Instant::now());
                }
            }
            let mut state = self.state.lock();
            while !state.stop {
                match state.next_work() {
                    None => self.notified.wait(&mut state),
                    Some(next) if next <= Instant::now() => break,
                    Some(next) => drop(self.notified.wait_until(&mut state, next)),
                }
            }
            if state.stop {
                return Ok(());
            }
        }
    }

    /// Does one part of a kind of work.
    fn work(&self, lease: Lease, work: Work, bounds: Bounds) -> Result<Run, LeaseLost> {
        match work {
            Work::EndGroups => {
                let mut time = WorkTime::start();
                let wait = self.empty_groups(lease, Instant::now())?;
                Ok(Run { wait, rest: time.lap(PATIENCE).min(PATIENCE) * REST, ..Run::default() })
            }
            Work::Clear => self.maintain(lease, bounds, REST, |maintenance| maintenance.remove_cleared()),
            Work::Reap => self.maintain(lease, bounds, REST_REAP, |maintenance| maintenance.reap_expired()),
            Work::Compact => self.maintain(lease, bounds, REST, |maintenance| maintenance.compact()),
        }
    }

    /// Makes the calling thread the standby, if there is none. Returns whether it is.
    fn claim_standby(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().has_standby, true)
    }

    /// Waits until the lease holder has been in user code for too long, and takes the lease over;
    /// none when the housekeeper is dropped.
    fn standby_loop(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            let held_up = state.callback_since.map(|since| since.elapsed());
            match held_up.map(|time| PATIENCE.saturating_sub(time)) {
                None => {
                    state.standby_sleeps = true;
                    self.callback_begun.wait(&mut state);
                    state.standby_sleeps = false;
                }
                Some(Duration::ZERO) => break,
                Some(left) => drop(self.callback_begun.wait_for(&mut state, left)),
            }
        }
        state.callback_since = None;
        // The blocked thread does not end its run.
        state.notify_all();
        state.lease.generation += 1;
        state.has_standby = false;
        // If no thread can be spawned, this one goes on alone until the blocked thread returns and
        // becomes the standby.
        let _alone = self.spawn_standby(&mut state);
        Some(state.lease)
    }

    /// Spawns the standby thread.
    pub(super) fn spawn_standby(self: &Arc<Self>, state: &mut HousekeeperState) -> std::io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        state.threads.push(spawn("lowwater/standby", move || shared.run(None))?);
        state.has_standby = true;
        Ok(())
    }
}

/// Spawns a named thread.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}
