//! Memory pressure on the machine, the container or the service, and a limit for a group (a `Memcg`
//! of `lowwater-lru-core`) that falls while the pressure lasts.
//!
//! Start at [`Monitor::start`] and [`MonitorConfig`].
//!
//! The [`Monitor`] polls the sources. Each source raises one shared [`Level`], from which the
//! [`Target`] computes the limit, called the ceiling. A margin below a maximum is to stay unused:
//!
//! | source | when | level |
//! |---|---|---|
//! | [`Psi`], `some` | at least one task waited too long for memory | medium |
//! | [`Psi`], `full` | all tasks waited too long for memory | critical |
//! | [`systemd`] | the service manager reports pressure | medium |
//! | [`CgroupLimit`] | the control group's usage leaves at most half of the margin; a quarter, or the group is out of memory | medium; critical |
//! | [`MonitorConfig::resident_max`] | the process's resident memory leaves at most half of the margin, and a trim did not help; a quarter | medium; critical |
//! | manual ([`Monitor::raise`]) | the program raises the level | any |
//!
//! The crate depends on no cache and no shrinker: a [`BackgroundReclaim`] reduces the group's usage
//! at its own pace. The ceiling stays low while the pressure lasts, and rises in steps afterwards:
//! see [`Target`].
//!
//! # Fork
//!
//! The child of a `fork` has no thread of a [`Monitor`], and locks that the thread held are never
//! released there. So the child must neither use nor drop a monitor (the drop waits for the
//! thread): it calls `exec`, or ends by `_exit`.
//!
//! # Modules
//!
//! From the lowest to the highest; a module uses none that is higher:
//!
//! | module | |
//! |---|---|
//! | `text` | the format that small text files of the kernel share, and [`TextError`] |
//! | `level` | [`Level`]: the severity of the pressure |
//! | `machine` | [`machine_memory`]: the memory of the whole machine |
//! | `resident` | [`resident_memory`]: the memory of this process |
//! | [`psi`] | pressure stall information: triggers, and the text of its files |
//! | [`cgroup`] | the control group of this process: its directory, limits, usage and events |
//! | [`systemd`] | the variables of the service manager's protocol |
//! | `target` | [`Target`]: the ceiling, as arithmetic without thread or clock |
//! | `trim` | [`Trim`]: the hook that returns freed memory to the system, and its schedule |
//! | `source` | [`Source`]: an open file that reports pressure, and the poll that waits for it |
//! | `reclaim` | [`BackgroundReclaim`]: the trait of the reclaimer that a monitor drives |
//! | `monitor` | [`Monitor`]: the thread |

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
extern crate std;

pub mod cgroup;
mod level;
mod machine;
mod monitor;
pub mod psi;
mod reclaim;
mod resident;
mod source;
pub mod systemd;
mod target;
mod text;
mod trim;

pub use level::Level;
pub use machine::machine_memory;
pub use monitor::{
    CgroupLimit, CgroupStats, Monitor, MonitorConfig, MonitorError, PressureStats, ResidentStats, SourceStats,
};
pub use psi::{Psi, Stalls, Trigger, TriggerError};
pub use reclaim::BackgroundReclaim;
pub use resident::resident_memory;
pub use source::{Source, SourceError};
pub use target::{PressureConfig, Target};
pub use text::TextError;
pub use trim::Trim;
