//! The sticky target: the ceiling for usage, computed without thread or clock.
//!
//! A shrink alone does not help: a cache that was shrunk refills before the next sample, and the
//! machine still runs out of memory. So pressure lowers a ceiling, and the ceiling stays low until
//! the pressure has been absent for some time:
//!
//! ```text
//!     budget  ----.                                        .---- restored
//!                 |                                     .--'
//!                 | event: usage less a share        .--'  one step per `step_time`
//!                 '----.                          .--'
//!                      | second event             |
//!     ceiling          '--------------------------'
//!     level       medium                 low     calm
//!                      |---- quiet ----|- quiet --|
//! ```
//!
//! - **Down at once.** An event takes a share of the *usage*, not of the budget: to take unused
//!   budget frees nothing. Events within one [`debounce`](PressureConfig::debounce) time count as
//!   one, unless a worse one comes.
//! - **Up late and slowly.** Each [`quiet`](PressureConfig::quiet) time without an event lowers the
//!   level by one. At [`Calm`](Level::Calm) the ceiling rises by a sixteenth each
//!   [`step_time`](PressureConfig::step_time).
//! - **Hysteresis.** An event on the way up starts the quiet time again.
//! - **Never below a floor**, so that a server that has just started can work at all.
//!
//! # Invariants
//!
//! 1. `min(floor, budget) <= ceiling <= budget`.
//! 2. An event never raises the ceiling, and time never lowers it.
//! 3. Time does not raise the ceiling before `quiet` has passed since the last event.
//! 4. Without events the ceiling reaches the budget again within a bounded time.
//!
//! A change must ensure that the four invariants hold for any order of events, times and budgets.

use core::time::Duration;

use lowwater_lru_core::ByteSize;

use super::Level;

#[cfg(test)]
mod tests;

/// The divisor of the budget for one step of the rising ceiling: with the default step time, a
/// ceiling at the default floor is restored 30 s after the level has become calm.
const STEPS: u64 = 16;
/// The divisor of the budget for the default floor.
const FLOOR_PARTS: u64 = 16;
/// The default floor when the budget is unlimited.
const FLOOR_UNLIMITED: ByteSize = ByteSize::mib(16);

/// The reaction to pressure. The defaults suit a server.
///
/// ```
/// use core::time::Duration;
/// use lowwater_pressure::PressureConfig;
///
/// let patient = PressureConfig { quiet: Duration::from_secs(60), ..PressureConfig::default() };
/// assert_eq!(patient.debounce, Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureConfig {
    /// The percentage of the usage that an event of [`Level::Low`] takes; 6 by default, 100 at
    /// most.
    pub low_percent: u8,
    /// The percentage of the usage that an event of [`Level::Medium`] takes; 12 by default.
    pub medium_percent: u8,
    /// The percentage of the usage that an event of [`Level::Critical`] takes; 25 by default.
    pub critical_percent: u8,
    /// The floor of the ceiling; by default a sixteenth of the budget, or 16 MiB for an unlimited
    /// budget.
    pub floor: Option<ByteSize>,
    /// The time after an effective event in which further events have no effect, unless they are
    /// worse; 1 s by default.
    pub debounce: Duration,
    /// The time without events after which the level falls by one; 10 s by default.
    pub quiet: Duration,
    /// The time between two steps by which the ceiling rises; 2 s by default.
    pub step_time: Duration,
}

impl Default for PressureConfig {
    fn default() -> Self {
        Self {
            low_percent: 6,
            medium_percent: 12,
            critical_percent: 25,
            floor: None,
            debounce: Duration::from_secs(1),
            quiet: Duration::from_secs(10),
            step_time: Duration::from_secs(2),
        }
    }
}

/// The level, and the ceiling that it has led to. Times are nanoseconds of any monotonic clock.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::{Level, PressureConfig, Target};
///
/// const S: u64 = 1_000_000_000;
/// let mut target = Target::new(PressureConfig::default(), ByteSize::mib(100));
/// assert!(target.raise(0, Level::Critical, ByteSize::mib(80)));
/// assert_eq!(target.ceiling(), ByteSize::mib(60));
///
/// // 10 s without events for each level; then a sixteenth each 2 s.
/// target.tick(29 * S);
/// assert_eq!(target.ceiling(), ByteSize::mib(60));
/// target.tick(120 * S);
/// assert_eq!((target.ceiling(), target.level()), (ByteSize::mib(100), Level::Calm));
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    config: PressureConfig,
    budget: ByteSize,
    /// The ceiling that pressure has led to, under the budget of that time; none once it has risen
    /// to the budget again.
    lowered_to: Option<ByteSize>,
    level: Level,
    /// The usage when the pressure began: the upper end of the steps when the budget is unlimited.
    came_from: ByteSize,
    /// The time and the level of the last event that was not debounced.
    answered: Option<(u64, Level)>,
    /// The time of the last event, of the last change of the level, or of the last step.
    since: u64,
}

impl Target {
    /// Returns a target at [`Level::Calm`], with its ceiling at `budget`.
    pub fn new(config: PressureConfig, budget: ByteSize) -> Self {
        Self {
            config,
            budget,
            lowered_to: None,
            level: Level::Calm,
            came_from: ByteSize::ZERO,
            answered: None,
            since: 0,
        }
    }

    /// Returns the limit for usage now. Events lower it, and [`tick`](Self::tick) raises it, up to
    /// the [`budget`](Self::budget).
    pub fn ceiling(&self) -> ByteSize {
        self.lowered_to.map_or(self.budget, |to| to.max(self.floor()).min(self.budget))
    }

    /// Returns the limit for usage without pressure.
    pub fn budget(&self) -> ByteSize {
        self.budget
    }

    /// Returns the level of pressure. Events raise it, and [`tick`](Self::tick) lowers it.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns whether the ceiling is below the budget.
    pub fn is_lowered(&self) -> bool {
        self.ceiling() < self.budget
    }

    /// Handles an event at time `now_ns`: pressure of `level`, while `usage` is in use. Returns
    /// whether the ceiling fell.
    pub fn raise(&mut self, now_ns: u64, level: Level, usage: ByteSize) -> bool {
        if level == Level::Calm {
            return false;
        }
        self.note(now_ns, level);
        if self.is_debounced(now_ns, level) {
            return false;
        }
        self.answered = Some((now_ns, level));
        let from = usage.min(self.ceiling());
        self.lower(less_percent(from, self.percent(level)), from)
    }

    /// Handles an event of a source that has computed the necessary usage: pressure of `level` at
    /// time `now_ns`, with a `usage` that has to fall to `at_most`. Not debounced. Returns whether
    /// the ceiling fell.
    pub fn raise_to(&mut self, now_ns: u64, level: Level, usage: ByteSize, at_most: ByteSize) -> bool {
        if level == Level::Calm {
            return false;
        }
        self.note(now_ns, level);
        self.lower(at_most, usage.min(self.ceiling()))
    }

    /// Restarts the time to the next step at `now_ns`, while a reading of a limit is awaited: until
    /// then neither the level falls nor the ceiling rises.
    pub(crate) fn hold(&mut self, now_ns: u64) {
        self.since = self.since.max(now_ns);
    }

    /// Raises the level for an event, and restarts the quiet time.
    fn note(&mut self, now_ns: u64, level: Level) {
        self.level = self.level.max(level);
        // INVARIANT 3: the quiet time starts again with each event, also with a debounced one.
        self.hold(now_ns);
    }

    /// Lowers the ceiling to `to`, but not below the floor. `from` is the usage under the ceiling.
    /// Returns whether the ceiling fell.
    fn lower(&mut self, to: ByteSize, from: ByteSize) -> bool {
        let lowered = to.max(self.floor());
        if lowered >= self.ceiling() {
            return false;
        }
        if self.lowered_to.is_none() {
            self.came_from = from;
        }
        self.lowered_to = Some(lowered);
        true
    }

    /// Advances the time to `now_ns`, and makes all steps that were [due](Self::due) by then.
    /// Returns whether the ceiling rose.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let before = self.ceiling();
        // Terminates: each iteration lowers the level or makes one of fewer than 2 * `STEPS` steps,
        // as a step is rounded down.
        while let Some(due) = self.due().filter(|due| *due <= now_ns) {
            self.since = due;
            if self.level > Level::Calm {
                self.level = self.level.lower();
            } else {
                self.step_up();
            }
        }
        self.ceiling() > before
    }

    /// Returns the time of the next step of [`tick`](Self::tick); `None` if there is no pressure
    /// and the ceiling has risen to the budget.
    pub fn due(&self) -> Option<u64> {
        let wait = if self.level > Level::Calm {
            self.config.quiet
        } else if self.lowered_to.is_some() {
            self.config.step_time
        } else {
            return None;
        };
        Some(self.since.saturating_add(nanos(wait)))
    }

    /// Changes the budget. A ceiling that pressure has lowered stays, limited to the range from the
    /// new floor to the new budget, also for the next changes of the budget.
    pub fn set_budget(&mut self, budget: ByteSize) {
        self.budget = budget;
    }

    fn step_up(&mut self) {
        let top = if self.budget == ByteSize::MAX { self.came_from } else { self.budget };
        // At least one byte, so that a ceiling of a few bytes rises, too.
        let step = ByteSize::new((top.get() / STEPS).max(1));
        let risen = self.ceiling().saturating_add(step);
        // INVARIANT 4: the last step restores the whole budget.
        self.lowered_to = Some(risen).filter(|risen| *risen < top);
    }

    fn is_debounced(&self, now_ns: u64, level: Level) -> bool {
        self.answered
            .is_some_and(|(at, answered)| level <= answered && now_ns.saturating_sub(at) < nanos(self.config.debounce))
    }

    fn percent(&self, level: Level) -> u8 {
        match level {
            Level::Calm => 0,
            Level::Low => self.config.low_percent,
            Level::Medium => self.config.medium_percent,
            Level::Critical => self.config.critical_percent,
        }
    }

    fn floor(&self) -> ByteSize {
        let by_default = match self.budget {
            ByteSize::MAX => FLOOR_UNLIMITED,
            budget => ByteSize::new(budget.get() / FLOOR_PARTS),
        };
        self.config.floor.unwrap_or(by_default).min(self.budget)
    }
}

/// Returns `bytes` less `percent` of them; 0 for 100 and more.
fn less_percent(bytes: ByteSize, percent: u8) -> ByteSize {
    let part = u128::from(bytes.get()) * u128::from(percent) / 100;
    bytes.saturating_sub(ByteSize::new(u64::try_from(part).unwrap_or(u64::MAX)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
