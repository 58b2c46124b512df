//! Pressure stall information (PSI): how long tasks had to wait for memory, and triggers by which
//! the kernel reports it.
//!
//! `some` is time in which at least one task waited, `full` is time in which all of them did. A
//! [`Trigger`] makes the kernel report each window that has at least a given amount of it. [`Psi`]
//! is a trigger for the system or for one cgroup. [`Stalls`] is the parsed content of a PSI file.
//!
//! This module only parses and formats; [`Source`](super::Source) opens and polls the files.
//
// A change must keep the text of a trigger as the kernel expects it, and parse any text without a
// panic.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use thiserror::Error;

use super::text::{number, TextError};
use super::Level;

#[cfg(test)]
mod tests;

/// The shortest and the longest window that kernels accept.
const WINDOW_MIN: Duration = Duration::from_millis(500);
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// Without `CAP_SYS_RESOURCE` windows must be multiples of this, because the kernel then samples at
/// its own fixed interval.
const WINDOW_UNPRIVILEGED: Duration = Duration::from_secs(2);

/// The kind of stall that counts: that of any task, or of all tasks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// Time in which at least one task waited for memory.
    Some,
    /// Time in which every task that had something to do waited for memory.
    Full,
}

impl StallKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Some => "some",
            Self::Full => "full",
        }
    }
}

/// A PSI trigger: the kernel reports each window in which tasks waited for memory for at least the
/// stall time.
///
/// ```
/// use core::time::Duration;
/// use lowwater_pressure::Trigger;
///
/// let trigger = Trigger::some(Duration::from_millis(150), Duration::from_secs(2))?;
/// assert_eq!(trigger.to_string(), "some 150000 2000000");
/// assert!(trigger.is_unprivileged());
/// # Ok::<(), lowwater_pressure::TriggerError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    kind: StallKind,
    stall: Duration,
    window: Duration,
}

/// A trigger that no kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// The window is too short or too long.
    #[error(
        "a PSI window of {0:?} is out of range: choose 500 ms to 10 s; without CAP_SYS_RESOURCE a multiple of 2 s"
    )]
    Window(Duration),
    /// The stall is 0, or longer than the window.
    #[error(
        "a stall of {stall:?} in a window of {window:?} is out of range: choose more than 0 and at most the window"
    )]
    Stall {
        /// The requested stall time.
        stall: Duration,
        /// The requested window.
        window: Duration,
    },
}

impl Trigger {
    /// Returns a trigger for windows in which at least one task waited for the time `stall`; its
    /// events mean [`Level::Medium`]. Both times count in whole microseconds.
    ///
    /// Without `CAP_SYS_RESOURCE` the kernel accepts only windows of 2, 4, 6, 8 and 10 s.
    ///
    /// # Errors
    ///
    /// [`TriggerError`] for a window outside of 500 ms to 10 s, and for a stall that is 0 or longer
    /// than the window.
    pub fn some(stall: Duration, window: Duration) -> Result<Self, TriggerError> {
        Self::new(StallKind::Some, stall, window)
    }

    /// Returns a trigger for windows in which all tasks waited for the time `stall`; its events
    /// mean [`Level::Critical`]. Otherwise as [`some`](Self::some).
    ///
    /// # Errors
    ///
    /// The errors of [`some`](Self::some).
    pub fn full(stall: Duration, window: Duration) -> Result<Self, TriggerError> {
        Self::new(StallKind::Full, stall, window)
    }

    fn new(kind: StallKind, stall: Duration, window: Duration) -> Result<Self, TriggerError> {
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) {
            return Err(TriggerError::Window(window));
        }
        if stall.as_micros() == 0 || stall > window {
            return Err(TriggerError::Stall { stall, window });
        }
        Ok(Self { kind, stall, window })
    }

    /// Returns the kind of stall that counts.
    pub fn kind(&self) -> StallKind {
        self.kind
    }

    /// Returns the stall time within one window that fires the trigger.
    pub fn stall(&self) -> Duration {
        self.stall
    }

    /// Returns the length of a window.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Returns whether the kernel accepts this trigger without `CAP_SYS_RESOURCE`.
    pub fn is_unprivileged(&self) -> bool {
        self.window.as_micros() % WINDOW_UNPRIVILEGED.as_micros() == 0
    }

    /// Returns the level of pressure that an event of this trigger means.
    pub fn level(&self) -> Level {
        match self.kind {
            StallKind::Some => Level::Medium,
            StallKind::Full => Level::Critical,
        }
    }
}

impl fmt::Display for Trigger {
    /// Formats as the text that the kernel expects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.name(), self.stall.as_micros(), self.window.as_micros())
    }
}

/// A trigger, and the tasks whose stalls it watches.
///
/// ```
/// use core::time::Duration;
/// use lowwater_pressure::{Psi, Trigger};
///
/// let trigger = Trigger::full(Duration::from_millis(50), Duration::from_secs(2))?;
/// let whole_machine = Psi::system(trigger);
/// let one_service = Psi::cgroup("/sys/fs/cgroup/system.slice/shop.service", trigger);
/// # Ok::<(), lowwater_pressure::TriggerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Psi {
    pub(super) file: PsiFile,
    pub(super) trigger: Trigger,
}

/// The PSI file to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PsiFile {
    At(String),
    /// That of the process's cgroup, which is looked up when the watch begins.
    OwnCgroup,
}

impl Psi {
    /// Watches the whole system: `/proc/pressure/memory`.
    pub fn system(trigger: Trigger) -> Self {
        Self::file("/proc/pressure/memory", trigger)
    }

    /// Watches the cgroup (v2) with this directory: its `memory.pressure`.
    pub fn cgroup(directory: &str, trigger: Trigger) -> Self {
        Self::file(&format!("{}/memory.pressure", directory.trim_end_matches('/')), trigger)
    }

    /// Watches the cgroup (v2) that this process belongs to when the watch begins.
    pub fn own_cgroup(trigger: Trigger) -> Self {
        Self { file: PsiFile::OwnCgroup, trigger }
    }

    /// Watches any file that accepts PSI triggers.
    pub fn file(path: &str, trigger: Trigger) -> Self {
        Self { file: PsiFile::At(path.into()), trigger }
    }

    /// Returns the trigger that is written to the PSI file when the watch begins: the stall time
    /// and the window at which the kernel sends an event.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }
}

/// The text of a PSI file, parsed: `/proc/pressure/memory`, or a cgroup's `memory.pressure`.
///
/// ```
/// use lowwater_pressure::Stalls;
///
/// let stalls = Stalls::parse("some avg10=1.25 avg60=0.00 avg300=0.00 total=58761\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")?;
/// assert_eq!(stalls.some.avg10_hundredths, 125);
/// assert_eq!(stalls.full.total_us, 7);
/// # Ok::<(), lowwater_pressure::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Time in which at least one task waited.
    pub some: Stall,
    /// Time in which all tasks waited.
    pub full: Stall,
}

/// One line of a PSI file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// The share of the last 10 s, in hundredths of a percent.
    pub avg10_hundredths: u32,
    /// The share of the last 60 s, in hundredths of a percent.
    pub avg60_hundredths: u32,
    /// The share of the last 300 s, in hundredths of a percent.
    pub avg300_hundredths: u32,
    /// The total time since boot, or since the cgroup was created, in microseconds.
    pub total_us: u64,
}

impl Stalls {
    /// Parses the text of a PSI file. Unknown fields, which later kernels may add, are skipped.
    ///
    /// # Errors
    ///
    /// [`TextError`], which names the missing or malformed field.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        Ok(Self { some: Stall::parse(text, "some")?, full: Stall::parse(text, "full")? })
    }
}

impl Stall {
    fn parse(text: &str, kind: &str) -> Result<Self, TextError> {
        let fields = text
            .lines()
            .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
            .ok_or_else(|| TextError::new(kind, text.lines().next().unwrap_or(""), "a line that begins with it"))?;
        let field = |name: &str| {
            let found = fields.split_ascii_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| TextError::new(&format!("{kind} {name}"), fields, "it after an \"=\""))
        };
        let share = |name: &str| hundredths(&format!("{kind} {name}"), field(name)?);
        Ok(Self {
            avg10_hundredths: share("avg10")?,
            avg60_hundredths: share("avg60")?,
            avg300_hundredths: share("avg300")?,
            total_us: number(&format!("{kind} total"), field("total")?)?,
        })
    }
}

impl fmt::Display for Stalls {
    /// Formats as the kernel does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, stall) in [("some", self.some), ("full", self.full)] {
            let share = |n: u32| format!("{}.{:02}", n / 100, n % 100);
            let (avg10, avg60, avg300) =
                (share(stall.avg10_hundredths), share(stall.avg60_hundredths), share(stall.avg300_hundredths));
            writeln!(f, "{kind} avg10={avg10} avg60={avg60} avg300={avg300} total={}", stall.total_us)?;
        }
        Ok(())
    }
}

/// Parses a percentage with two decimals into hundredths of a percent.
fn hundredths(field: &str, text: &str) -> Result<u32, TextError> {
    let wrong = || TextError::new(field, text, "a percentage with two decimals, such as 1.25");
    let (whole, part) = text.split_once('.').filter(|(_, part)| part.len() == 2).ok_or_else(wrong)?;
    let (whole, part) = (number(field, whole).map_err(|_| wrong())?, number(field, part).map_err(|_| wrong())?);
    let sum = whole.checked_mul(100).and_then(|n| n.checked_add(part)).ok_or_else(wrong)?;
    u32::try_from(sum).map_err(|_| wrong())
}

/// Fuzz target: any text is parsed or rejected, and a parsed value formats to text that parses to
/// the same value.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    if let Ok(stalls) = Stalls::parse(text) {
        assert_eq!(Stalls::parse(&format!("{stalls}")), Ok(stalls), "a parsed value does not survive formatting");
    }
}
