//! Who works, and who takes over when somebody's code blocks who does.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowwater_shrinker::CallbackScope;

use super::lease::{Replaced, Seat};
use super::shared::{Shared, State};

/// How long it may take with one cache until another thread goes on with the others. Steps are of microseconds, unless somebody's code blocks.
const PATIENCE: Duration = Duration::from_millis(250);

impl Shared {
    /// What a thread does: with the seat from the beginning, or when it has taken it.
    pub(super) fn run(self: &Arc<Self>, mut seat: Option<Seat>) {
        // What runs here is waited for by `Keeper::remove` and the keeper's drop, so nothing here waits for others' callbacks.
        let _scope = CallbackScope::enter();
        while let Some(has) = seat.or_else(|| self.stand_by()) {
            match self.keep(has) {
                Ok(()) => return,
                Err(Replaced) if self.is_needed() => seat = None,
                Err(Replaced) => return,
            }
        }
    }

    /// Works until all is over.
    fn keep(&self, seat: Seat) -> Result<(), Replaced> {
        loop {
            let wait = self.work(seat)?;
            let mut state = self.state.lock();
            let until = wait.and_then(|wait| Instant::now().checked_add(wait));
            while !state.told && !state.stop {
                let Some(until) = until else {
                    self.told.wait(&mut state);
                    continue;
                };
                if self.told.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            if state.stop {
                return Ok(());
            }
            state.told = false;
        }
    }

    /// A part of what there is to do. How long until the next.
    fn work(&self, seat: Seat) -> Result<Option<Duration>, Replaced> {
        let start = Instant::now();
        let groups = self.empty_groups(seat, start)?;
        let expired = self.go_on(seat, |chores| chores.let_expired_go())?;
        let moved = self.go_on(seat, |chores| chores.migrate())?;
        Ok(groups.into_iter().chain(expired).chain(moved).min())
    }

    /// Does nobody stand by? Then the caller shall.
    fn is_needed(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().stands_by, true)
    }

    /// Waits until who has the seat has been held up for long, and takes it; none if that is not needed any more.
    fn stand_by(self: &Arc<Self>) -> Option<Seat> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            let held_up = state.since.map(|since| since.elapsed());
            match held_up.map(|time| PATIENCE.saturating_sub(time)) {
                None => {
                    state.sleeps = true;
                    self.begun.wait(&mut state);
                    state.sleeps = false;
                }
                Some(Duration::ZERO) => break,
                Some(left) => drop(self.begun.wait_for(&mut state, left)),
            }
        }
        state.since = None;
        state.seat.0 += 1;
        state.stands_by = false;
        // Without another thread it goes on alone, until one comes back.
        let _alone = self.have_one_stand_by(&mut state);
        Some(state.seat)
    }

    pub(super) fn have_one_stand_by(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        state.threads.push(spawn("lowwater/standby", move || shared.run(None))?);
        state.stands_by = true;
        Ok(())
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}
