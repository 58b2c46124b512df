//! Who works, and who takes over when somebody's code blocks who does.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Shared, State};

/// How long it may take with one cache until another thread goes on with the others. Steps are of microseconds, unless somebody's code blocks.
const PATIENCE: Duration = Duration::from_millis(250);

/// The right to work, of one thread at a time: how many had it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat(u64);

/// Another thread has taken the seat.
pub(super) struct Replaced;

impl Shared {
    /// Does nobody stand by? Then the caller shall.
    pub(super) fn is_needed(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().stands_by, true)
    }

    /// Waits until who has the seat has been held up for long, and takes it; none if that is not needed any more.
    pub(super) fn stand_by(self: &Arc<Self>) -> Option<Seat> {
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

    /// Somebody's code may run from now on.
    pub(super) fn begins(&self, state: &mut State) {
        state.since = Some(Instant::now());
        if state.sleeps {
            self.begun.notify_one();
        }
    }

    /// Somebody's code has run. Has nobody taken the seat? If somebody has, he is told to look at what he left out.
    pub(super) fn has_run(&self, state: &mut State, seat: Seat) -> Result<(), Replaced> {
        if state.seat != seat {
            state.told = true;
            self.told.notify_one();
            return Err(Replaced);
        }
        state.since = None;
        Ok(())
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}
