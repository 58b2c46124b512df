//! Eviction policy: which record of a tenant is evicted next, and which tenant is evicted from.
//!
//! Each tenant of a cache has two queues per node (probation and main, `queue`), and ghosts of
//! evicted keys in the runtime's table. An `Eviction` selects how a walk treats a used record.
//! Choosing the tenant is the runtime's (`lowwater-shrinker`, `utility`); this module supplies its
//! reports of ghost hits.
//!
//! A change must ensure that a choice depends on the tenant's own accesses only; between tenants
//! the registry decides.

pub(crate) mod batch;
pub(crate) mod cost;
mod eviction;
pub(crate) mod ghost_recorder;
mod ghost_stamps;
mod lap;
mod mean_uses;
pub(crate) mod queue;
pub(crate) mod queue_walk;
pub(crate) mod queues;
pub(crate) mod tenant;
mod tenants;

pub use eviction::Eviction;
