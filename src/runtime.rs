//! The runtime: one memory budget with its groups, registry of shrinkers, and threads.
//!
//! ```text
//!     Runtime
//!       groups       path -> Memcg, created on first use; `TenantGroups` for names from clients
//!       tree         the groups: limits and charges
//!       topology     the NUMA nodes, and the node of a thread
//!       registry     the shrinkers, and the groups for which each of them holds objects
//!       reclaimer    one thread per node; calls the shrinkers when usage is near a limit
//!       housekeeper  one thread reaps expired records, empties dropped groups and compacts;
//!                    another is the standby
//!       pressure     watches the system's memory pressure and lowers the budget for a while;
//!                    only if the builder has a choice for it, or the budget is the control group's
//! ```
//!
//! Two runtimes in one process are independent of each other, except that they share the processors
//! and the grace periods of `lowwater-rcu`.
//!
//! # What a charge does
//!
//! [`Runtime::charge`] charges the bytes to the group and to all groups above it. Near a limit it
//! wakes the reclaimer, which costs the caller a fence and a few loads if the same request is
//! queued already. At a limit the caller reclaims a little itself, bounded in objects and in time.
//! If there is still no room, the call returns an error, and nothing is charged.
//!
//! [`Runtime::charge_guard`] does the same and returns a [`Charge`], which uncharges the bytes when
//! it is dropped. A [`Charged`] value keeps its charge until its last clone is dropped.
//!
//! # Memory pressure
//!
//! A budget that is set by hand is a guess about the memory that the machine has left. With
//! [`RuntimeBuilder::auto_pressure`], or a method for a single source, the runtime is notified when
//! that guess is too high. It then lowers its effective budget and reclaims from the caches. The
//! lower budget holds until the pressure is evaluated again: see
//! [`pressure::Target`](crate::pressure::Target).
//
// A change that adds a part must put it into the order of drops (`handle.rs`).

mod builder;
mod charge;
mod charge_guard;
mod charged;
mod ghosts;
mod groups;
mod handle;
mod housekeeper;
mod key_order;
mod maintenance;
mod manual_clock;
mod mean_cost;
#[cfg(feature = "metrics")]
mod metrics;
mod monitored;
#[cfg(feature = "metrics")]
mod published;
mod retired;
mod sweep_progress;
mod tenant_groups;
mod visit_list;

pub use builder::{RuntimeBuildError, RuntimeBuilder};
pub use charge_guard::{Charge, ChargeError};
pub use charged::Charged;
pub(crate) use charged::{HeldCharge, HeldValues};
pub(crate) use ghosts::{
    Ghost, Ghosts, Known as KnownGhosts, BYTES_PER_ENTRY as GHOST_BYTES_PER_ENTRY, TIMES as GHOST_TIMES_MAX,
};
pub use handle::{Runtime, RuntimeStats};
pub(crate) use housekeeper::Notifier;
#[cfg(test)]
pub(crate) use housekeeper::WorkTime;
#[cfg(feature = "metrics")]
pub(crate) use maintenance::CacheFigures;
pub(crate) use maintenance::{Maintenance, MaintenanceId, NextRun};
pub(crate) use manual_clock::FollowsClock;
pub use manual_clock::ManualClock;
pub(crate) use mean_cost::MeanCost;
pub use monitored::MonitoredReclaimer;
pub(crate) use retired::{smallest_limit, Known, Retires};
pub(crate) use sweep_progress::SweepProgress;
pub use tenant_groups::{TenantError, TenantGroups, TenantGroupsBuilder};
