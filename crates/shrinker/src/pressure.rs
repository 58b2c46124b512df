//! Where pressure comes from: each source only says that a group should use less, and how much less.
//!
//! The sources that a limit makes, each for a group of its own:
//!
//! | source | when | until usage is at most |
//! |---|---|---|
//! | [`Watermarks`] | usage is near `max` | `max` less the high gap |
//! | `high` | a charge went above `memory.high` | `high` |
//! | `max` | a charge was refused | as for watermarks |
//! | by hand ([`Registry::reclaim`](crate::Registry::reclaim)) | somebody asks | what it was, less what was asked for |
//!
//! And those from outside, which raise one [`Level`] for all; the [`Monitor`] hears them, and the [`Target`] decides:
//!
//! | source | when | level |
//! |---|---|---|
//! | [`Psi`], `some` | a task waited too long for memory | medium |
//! | [`Psi`], `full` | all tasks did | critical |
//! | [`systemd`] | the service manager says so | medium |
//! | [`CgroupLimit`] | the control group comes near its limit; is at it and finds nothing to reclaim | medium; critical |
//! | by hand ([`Monitor::raise`]) | somebody says so | any |
//!
//! The reclaimer does the work at its own pace. What comes after it stays low: see [`Target`].

pub mod cgroup;
mod level;
mod manual;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod monitor;
pub mod psi;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod source;
pub mod systemd;
mod target;
mod text;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod trim;
mod watermark;

pub use level::Level;
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub use monitor::{CgroupLimit, CgroupStats, Monitor, MonitorConfig, MonitorError, PressureStats, SourceStats};
pub use psi::{Psi, Stalls, Trigger, TriggerError};
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub use source::{Source, SourceError};
pub use target::{PressureConfig, Target};
pub use text::TextError;
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub use trim::Trim;
pub use watermark::Watermarks;

use lowwater_lru_core::{Bytes, Memcg};

/// Why a group should use less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its usage has come near its `max`.
    #[doc(alias = "wakeup_kswapd")]
    Watermark,
    /// Its usage is above its `high`.
    #[doc(alias = "memory.high")]
    High,
    /// A charge was refused by its `max`.
    #[doc(alias = "memory.max")]
    Limit,
    /// Somebody who could not reclaim left it to the background. Nothing is brought down; what is owed is paid.
    #[doc(alias = "nr_deferred")]
    Debt,
    /// Somebody asked for so many bytes.
    #[doc(alias = "memory.reclaim")]
    Manual(Bytes),
    /// Pressure from outside leaves it this much.
    Pressure(Bytes),
}

impl Reason {
    /// Usage that `memcg` is to come down to.
    pub(crate) fn target(self, memcg: &Memcg, watermarks: &Watermarks) -> Bytes {
        match self {
            Self::Watermark | Self::Limit => watermarks.target(memcg.max()),
            Self::High => memcg.high(),
            Self::Debt => Bytes::MAX,
            Self::Manual(bytes) => memcg.usage().saturating_sub(bytes),
            Self::Pressure(target) => target,
        }
    }
}
