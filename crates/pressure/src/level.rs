//! The level of memory pressure.
//!
//! Four levels instead of a number: each source maps its own signal to one, and only `Target` turns
//! a level into bytes.
//!
//! A change must keep the variants in the order of their severity: levels are compared.

/// The level of memory pressure. Sources only raise it; time alone lowers it
/// ([`Target`](super::Target)).
///
/// ```
/// use lowwater_pressure::Level;
/// assert!(Level::Low < Level::Critical);
/// assert_eq!(Level::Critical.lower(), Level::Medium);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No pressure: a lowered ceiling rises again.
    #[default]
    Calm,
    /// Memory is getting tight. No source of this crate reports it, but a program may, and a higher
    /// level falls to it.
    Low,
    /// At least one task waits for memory, or a maximum is near: PSI's `some`, systemd, or a cgroup
    /// or resident memory that leaves at most half of its margin.
    Medium,
    /// All tasks wait for memory, or an allocation is about to fail: PSI's `full`, a cgroup that is
    /// out of memory, or a cgroup or resident memory that leaves at most a quarter of its margin.
    Critical,
}

impl Level {
    /// Returns the level below; [`Calm`](Self::Calm) for `Calm`.
    pub const fn lower(self) -> Self {
        match self {
            Self::Critical => Self::Medium,
            Self::Medium => Self::Low,
            Self::Low | Self::Calm => Self::Calm,
        }
    }
}

impl core::fmt::Display for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Calm => "calm",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::Critical => "critical",
        })
    }
}
