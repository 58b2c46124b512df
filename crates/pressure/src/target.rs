//! The sticky target: what may be used from now on, decided without thread or clock.
//!
//! A shrink alone does not help: a cache that was shrunk refills before the next sample, and the machine runs out of memory
//! all the same. So pressure lowers a ceiling, and the ceiling stays until the pressure has been judged again:
//!
//! ```text
//!     budget  ----.                                        .---- lifted
//!                 |                                     .--'
//!                 | event: usage less a share        .--'  a step each `step_time`
//!                 '----.                          .--'
//!                      | event, again             |
//!     ceiling          '--------------------------'
//!     level       medium                 low     calm
//!                      |---- quiet ----|- quiet --|
//! ```
//!
//! - **Down at once.** An event takes a share of what is *used*, not of the budget: an empty half of a budget helps nobody.
//!   Events of one [`debounce`](PressureConfig::debounce) time are one event, unless a worse one comes.
//! - **Up late and slowly.** Each [`quiet`](PressureConfig::quiet) time without any event lowers the level by one. At
//!   [`Calm`](Level::Calm) a sixteenth comes back each [`step_time`](PressureConfig::step_time). An event on the way up
//!   starts it all again: that is the hysteresis.
//! - **Never below a floor**, so that a server which has just started may serve at all.
//!
//! # Invariants
//!
//! 1. `min(floor, budget) <= ceiling <= budget`.
//! 2. An event never raises the ceiling, and time never lowers it.
//! 3. The ceiling does not rise before `quiet` has passed since the last event.
//! 4. Without events it is the budget again after a bounded number of ticks.

use core::time::Duration;

use lowwater_lru_core::ByteSize;

use super::Level;

#[cfg(test)]
mod tests;

/// The ceiling comes back in so many steps.
const STEPS: u64 = 16;
/// Of a budget, the part that pressure does not take.
const FLOOR_PARTS: u64 = 16;
/// The floor where there is no budget.
const FLOOR_UNLIMITED: ByteSize = ByteSize::mib(16);

/// The answer to pressure. The defaults suit a server; all of them can be changed.
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
    /// Of what is used, the percentage that an event of [`Level::Low`] takes; 6 by default, 100 at most.
    pub low_percent: u8,
    /// The percentage that an event of [`Level::Medium`] takes; 12 by default.
    pub medium_percent: u8,
    /// The percentage that an event of [`Level::Critical`] takes; 25 by default.
    pub critical_percent: u8,
    /// The floor below which pressure takes nothing; a sixteenth of the budget by default, or 16 MiB where there is none.
    pub floor: Option<ByteSize>,
    /// Events that come within this time of one that was answered are that one, unless they are worse; 1 s by default.
    pub debounce: Duration,
    /// The time without events after which the level falls by one; 10 s by default.
    pub quiet: Duration,
    /// The time between two steps by which memory is given back; 2 s by default.
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

/// The state: a level, and the ceiling that it has led to. Times are nanoseconds of any clock that does not go back.
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
    ceiling: ByteSize,
    level: Level,
    /// Where the way back leads when there is no budget: what was used when the pressure began.
    came_from: ByteSize,
    /// When an event was last answered, and how bad it was.
    answered: Option<(u64, Level)>,
    /// When the level last changed or an event last came; on the way up, when the last step was made.
    since: u64,
}

impl Target {
    /// No pressure yet, and `budget` to use.
    pub fn new(config: PressureConfig, budget: ByteSize) -> Self {
        Self {
            config,
            budget,
            ceiling: budget,
            level: Level::Calm,
            came_from: ByteSize::ZERO,
            answered: None,
            since: 0,
        }
    }

    /// The most that may be used now.
    pub fn ceiling(&self) -> ByteSize {
        self.ceiling
    }

    /// The most that may be used without pressure.
    pub fn budget(&self) -> ByteSize {
        self.budget
    }

    /// How bad it is.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Is less allowed than the budget?
    pub fn is_lowered(&self) -> bool {
        self.ceiling < self.budget
    }

    /// An event: somebody says at `now_ns` that it is as bad as `level`, while `usage` is used. True if the ceiling fell.
    pub fn raise(&mut self, now_ns: u64, level: Level, usage: ByteSize) -> bool {
        if level == Level::Calm {
            return false;
        }
        self.note(now_ns, level);
        if self.is_debounced(now_ns, level) {
            return false;
        }
        self.answered = Some((now_ns, level));
        let from = usage.min(self.ceiling);
        self.lower(less_percent(from, self.percent(level)), from)
    }

    /// An event by somebody who knows how much there is: at `now_ns` it is as bad as `level` with a `usage` that should come down
    /// to `at_most`. True if the ceiling fell. It is answered even while others are debounced.
    pub fn raise_to(&mut self, now_ns: u64, level: Level, usage: ByteSize, at_most: ByteSize) -> bool {
        if level == Level::Calm {
            return false;
        }
        self.note(now_ns, level);
        self.lower(at_most, usage.min(self.ceiling))
    }

    fn note(&mut self, now_ns: u64, level: Level) {
        self.level = self.level.max(level);
        // INVARIANT 3: the quiet time starts again with each event, answered or not.
        self.since = self.since.max(now_ns);
    }

    fn lower(&mut self, to: ByteSize, from: ByteSize) -> bool {
        let lowered = to.max(self.floor());
        if lowered >= self.ceiling {
            return false;
        }
        if !self.is_lowered() {
            self.came_from = from;
        }
        self.ceiling = lowered;
        true
    }

    /// Time has passed. True if the ceiling rose. Catches up with all that was [due](Self::due) before `now_ns`.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let before = self.ceiling;
        // Ends: each round lowers the level or makes one of `STEPS` steps.
        while let Some(due) = self.due().filter(|due| *due <= now_ns) {
            self.since = due;
            if self.level > Level::Calm {
                self.level = self.level.lower();
            } else {
                self.step_up();
            }
        }
        self.ceiling > before
    }

    /// When [`tick`](Self::tick) has something to do next; never, if there is no pressure and the ceiling is the budget.
    pub fn due(&self) -> Option<u64> {
        let wait = if self.level > Level::Calm {
            self.config.quiet
        } else if self.is_lowered() {
            self.config.step_time
        } else {
            return None;
        };
        Some(self.since.saturating_add(nanos(wait)))
    }

    /// Another budget. A ceiling that pressure has lowered stays, but for one above the new budget or below its floor.
    pub fn set_budget(&mut self, budget: ByteSize) {
        let was_lowered = self.is_lowered();
        self.budget = budget;
        self.ceiling = if was_lowered { self.ceiling.max(self.floor()).min(budget) } else { budget };
    }

    fn step_up(&mut self) {
        let top = if self.budget == ByteSize::MAX { self.came_from } else { self.budget };
        // At least one byte, so that a ceiling of nearly nothing comes back, too.
        let step = ByteSize::new((top.get() / STEPS).max(1));
        let risen = self.ceiling.saturating_add(step);
        // INVARIANT 4: at the top of the way back nothing is held back any more.
        self.ceiling = if risen >= top { self.budget } else { risen };
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

/// `bytes` less `percent` of them; nothing for 100 and more.
fn less_percent(bytes: ByteSize, percent: u8) -> ByteSize {
    let part = u128::from(bytes.get()) * u128::from(percent) / 100;
    bytes.saturating_sub(ByteSize::new(u64::try_from(part).unwrap_or(u64::MAX)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
