//! The thread that polls the sources of pressure, and lowers and raises a memcg's `max` to the
//! ceiling of the [`Target`](super::Target).
//!
//! ```text
//!     PSI, systemd, memory.events --poll--.
//!     usage of cgroup and process --read--|--> Target::raise --> ceiling --> memcg.max, step by step
//!     Monitor::raise ---------------call--'         ^                 '----> BackgroundReclaim
//!                                            time --'                         '--> freed enough? Trim
//! ```
//!
//! # How the limit falls
//!
//! The ceiling falls at once; the usage cannot. If `max` were set to the ceiling, every charge
//! would be refused until the reclaimer is done. So while the usage is above the ceiling, the
//! thread reads the usage every 5 ms to 1 s and lowers `max` to it, but does not raise `max` with
//! it: memory that was free at a reading is not filled again, and a charge above `max` has to free
//! as much as it takes. `max` stops at the ceiling.
//!
//! The modules that decide have no clock and get the time as an argument:
//! [`Target`](super::Target) computes the ceiling from levels, `limit.rs`, `resident.rs` and
//! `margin.rs` compare a usage with its limit, `trim.rs` schedules trims, and `state.rs` combines
//! them and sets `max`. This module adds the clock, a lock, and the thread. Lock order: the state's
//! lock is taken before any lock of the memcg or the reclaimer, and is never taken inside their
//! callbacks.
//!
//! A change must ensure that neither a failed source nor a panic of the trim hook stops the thread,
//! that a failed reading leaves the limit as it was, and that `max` is not raised with the usage
//! while that is above the ceiling.

mod auto;
mod config;
mod limit;
mod margin;
mod resident;
mod state;
mod stats;

pub use config::{MonitorConfig, MonitorError};
pub use limit::CgroupLimit;
pub use stats::{CgroupStats, PressureStats, ResidentStats, SourceStats};

use alloc::format;
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
use crate::{resident_memory, BackgroundReclaim, Level, Trim};
use auto::{noted, FoundSources};
use limit::WatchedCgroup;
use state::{MonitorState, SourceFiles};

#[cfg(test)]
mod tests;

/// Watches for memory pressure, and keeps a group's usage below the ceiling. Dropping the monitor
/// stops the thread and leaves the group's `max` as it is.
///
/// The drop joins the thread, and so waits for a running trim hook. Where
/// [`BackgroundReclaim::can_join`] returns false (inside a callback, including a trim hook), the
/// drop does not wait: the thread stops when the hook returns.
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
/// // A quarter of the usage has to be freed; until then the usage cannot grow.
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
    /// The origin of the monitor's nanoseconds.
    epoch: Instant,
}

impl Monitor {
    /// Opens the sources, sets the `max` of `memcg` to `budget`, or to the part of it that the
    /// control group and the maximum of the resident memory leave, and starts the thread. If the
    /// usage is above that, `max` begins at the usage and follows it down. With
    /// [`MonitorConfig::auto`], sources that this machine has are added. Those that it has not, and
    /// this process's own control group if it is not visible, are in [`PressureStats::missing`].
    ///
    /// `memcg` must be a group of the tree that `reclaimer` serves. A group of another tree gets
    /// the limit, but nothing is reclaimed from it.
    ///
    /// # Errors
    ///
    /// [`MonitorError`], which names the file and suggests a remedy. Then no source is watched, and
    /// `max` is unchanged, unless the thread could not be started. Aborts the process if there is
    /// no memory.
    pub fn start(
        memcg: &Memcg,
        budget: ByteSize,
        reclaimer: Arc<dyn BackgroundReclaim>,
        config: MonitorConfig,
    ) -> Result<Self, MonitorError> {
        let resident = match config.resident_max {
            None => None,
            Some(ByteSize::ZERO) => return Err(MonitorError::ZeroResidentMax),
            // Memory that cannot be read now is an error of the start, not of the thread later.
            Some(max) => {
                let usage = resident_memory().ok_or(MonitorError::NoResidentMemory)?;
                Some(ResidentStats { max, usage, lowered: 0, failed: 0 })
            }
        };
        let mut sources = Vec::new();
        for source in &config.sources {
            sources.push(Some(OpenSource::open(source)?));
        }
        let named = config.cgroup.clone().map(WatchedCgroup::find).transpose()?;
        let (mut watched, mut missing) = (None, Vec::new());
        if config.auto {
            let mut found = FoundSources::of_this_machine(&config.sources);
            if named.is_none() {
                watched = found.cgroup(CgroupLimit::own());
            }
            // A source that the configuration names as well is watched once.
            found.opened.retain(|source| !sources.iter().flatten().any(|other| source.repeats(other)));
            sources.extend(found.opened.into_iter().map(Some));
            missing.append(&mut found.missing);
        }
        // After the sources of `auto`, so that the order of the reasons is the same in both cases.
        if let Some(found) = named {
            watched = noted(found, &mut missing);
        }
        if let Some(watched) = &watched {
            for (group, is_own) in watched.groups_with_limit() {
                match OpenSource::cgroup_events(group, is_own) {
                    Ok(source) => sources.extend(source.map(Some)),
                    // The group was found, not named: its usage is still read at intervals.
                    Err(error) if config.auto && config.cgroup.is_none() => missing.push(format!("{error}")),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let names = sources.iter().flatten().map(|source| String::from(source.file())).collect();
        let poller = Poller::new().map_err(MonitorError::Thread)?;
        let files = SourceFiles { watched: names, missing };
        let mut state =
            MonitorState::new(memcg.clone(), Arc::clone(&reclaimer), budget, watched, resident, files, &config);
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
                    // The hook is user code, and so is its `Drop`: a panic must not leave the
                    // thread.
                    let _panicked = caught(|| drop(config));
                });
            })
            .map_err(MonitorError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Raises the level manually. If this lowers the ceiling below the group's usage, the usage
    /// cannot grow beyond that of the last reading once this returns, and falls to the ceiling in
    /// the background. Readings follow after 5 ms to 1 s.
    pub fn raise(&self, level: Level) {
        let now = self.shared.now();
        self.shared.state.lock().raised_by_hand(now, level);
        self.shared.poller.wake();
    }

    /// Sets the budget: the limit for usage without pressure. If the usage is higher, it falls in
    /// the background, and cannot grow beyond that of the last reading meanwhile.
    pub fn set_budget(&self, budget: ByteSize) {
        self.shared.state.lock().set_budget(budget);
        self.shared.poller.wake();
    }

    /// Returns the limit for usage without pressure: the budget, or the part of it that the control
    /// group and the maximum of the resident memory leave.
    pub fn budget(&self) -> ByteSize {
        self.shared.state.lock().budget()
    }

    /// Returns the budget that was set, regardless of the control group and of the maximum of the
    /// resident memory.
    pub fn asked_budget(&self) -> ByteSize {
        self.shared.state.lock().asked()
    }

    /// Notes that the program itself has freed `bytes`: they count towards the amount that triggers
    /// the next trim.
    pub fn freed(&self, bytes: ByteSize) {
        if bytes > ByteSize::ZERO {
            self.shared.state.lock().freed(bytes);
            self.shared.poller.wake();
        }
    }

    /// Adds a reason to [`PressureStats::missing`], for a source that the caller did not find.
    #[doc(hidden)]
    pub fn note_missing(&self, reason: &str) {
        self.shared.state.lock().note_missing(reason);
    }

    /// Returns the level, the limits and the event counts.
    pub fn stats(&self) -> PressureStats {
        self.shared.state.lock().stats()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.state.lock().stop();
        self.shared.poller.wake();
        let Some(thread) = self.thread.take() else { return };
        // This thread may be the monitor's, inside the trim hook; or the monitor's thread may wait,
        // in a hook, for the callback that this thread is in. Then a join would deadlock.
        if thread.thread().id() == std::thread::current().id() || !self.shared.reclaimer.can_join() {
            return;
        }
        if thread.join().is_err() && !std::thread::panicking() {
            panic!("the pressure monitor's thread panicked: this is a bug in lowwater");
        }
    }
}

// === impl MonitorShared ===

impl MonitorShared {
    /// Runs the thread's loop until the state is stopped. An event names its source by the index in
    /// `sources`, so a failed source is replaced by `None`.
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
            self.look_at_resident();
            let trim_now = self.state.lock().tick(self.now());
            if trim_now {
                self.trim(trim);
            }
        }
    }

    /// Reads the control group's files, if they are due or an event of its counters has come
    /// (`at_once`). The state's lock is not held during the reads.
    fn look(&self, at_once: bool) {
        let Some(mut watched) = self.state.lock().take_watched(self.now(), at_once) else { return };
        let seen = watched.look(self.now());
        self.state.lock().seen(self.now(), watched, seen);
    }

    /// Reads the resident memory, if it is due, without the state's lock.
    fn look_at_resident(&self) {
        if self.state.lock().is_resident_due(self.now()) {
            let usage = resident_memory();
            self.state.lock().resident_seen(self.now(), usage);
        }
    }

    fn trim(&self, trim: &Trim) {
        let began = Instant::now();
        // A panic of the hook must not stop the reaction to pressure.
        let called = caught(|| trim.call());
        self.state.lock().trimmed(called.is_some(), began.elapsed());
    }

    /// Returns the nanoseconds since the epoch.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
