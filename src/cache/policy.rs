//! Eviction policy: which record of a tenant is evicted next, and which tenant is evicted from.

pub(crate) mod batch;
pub(crate) mod cost;
mod eviction;
pub(crate) mod ghost_recorder;
mod lap;
mod mean_uses;
pub(crate) mod queue;
pub(crate) mod queue_walk;
pub(crate) mod queues;
pub(crate) mod tenant;
mod tenants;

pub use eviction::Eviction;
