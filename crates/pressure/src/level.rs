//! The level of pressure.

/// The level of pressure. Sources only raise it; time alone lowers it ([`Target`](super::Target)).
///
/// ```
/// use lowwater_pressure::Level;
/// assert!(Level::Low < Level::Critical);
/// assert_eq!(Level::Critical.lower(), Level::Medium);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No pressure: memory that was taken away is given back.
    #[default]
    Calm,
    /// Memory is getting tight: give up what nobody has asked for lately.
    Low,
    /// Somebody waits for memory: what PSI's `some` and systemd tell.
    Medium,
    /// Everybody waits for memory, or the next allocation may be the last: PSI's `full`, a cgroup that is almost full.
    Critical,
}

impl Level {
    /// The level below; [`Calm`](Self::Calm) stays.
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
