//! Groups, topology, registry and reclaimer under one roof.
//!
//! ```text
//!     Runtime
//!       groups       name -> Memcg, made when first asked for
//!       tree         Memcg: limits, charges
//!       topology     which node a thread is on
//!       registry     who can give memory back, and for whom
//!       reclaimer    a thread a node, that makes them
//!       housekeeper  a thread that reaps expired records, empties dropped groups and compacts; and a standby
//!       pressure     hears the machine, and lowers the budget for a while (only if the builder was told to)
//! ```
//!
//! Nothing is global: two runtimes in one process do not meet, but for the read side of lru-core and the processors.
//!
//! # What a charge does
//!
//! [`Runtime::charge`] takes the bytes from the group and from all above it. Near a limit the reclaimer is woken, which costs the
//! caller a few loads. At a limit the caller frees a little itself, bounded in objects and in time; if that is not enough it is told so,
//! and nothing is lost.
//!
//! [`Runtime::charge_guard`] does the same for a [`Charge`], which gives the bytes back when it is dropped. A [`Charged`] value keeps its charge until
//! its last clone is dropped.
//!
//! # Pressure from outside
//!
//! A budget by hand is a guess about what the machine has left. With [`RuntimeBuilder::cgroup_limit`],
//! [`watch_psi`](RuntimeBuilder::watch_psi) or [`systemd`](RuntimeBuilder::systemd) the runtime also hears when the guess was
//! wrong. Then it lowers its effective budget, has the caches give way, and keeps it there until the pressure has been judged again:
//! see [`pressure::Target`](crate::pressure::Target).

mod builder;
mod charge;
mod charge_guard;
mod charged;
mod ghosts;
mod groups;
mod handle;
mod housekeeper;
mod maintenance;
mod mean_cost;
#[cfg(feature = "metrics")]
mod metrics;
mod monitored;
#[cfg(feature = "metrics")]
mod published;
mod retired;

pub use builder::{RuntimeBuildError, RuntimeBuilder};
pub use charge_guard::{Charge, ChargeError};
pub use charged::Charged;
pub(crate) use charged::{HeldCharge, HeldValues};
pub(crate) use ghosts::{
    Ghost, Ghosts, Known as KnownGhosts, BYTES_PER_ENTRY as GHOST_BYTES_PER_ENTRY, TIMES as GHOST_TIMES_MAX,
};
pub use handle::{Runtime, RuntimeStats};
pub(crate) use housekeeper::Notifier;
#[cfg(feature = "metrics")]
pub(crate) use maintenance::CacheFigures;
pub(crate) use maintenance::{Maintenance, MaintenanceId, NextRun};
pub(crate) use mean_cost::MeanCost;
pub use monitored::MonitoredReclaimer;
pub(crate) use retired::Retires;
