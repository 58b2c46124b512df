//! Eviction policy: which record of a tenant is evicted next, and which tenant is evicted from.

pub(crate) mod batch;
pub(crate) mod cost;
mod eviction;
pub(crate) mod ghost_recorder;
pub(crate) mod queue;
pub(crate) mod queues;
pub(crate) mod tenant;
mod tenants;

pub use eviction::Eviction;
