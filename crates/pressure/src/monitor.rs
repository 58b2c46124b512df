//! The thread that polls the sources, and keeps a group's limit where the [`Target`](super::Target) wants it.
//!
//! ```text
//!     PSI, systemd, memory.events --poll--.
//!     the cgroup's usage ---------looked--|--> Target::raise --> ceiling --> memcg.max, step by step
//!     by hand --------------------call----'         ^                 '----> BackgroundReclaim: come down to it
//!                                             time --'                         '--> freed enough? Trim
//! ```
//!
//! # How the limit comes down
//!
//! The ceiling falls at once, the usage cannot. Were `max` set to the ceiling, every charge would be refused until the reclaimer
//! is done. So `max` follows the usage down, and never up: what is freed is not filled again, and a charge on the way
//! frees as much as it takes. At the ceiling it stays.
//!
//! All decisions are in [`Target`](super::Target) and the trim's schedule, which have no clock; this adds the clock, a lock, and
//! the thread. Lock order: the state's lock is taken before any of the group's or the reclaimer's, and by no callback of theirs.

mod config;
mod limit;
mod state;
mod stats;

pub use config::{MonitorConfig, MonitorError};
pub use limit::CgroupLimit;
pub use stats::{CgroupStats, PressureStats, SourceStats};

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::time::Instant;

use lowwater_base::sync::thread;
use lowwater_base::sync::thread::JoinHandle;
use lowwater_base::sync::Mutex;
use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, Memcg};

use crate::source::{OpenSource, Poller, SourceEvent};
use crate::{BackgroundReclaim, Level, Trim};
use limit::WatchedCgroup;
use state::MonitorState;

#[cfg(test)]
mod tests;

/// Watches for pressure, and keeps a group below what it leaves. Dropping this stops the thread and leaves the group's `max`
/// where it is.
///
/// The drop joins the thread, and so waits for a trim hook that is running. Where [`BackgroundReclaim::can_join`] says no (inside a
/// callback, a trim hook among them), the drop does not wait: the thread stops when the hook returns.
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{ByteSize, Memcg, MemcgTree};
/// use lowwater_pressure::{BackgroundReclaim, Level, Monitor, MonitorConfig};
///
/// /// A program wakes its reclaimer here. `lowwater` has an adapter for the one of `lowwater-shrinker`.
/// #[derive(Debug)]
/// struct Caches;
///
/// impl BackgroundReclaim for Caches {
///     fn reclaim_to(&self, memcg: &Memcg, ceiling: ByteSize) {
///         println!("{memcg:?} is to use at most {ceiling}");
///     }
/// }
///
/// let tree = MemcgTree::default();
/// let monitor = Monitor::start(tree.root(), ByteSize::mib(64), Arc::new(Caches), MonitorConfig::default())?;
/// tree.root().try_charge(ByteSize::mib(40))?;
/// monitor.raise(Level::Critical);
/// // A quarter of what is used is to go; until it has, nothing is added.
/// assert_eq!(monitor.stats().ceiling, ByteSize::mib(30));
/// assert_eq!(tree.root().max(), ByteSize::mib(40));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping this stops the thread"]
pub struct Monitor {
    shared: Arc<MonitorShared>,
    thread: Option<JoinHandle<()>>,
}

/// The part of a monitor that its thread and its handle share.
#[derive(Debug)]
struct MonitorShared {
    state: Mutex<MonitorState>,
    reclaimer: Arc<dyn BackgroundReclaim>,
    poller: Poller,
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
        budget: ByteSize,
        reclaimer: Arc<dyn BackgroundReclaim>,
        config: MonitorConfig,
    ) -> Result<Self, MonitorError> {
        let mut sources = Vec::new();
        for source in &config.sources {
            sources.push(Some(OpenSource::open(source)?));
        }
        let watched = config.cgroup.clone().map(WatchedCgroup::find).transpose()?.flatten();
        if let Some(watched) = &watched {
            for file in watched.events_files() {
                sources.extend(OpenSource::cgroup_events(&file)?.map(Some));
            }
        }
        let names = sources.iter().flatten().map(|source| String::from(source.file())).collect();
        let poller = Poller::new().map_err(MonitorError::Thread)?;
        let mut state = MonitorState::new(memcg.clone(), Arc::clone(&reclaimer), budget, watched, names, &config);
        state.apply();
        let shared = Arc::new(MonitorShared { state: Mutex::new(state), reclaimer, poller, epoch: Instant::now() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("lowwater/psi".into())
            .spawn(move || {
                let mut owned = Some((sources, config));
                theirs.reclaimer.run_thread(&mut || {
                    let Some((sources, config)) = owned.take() else { return };
                    theirs.run(sources, &config.trim);
                    // The hook is user code, its `Drop` as well.
                    let _panicked = caught(|| drop(config));
                });
            })
            .map_err(MonitorError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Raises the level by hand. The group's usage may not rise any more when this returns, and comes down in
    /// the background.
    pub fn raise(&self, level: Level) {
        let now = self.shared.now();
        self.shared.state.lock().raised_by_hand(now, level);
        self.shared.poller.wake();
    }

    /// Another budget: the most that may be used when there is no pressure. If more is in use, it comes down in the background,
    /// and may not rise meanwhile.
    pub fn set_budget(&self, budget: ByteSize) {
        self.shared.state.lock().set_budget(budget);
        self.shared.poller.wake();
    }

    /// The most that may be used when there is no pressure: the budget, or what the control group leaves.
    pub fn budget(&self) -> ByteSize {
        self.shared.state.lock().budget()
    }

    /// The budget that was asked for, whatever the control group leaves.
    pub fn asked_budget(&self) -> ByteSize {
        self.shared.state.lock().asked()
    }

    /// Counts `bytes` that the program itself has freed towards the next trim.
    pub fn freed(&self, bytes: ByteSize) {
        if bytes > ByteSize::ZERO {
            self.shared.state.lock().freed(bytes);
            self.shared.poller.wake();
        }
    }

    /// The level, and the events that led to it.
    pub fn stats(&self) -> PressureStats {
        self.shared.state.lock().stats()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.state.lock().stop();
        self.shared.poller.wake();
        let Some(thread) = self.thread.take() else { return };
        // The thread may run the hook that drops this, or wait in a hook for the callback that does.
        if !self.shared.reclaimer.can_join() {
            return;
        }
        if thread.join().is_err() && !std::thread::panicking() {
            panic!("the pressure monitor's thread panicked: this is a bug in lowwater");
        }
    }
}

// === impl MonitorShared ===

impl MonitorShared {
    fn run(&self, mut sources: Vec<Option<OpenSource>>, trim: &Trim) {
        loop {
            let Some(pause) = self.state.lock().pause(self.now()) else { return };
            let mut gone = Vec::new();
            let mut look = false;
            self.poller.wait(pause.time(), &mut sources, |index, heard| {
                let mut state = self.state.lock();
                match heard {
                    Ok(heard) => {
                        look |= heard == SourceEvent::Look;
                        state.heard(self.now(), index, heard);
                    }
                    Err(error) => {
                        state.source_failed(index, &error);
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
