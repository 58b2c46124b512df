//! What the housekeeper's threads share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use lowwater_lru_core::{Memcg, OfflineHook};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::lease::{Replaced, Seat};
use crate::runtime::maintenance::{Chores, ChoresId};
use crate::runtime::retired::Retired;

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// There is something to do.
    pub(super) told: Condvar,
    /// A cache is not worked on any more.
    pub(super) left: Condvar,
    /// Work was begun, while who stands by was asleep.
    pub(super) begun: Condvar,
    pub(super) nodes: usize,
    /// What the caches have retired.
    pub(super) retired: Arc<Retired>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) seat: Seat,
    /// Since when who has it is where somebody's code may run.
    pub(super) since: Option<Instant>,
    /// Does a thread stand by, and will it sleep until it is told?
    pub(super) stands_by: bool,
    pub(super) sleeps: bool,
    /// In the order of their numbers.
    pub(super) caches: Vec<(ChoresId, Arc<dyn Chores>)>,
    pub(super) last_id: u64,
    /// By which threads work; more than one only where somebody's code has blocked some of them.
    pub(super) at_work: Vec<ChoresId>,
    /// To be emptied and ended. Only who has the seat takes some out, or changes their order: which was looked at last is last.
    pub(super) dropped: VecDeque<Dropped>,
    pub(super) told: bool,
    pub(super) stop: bool,
}

#[derive(Clone)]
pub(super) struct Dropped {
    pub(super) group: Memcg,
    /// Since when no cache has anything of it.
    pub(super) empty: Option<Instant>,
}

impl Shared {
    pub(super) fn nudge(&self) {
        self.tell(self.state.lock());
    }

    pub(super) fn tell(&self, mut state: MutexGuard<'_, State>) {
        state.told = true;
        self.told.notify_one();
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

impl OfflineHook for Shared {
    fn offline(&self, dying: &Memcg, _parent: &Memcg) {
        self.state.lock().caches.iter().for_each(|(_, chores)| chores.forget_group(dying));
    }
}
