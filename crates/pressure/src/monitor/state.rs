//! The state of a monitor, behind its lock.
//!
//! Every decision of a monitor that needs its history is made here, with the time as an argument
//! (nanoseconds of any monotonic clock), so tests step the state without a thread. `monitor.rs`
//! adds clock, thread and files.
//!
//! A change must keep this invariant: after `apply`, `max` of the group is at least the ceiling,
//! and is above the ceiling only if the usage was above the ceiling at the last reading. Then `max`
//! follows the usage down and is not raised with it, so that a charge has to free only as much as
//! it takes.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lowwater_lru_core::{ByteSize, Memcg};

use super::config::MonitorConfig;
use super::limit::{CgroupReading, WatchedCgroup};
use super::resident::{Reaction, ResidentLimit};
use super::stats::{CgroupStats, PressureStats, ResidentStats, SourceStats};
use crate::cgroup::CgroupError;
use crate::source::SourceEvent;
use crate::trim::TrimSchedule;
use crate::{BackgroundReclaim, Level, SourceError, Target};

#[cfg(test)]
mod tests;

/// The first pause between two readings of a usage that has to fall; doubled while it does not
/// fall.
const FOLLOW_MIN_NS: u64 = 5_000_000;
/// The longest pause between them.
const FOLLOW_MAX_NS: u64 = 1_000_000_000;
/// The control group's usage is not compared again before a trim that is due within this time.
const TRIM_SOON_NS: u64 = 100_000_000;
/// While a trim that the resident memory needs is due later than this, the caches may not grow.
/// Longer than the default interval of trims (1 s, `trim.rs`), so that no usual wait stops them.
const TRIM_LATE_NS: u64 = 1_500_000_000;

/// For this time at most after a successful reading of a limit, level and ceiling are held.
const HOLD_MAX_NS: u64 = 300_000_000_000;

/// The state of a monitor; see the module.
#[derive(Debug)]
pub(super) struct MonitorState {
    /// The group whose `max` follows the ceiling.
    memcg: Memcg,
    reclaimer: Arc<dyn BackgroundReclaim>,
    target: Target,
    /// The budget that was set, regardless of the control group.
    asked: ByteSize,
    /// The budget that the control group's limit left at the last reading, and at most the maximum
    /// of the resident memory; [`ByteSize::MAX`] without either.
    left: ByteSize,
    trim: TrimSchedule,
    /// `Some` while a usage above the ceiling falls.
    fall: Option<UsageFall>,
    /// The ceiling that the reclaimer was told last; none once it was told that the ceiling is
    /// above the usage.
    told: Option<ByteSize>,
    /// `None` without a control group, and while the thread reads the control group's files.
    watched: Option<WatchedCgroup>,
    resident: Option<ResidentLimit>,
    /// The cgroup was too close to its limit at the last reading, so a trim comes earlier.
    is_cgroup_near: bool,
    cgroup_hold: ReadingHold,
    /// The resident memory was critical at the last reading: the same.
    is_resident_critical: bool,
    resident_hold: ReadingHold,
    stats: MonitorCounts,
    stop: bool,
}

/// Whether level and ceiling are held until the next reading of a limit.
#[derive(Debug, Default)]
struct ReadingHold {
    /// The time of the last reading that succeeded.
    read_ns: u64,
    /// The last reading failed, though the limit exists; or it found the ceiling at its floor, and
    /// the next reading comes late.
    is_waiting: bool,
}

impl ReadingHold {
    /// Notes a successful reading. If level and ceiling were held, the times of `target` begin now.
    fn succeeded(&mut self, now_ns: u64, target: &mut Target) {
        self.read_ns = now_ns;
        if core::mem::take(&mut self.is_waiting) {
            target.hold(now_ns);
        }
    }

    /// A cause of failures may last for ever: after [`HOLD_MAX_NS`] time restores the ceiling.
    fn is_on(&self, now_ns: u64) -> bool {
        self.is_waiting && now_ns.saturating_sub(self.read_ns) < HOLD_MAX_NS
    }
}

/// A usage that has to fall to the ceiling.
#[derive(Debug)]
struct UsageFall {
    /// The usage at the last reading.
    usage: ByteSize,
    /// The time between the last reading and the next.
    pause_ns: u64,
    /// The time of the next reading.
    due: u64,
}

/// The files of the sources.
#[derive(Debug, Default)]
pub(super) struct SourceFiles {
    /// The paths of the files that are watched.
    pub(super) watched: Vec<String>,
    /// The reasons why other sources are not watched.
    pub(super) missing: Vec<String>,
}

/// The parts of [`PressureStats`] that are not in other fields of the state.
#[derive(Debug, Default)]
struct MonitorCounts {
    lowered: u64,
    given_back: u64,
    manual: u64,
    cgroup: Option<CgroupStats>,
    resident: Option<ResidentStats>,
    sources: Vec<SourceStats>,
    missing: Vec<String>,
    trims: u64,
    trims_failed: u64,
    trim_longest: Duration,
}

/// The time until the next deadline.
#[derive(Debug)]
pub(super) struct Pause(Option<Duration>);

impl Pause {
    /// Returns the time, `None` if there is no deadline.
    pub(super) fn time(&self) -> Option<Duration> {
        self.0
    }
}

impl MonitorState {
    /// Creates the state at level calm, with the budget `asked`, or the part that the control
    /// group's limit and the maximum of the resident memory leave. The group's `max` is set by
    /// [`apply`](Self::apply).
    pub(super) fn new(
        memcg: Memcg,
        reclaimer: Arc<dyn BackgroundReclaim>,
        asked: ByteSize,
        watched: Option<WatchedCgroup>,
        resident: Option<ResidentStats>,
        files: SourceFiles,
        config: &MonitorConfig,
    ) -> Self {
        let of_cgroup = watched.as_ref().map_or(ByteSize::MAX, WatchedCgroup::budget);
        let left = resident.as_ref().map_or(of_cgroup, |resident| of_cgroup.min(resident.max));
        let sources = files.watched.into_iter().map(|file| SourceStats { file, events: 0, error: None }).collect();
        let cgroup = watched.as_ref().map(|watched| CgroupStats {
            directory: watched.directory().to_string_lossy().into_owned(),
            limit: watched.limit(),
            usage: ByteSize::ZERO,
            events: 0,
            error: None,
        });
        Self {
            memcg,
            reclaimer,
            target: Target::new(config.pressure, left.min(asked)),
            asked,
            left,
            trim: TrimSchedule::new(&config.trim),
            fall: None,
            told: None,
            watched,
            resident: resident.as_ref().map(|resident| ResidentLimit::new(resident.max)),
            is_cgroup_near: false,
            cgroup_hold: ReadingHold::default(),
            is_resident_critical: false,
            resident_hold: ReadingHold::default(),
            stats: MonitorCounts { cgroup, resident, sources, missing: files.missing, ..MonitorCounts::default() },
            stop: false,
        }
    }

    // === events ===

    pub(super) fn raised_by_hand(&mut self, now_ns: u64, level: Level) {
        self.stats.manual += 1;
        self.raise(now_ns, level);
    }

    pub(super) fn heard(&mut self, now_ns: u64, source: usize, heard: SourceEvent) {
        self.stats.sources[source].events += u64::from(heard != SourceEvent::Nothing);
        if let SourceEvent::Level(level) = heard {
            self.raise(now_ns, level);
        }
    }

    pub(super) fn source_failed(&mut self, source: usize, error: &SourceError) {
        self.stats.sources[source].error = Some(error.to_string());
    }

    pub(super) fn note_missing(&mut self, reason: &str) {
        self.stats.missing.push(reason.into());
    }

    /// Takes the control group to be read, if it is due, or `at_once`. The caller returns it by
    /// [`seen`](Self::seen).
    pub(super) fn take_watched(&mut self, now_ns: u64, at_once: bool) -> Option<WatchedCgroup> {
        self.watched.take_if(|watched| at_once || watched.due() <= now_ns)
    }

    /// Takes a control group back that [`take_watched`](Self::take_watched) gave out, and handles
    /// the result of its reading.
    pub(super) fn seen(&mut self, now_ns: u64, mut watched: WatchedCgroup, seen: Result<CgroupReading, CgroupError>) {
        let Some(stats) = &mut self.stats.cgroup else { return };
        match seen {
            Ok(seen) => {
                self.cgroup_hold.succeeded(now_ns, &mut self.target);
                (stats.limit, stats.usage, stats.error) = (watched.limit(), seen.usage, None);
                stats.events += u64::from(seen.level > Level::Calm);
                let resident_max = self.stats.resident.as_ref().map_or(ByteSize::MAX, |resident| resident.max);
                self.left = watched.budget().min(resident_max);
                self.watched = Some(watched);
                if self.left.min(self.asked) != self.target.budget() {
                    self.set_budget(self.asked);
                }
                self.too_near(now_ns, &seen);
            }
            // The last limit stays: a failed reading does not mean that there is no limit. It is
            // repeated, as the cause may end: a process may be out of file descriptors for a while.
            Err(error) => {
                stats.error = Some(error.to_string());
                watched.failed(now_ns);
                self.watched = Some(watched);
                self.is_cgroup_near = false;
                // A removed group stays unreadable, and no memory of this process is in it.
                self.cgroup_hold.is_waiting = !error.is_missing();
                self.give_back(now_ns);
            }
        }
    }

    /// Raises the level for a usage that is too close to the cgroup's limit, and lowers the ceiling
    /// by the excess.
    fn too_near(&mut self, now_ns: u64, seen: &CgroupReading) {
        self.is_cgroup_near = seen.level > Level::Calm;
        self.give_back(now_ns);
        // Memory of an earlier event may still be held by the caches or by the allocator: a second
        // request would free too much.
        let soon = now_ns.saturating_add(TRIM_SOON_NS);
        let under_way = self.fall.is_some() || self.trim.due(true).is_some_and(|due| due <= soon);
        let usage = self.memcg.usage();
        let at_most = if under_way { ByteSize::MAX } else { usage.saturating_sub(seen.excess) };
        if self.target.raise_to(now_ns, seen.level, usage, at_most) {
            self.stats.lowered += 1;
            self.apply();
        }
    }

    /// Returns whether the resident memory is to be read.
    pub(super) fn is_resident_due(&self, now_ns: u64) -> bool {
        self.resident.as_ref().is_some_and(|limit| limit.due() <= now_ns)
    }

    /// Notes the resident memory: if its maximum is near, the allocator has to return freed memory,
    /// and if that did not help, the ceiling falls.
    pub(super) fn resident_seen(&mut self, now_ns: u64, usage: Option<ByteSize>) {
        let (Some(limit), Some(stats)) = (&mut self.resident, &mut self.stats.resident) else { return };
        let Some(usage) = usage else {
            stats.failed += 1;
            limit.failed(now_ns);
            self.resident_hold.is_waiting = true;
            self.is_resident_critical = false;
            self.give_back(now_ns);
            return;
        };
        self.resident_hold.succeeded(now_ns, &mut self.target);
        stats.usage = usage;
        let reaction = limit.seen(now_ns, usage, self.fall.is_some());
        self.is_resident_critical = reaction.level() == Level::Critical;
        let (level, at_most, lowers) = match reaction {
            Reaction::Calm => return,
            Reaction::Trim { level, is_first } => {
                self.trim.request();
                let late = now_ns.saturating_add(TRIM_LATE_NS);
                let is_late = self.trim.due(self.is_urgent()).is_some_and(|due| due > late);
                match (self.fall.is_some(), is_late) {
                    (false, false) => return,
                    (false, true) if is_first => (level, self.memcg.usage(), false),
                    // Lowers nothing; the level and the quiet time keep the ceiling from rising.
                    _ => (level, ByteSize::MAX, false),
                }
            }
            Reaction::Lower { level, excess } => (level, self.memcg.usage().saturating_sub(excess), true),
        };
        self.give_back(now_ns);
        if self.target.raise_to(now_ns, level, self.memcg.usage(), at_most) {
            self.stats.lowered += 1;
            self.stats.resident.iter_mut().for_each(|stats| stats.lowered += 1);
            self.apply();
        } else if lowers {
            self.resident.iter_mut().for_each(|limit| limit.was_in_vain(now_ns));
            // Caches that grew before that reading would be emptied again by it.
            self.resident_hold.is_waiting = true;
        }
    }

    fn raise(&mut self, now_ns: u64, level: Level) {
        // A step up that was due before this event is made first, as if the event had not come yet.
        self.give_back(now_ns);
        if self.target.raise(now_ns, level, self.memcg.usage()) {
            self.stats.lowered += 1;
            self.apply();
        }
    }

    // === calls ===

    pub(super) fn set_budget(&mut self, budget: ByteSize) {
        self.asked = budget;
        self.target.set_budget(budget.min(self.left));
        self.apply();
    }

    pub(super) fn budget(&self) -> ByteSize {
        self.target.budget()
    }

    pub(super) fn asked(&self) -> ByteSize {
        self.asked
    }

    pub(super) fn freed(&mut self, bytes: ByteSize) {
        self.trim.freed(bytes);
    }

    pub(super) fn stop(&mut self) {
        self.stop = true;
    }

    // === time ===

    /// Returns how long the thread may sleep; `None` if it has to end.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        if self.stop {
            return None;
        }
        let fall = self.fall.as_ref().map(|fall| fall.due);
        let watched = self.watched.as_ref().map(WatchedCgroup::due);
        let resident = self.resident.as_ref().map(ResidentLimit::due);
        // No step is made while the ceiling is held: the next reading looks again. It is due in a
        // second at most after one that failed, and else in `EVERY_IN_VAIN` (`resident.rs`).
        let step = if self.is_held(now_ns) { None } else { self.target.due() };
        let due = [step, self.trim.due(self.is_urgent()), fall, watched, resident].into_iter().flatten().min();
        Some(Pause(due.map(|due| Duration::from_nanos(due.saturating_sub(now_ns)))))
    }

    /// Handles all that is due. Returns whether to trim now.
    pub(super) fn tick(&mut self, now_ns: u64) -> bool {
        self.give_back(now_ns);
        self.follow(now_ns);
        let is_urgent = self.is_urgent();
        self.trim.open(now_ns, is_urgent)
    }

    /// Returns whether a trim comes earlier, and costs more of the time.
    fn is_urgent(&self) -> bool {
        self.is_cgroup_near || self.is_resident_critical
    }

    pub(super) fn trimmed(&mut self, well: bool, took: Duration) {
        self.stats.trims += 1;
        self.stats.trims_failed += u64::from(!well);
        self.stats.trim_longest = self.stats.trim_longest.max(took);
        self.trim.took(took);
        if let Some(limit) = &mut self.resident {
            limit.trimmed();
        }
    }

    /// Returns whether the next reading of a limit is awaited, so that neither the level falls nor
    /// the ceiling rises.
    fn is_held(&self, now_ns: u64) -> bool {
        self.cgroup_hold.is_on(now_ns) || self.resident_hold.is_on(now_ns)
    }

    /// Makes the steps that are due, or postpones them while level and ceiling are held.
    fn give_back(&mut self, now_ns: u64) {
        if self.is_held(now_ns) {
            self.target.hold(now_ns);
        } else if self.target.tick(now_ns) {
            self.stats.given_back += 1;
            self.apply();
        }
    }

    /// Lowers the limit to a usage that has fallen.
    fn follow(&mut self, now_ns: u64) {
        let Some(fall) = &mut self.fall else { return };
        if fall.due > now_ns {
            return;
        }
        let usage = self.memcg.usage();
        let fell = fall.usage.saturating_sub(usage);
        fall.usage = usage;
        // While nothing is freed, the readings become rarer.
        fall.pause_ns = if fell > ByteSize::ZERO { FOLLOW_MIN_NS } else { (fall.pause_ns * 2).min(FOLLOW_MAX_NS) };
        fall.due = now_ns.saturating_add(fall.pause_ns);
        self.trim.freed(fell);
        self.apply();
    }

    /// Sets the group's `max` as low as its usage allows, and tells the reclaimer the ceiling if
    /// the usage is above it, or if it is above the one told last. Hooks of the tree may be user
    /// code, which must not run under the lock of this state.
    pub(super) fn apply(&mut self) {
        self.apply_for(self.memcg.usage());
    }

    /// As [`apply`](Self::apply), for the usage at a reading before the call.
    fn apply_for(&mut self, mut usage: ByteSize) {
        let (max, ceiling) = (self.memcg.max(), self.target.ceiling());
        if usage <= ceiling {
            self.memcg.set_max_unreported(ceiling);
            // A charge since that reading may have found the old `max`, and woken no reclaimer.
            usage = self.memcg.usage();
        }
        if usage <= ceiling {
            if self.told.take_if(|told| *told < ceiling).is_some() {
                // The reclaimer may still be on the way to a lower ceiling.
                self.reclaimer.reclaim_to(&self.memcg, ceiling);
            }
            if let Some(fall) = self.fall.take() {
                self.trim.freed(fall.usage.saturating_sub(usage));
                self.resident.iter_mut().for_each(ResidentLimit::fell);
            }
            return;
        }
        self.resident.iter_mut().for_each(ResidentLimit::fell);
        self.memcg.set_max_unreported(max.min(usage).max(ceiling));
        self.fall.get_or_insert(UsageFall { usage, pause_ns: FOLLOW_MIN_NS, due: 0 });
        self.told = Some(ceiling);
        self.reclaimer.reclaim_to(&self.memcg, ceiling);
    }

    pub(super) fn stats(&self) -> PressureStats {
        let MonitorCounts { lowered, given_back, manual, trims, trims_failed, trim_longest, .. } = self.stats;
        PressureStats {
            level: self.target.level(),
            ceiling: self.target.ceiling(),
            budget: self.target.budget(),
            lowered,
            given_back,
            manual,
            cgroup: self.stats.cgroup.clone(),
            resident: self.stats.resident.clone(),
            sources: self.stats.sources.clone(),
            missing: self.stats.missing.clone(),
            trims,
            trims_failed,
            trim_longest,
        }
    }
}
