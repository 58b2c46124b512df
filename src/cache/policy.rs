//! Eviction policy: the order in which the records of a tenant are evicted.
//!
//! Each tenant of a cache has two queues per node (probation and main, `queue`), and ghosts of
//! evicted keys in the runtime's table. An `Eviction` selects the queue of a new record, whether a
//! use moves a record, how a walk treats a used record, and whether probation's share adapts. The
//! registry chooses the tenant from which records are evicted (`lowwater-shrinker`: `least_useful`,
//! by the scores of `utility`); this module reports ghost hits to it.
//!
//! A change must ensure that the order depends on the tenant's own accesses only.

pub(crate) mod batch;
pub(crate) mod cost;
mod evicted_deadlines;
mod eviction;
pub(crate) mod ghost_recorder;
pub(crate) mod ghost_salt;
mod ghost_stamps;
mod lap;
mod mean_uses;
pub(crate) mod queue;
pub(crate) mod queue_walk;
pub(crate) mod queues;
pub(crate) mod sought_ghost;
pub(crate) mod tenant;
mod tenants;

pub use eviction::Eviction;
