//! The thread that hears the sources, and keeps a group's limit where the [`Target`](super::Target) wants it.
//!
//! ```text
//!     PSI, systemd, memory.events --poll--.
//!     the cgroup's usage ---------looked--|--> Target::raise --> ceiling --> memcg.max, step by step
//!     by hand --------------------call----'         ^                 '----> Reclaimer: come down to it
//!                                             time --'                         '--> freed enough? Trim
//! ```
//!
//! # How the limit comes down
//!
//! The ceiling falls at once, the usage cannot. Were `max` set to the ceiling, every charge would be refused until the reclaimer
//! is done. So `max` follows the usage down, and never up: what is freed is not filled again, and a charge on the way
//! frees as much as it takes. At the ceiling it stays.
//!
//! All decisions are in [`Target`](super::Target) and the trim's gate, which have no clock; this adds the clock, a lock, and
//! the thread. Lock order: the state's lock is taken before any of the group's or the reclaimer's, and by no callback of theirs.

mod limit;
mod state;
mod stats;

pub use limit::CgroupLimit;
pub use stats::{CgroupStats, PressureStats, SourceStats};

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::io;
use std::time::Instant;

use lowwater_lru_core::sync::thread::{self, JoinHandle};
use lowwater_lru_core::sync::Mutex;
use lowwater_lru_core::unwind::caught;
use lowwater_lru_core::{Bytes, Memcg};
use thiserror::Error;

use super::cgroup::CgroupError;
use super::source::{Heard, Opened, Wait};
use super::{Level, PressureConfig, Source, SourceError, Trim};
use crate::callback::CallbackScope;
use crate::reclaimer::Reclaimer;
use limit::Watched;
use state::State;

#[cfg(test)]
mod tests;

/// What a [`Monitor`] watches, and how it answers. By default nothing from outside: pressure by hand only.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// How pressure is answered.
    pub pressure: PressureConfig,
    /// Who tells pressure.
    pub sources: Vec<Source>,
    /// Whether this process's control group is a limit.
    pub cgroup: Option<CgroupLimit>,
    /// What is called after a large shrink; [`Trim::system`] by default.
    pub trim: Trim,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self { pressure: PressureConfig::default(), sources: Vec::new(), cgroup: None, trim: Trim::system() }
    }
}

/// A monitor does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A source cannot be watched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The control group cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The system gave no thread, or no file descriptor to wake it.
    #[error(
        "the pressure monitor has no thread: {0}; raise the limits on threads and open files (ulimit -u, ulimit -n)"
    )]
    Thread(io::Error),
}

/// Watches for pressure, and keeps a group below what it leaves. Dropping this stops the thread and leaves the group's `max`
/// where it is.
///
/// The drop joins the thread, and so waits for a trim hook that is running. Inside a callback, a trim hook among them, it does
/// not ([`CallbackScope`](crate::CallbackScope)): the thread stops when the hook returns.
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{topology, Bytes, MemcgTree};
/// use lowwater_shrinker::pressure::{Level, Monitor, MonitorConfig, Watermarks};
/// use lowwater_shrinker::{Reclaimer, Registry, RegistryConfig};
///
/// let tree = MemcgTree::default();
/// let topology = topology::detect();
/// let registry = Registry::with_config(&tree, RegistryConfig::with_topology(Arc::clone(&topology)));
/// let reclaimer = Arc::new(Reclaimer::start(&registry, topology, Watermarks::for_budget(Bytes::mib(64)))?);
///
/// let monitor = Monitor::start(tree.root(), Bytes::mib(64), reclaimer, MonitorConfig::default())?;
/// tree.root().try_charge(Bytes::mib(40))?;
/// monitor.raise(Level::Critical);
/// // A quarter of what is used is to go; until it has, nothing is added.
/// assert_eq!(monitor.stats().ceiling, Bytes::mib(30));
/// assert_eq!(tree.root().max(), Bytes::mib(40));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping this stops the thread"]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the handle share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wait: Wait,
    /// Where the monitor's nanoseconds begin.
    epoch: Instant,
}

impl Monitor {
    /// Opens the sources, sets `memcg`'s `max` to `budget` or to what the control group leaves, and starts the thread.
    ///
    /// `memcg` is a group of the tree that `reclaimer` serves. A group of another tree gets the limit,
    /// and nothing is reclaimed from it.
    ///
    /// # Errors
    ///
    /// [`MonitorError`] names the file that is in the way and says what to do. Nothing is watched then, and `max` is as it was.
    pub fn start(
        memcg: &Memcg,
        budget: Bytes,
        reclaimer: Arc<Reclaimer>,
        config: MonitorConfig,
    ) -> Result<Self, MonitorError> {
        let mut sources = Vec::new();
        for source in &config.sources {
            sources.push(Some(Opened::open(source)?));
        }
        let watched = config.cgroup.clone().map(Watched::find).transpose()?.flatten();
        if let Some(watched) = &watched {
            for file in watched.events_files() {
                sources.extend(Opened::cgroup_events(&file)?.map(Some));
            }
        }
        let names = sources.iter().flatten().map(|source| String::from(source.file())).collect();
        let wait = Wait::new().map_err(MonitorError::Thread)?;
        let mut state = State::new(memcg.clone(), reclaimer, budget, watched, names, &config);
        state.apply();
        let shared = Arc::new(Shared { state: Mutex::new(state), wait, epoch: Instant::now() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("lowwater/psi".into())
            .spawn(move || {
                // What runs here is waited for by the drop of the monitor, so nothing here waits for others' callbacks.
                let _scope = CallbackScope::enter();
                theirs.run(sources, &config.trim);
                // The hook is user code, its `Drop` as well.
                let _panicked = caught(|| drop(config));
            })
            .map_err(MonitorError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Says by hand that it is as bad as `level`. The group's usage may not rise any more when this returns, and comes down in
    /// the background.
    pub fn raise(&self, level: Level) {
        let now = self.shared.now();
        self.shared.state.lock().raised_by_hand(now, level);
        self.shared.wait.wake();
    }

    /// Another budget: the most that may be used when there is no pressure. If more is in use, it comes down in the background,
    /// and may not rise meanwhile.
    pub fn set_budget(&self, budget: Bytes) {
        self.shared.state.lock().set_budget(budget);
        self.shared.wait.wake();
    }

    /// The most that may be used when there is no pressure: the budget, or what the control group leaves.
    pub fn budget(&self) -> Bytes {
        self.shared.state.lock().budget()
    }

    /// Says that somebody else has freed `bytes`, so that a trim comes when enough is.
    pub fn freed(&self, bytes: Bytes) {
        if bytes > Bytes::ZERO {
            self.shared.state.lock().freed(bytes);
            self.shared.wait.wake();
        }
    }

    /// How bad it is, and what has led to it.
    pub fn stats(&self) -> PressureStats {
        self.shared.state.lock().stats()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.state.lock().stop();
        self.shared.wait.wake();
        let Some(thread) = self.thread.take() else { return };
        // The thread may run the hook that drops this, or wait in a hook for the callback that does.
        if CallbackScope::is_inside() {
            return;
        }
        if thread.join().is_err() && !std::thread::panicking() {
            panic!("the pressure monitor's thread panicked: this is a bug in lowwater");
        }
    }
}

// === impl Shared ===

impl Shared {
    fn run(&self, mut sources: Vec<Option<Opened>>, trim: &Trim) {
        loop {
            let Some(pause) = self.state.lock().pause(self.now()) else { return };
            let mut gone = Vec::new();
            let mut look = false;
            self.wait.wait(pause.time(), &mut sources, |index, heard| {
                let mut state = self.state.lock();
                match heard {
                    Ok(heard) => {
                        look |= heard == Heard::Look;
                        state.heard(self.now(), index, heard);
                    }
                    Err(error) => {
                        state.lost(index, &error);
                        gone.push(index);
                    }
                }
            });
            for index in gone {
                sources[index] = None;
            }
            self.look(look);
            let trim_now = self.state.lock().tick(self.now());
            if trim_now {
                self.trim(trim);
            }
        }
    }

    /// Looks at the control group, if it is time, or somebody has said that there is something to see. The files are read
    /// without the lock.
    fn look(&self, at_once: bool) {
        let Some(mut watched) = self.state.lock().take_watched(self.now(), at_once) else { return };
        let seen = watched.look(self.now());
        self.state.lock().seen(self.now(), watched, seen);
    }

    fn trim(&self, trim: &Trim) {
        let began = Instant::now();
        // A hook that panics is the program's own fault, and no reason to leave it without an answer to pressure.
        let called = caught(|| trim.call());
        self.state.lock().trimmed(called.is_some(), began.elapsed());
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
