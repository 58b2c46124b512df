//! Memory pressure from outside the process, and the limit that it leaves a group (`Memcg` of `lowwater-lru-core`).
//!
//! Each source raises one [`Level`] for all; the [`Monitor`] polls the sources, and the [`Target`] decides:
//!
//! | source | when | level |
//! |---|---|---|
//! | [`Psi`], `some` | a task waited too long for memory | medium |
//! | [`Psi`], `full` | all tasks did | critical |
//! | [`systemd`] | the service manager says so | medium |
//! | [`CgroupLimit`] | the control group comes near its limit; is at it and finds nothing to reclaim | medium; critical |
//! | by hand ([`Monitor::raise`]) | the program says so | any |
//!
//! The crate knows no cache and no shrinker. A [`BackgroundReclaim`] brings a group's usage down at its own pace;
//! the ceiling stays low afterwards: see [`Target`].
//!
//! # Fork
//!
//! The child of a `fork` has no thread of a [`Monitor`], and locks that the thread held are never given back there. So the child must
//! neither use nor drop a monitor (the drop waits for the thread): it calls `exec`, or ends by `_exit`.
//!
//! # Modules
//!
//! From the lowest to the highest:
//!
//! | module | |
//! |---|---|
//! | `text` | what small text files of the kernel have in common, and [`TextError`] |
//! | `level` | [`Level`]: how bad the pressure is |
//! | [`psi`] | pressure stall information: triggers, and the text of its files |
//! | [`cgroup`] | the control group of this process: its place, limits, usage and events |
//! | [`systemd`] | the service manager's variables |
//! | `target` | [`Target`]: the ceiling, as arithmetic without thread or clock |
//! | `trim` | [`Trim`]: the hook that returns freed memory to the system, and when it is due |
//! | `source` | [`Source`]: an open file that tells pressure, and the poll that waits for it |
//! | `reclaim` | [`BackgroundReclaim`]: the trait of what a monitor drives |
//! | `monitor` | [`Monitor`]: the thread |

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
extern crate std;

pub mod cgroup;
mod level;
mod monitor;
pub mod psi;
mod reclaim;
mod source;
pub mod systemd;
mod target;
mod text;
mod trim;

pub use level::Level;
pub use monitor::{CgroupLimit, CgroupStats, Monitor, MonitorConfig, MonitorError, PressureStats, SourceStats};
pub use psi::{Psi, Stalls, Trigger, TriggerError};
pub use reclaim::BackgroundReclaim;
pub use source::{Source, SourceError};
pub use target::{PressureConfig, Target};
pub use text::TextError;
pub use trim::Trim;
