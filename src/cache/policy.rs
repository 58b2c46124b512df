//! Eviction policy: which record of a tenant is evicted next, and which tenant is evicted from.

pub(crate) mod batch;
pub(crate) mod cost;
mod deficit;
mod eviction;
mod ghost;
pub(crate) mod ghost_recorder;
mod picker;
pub(crate) mod queue;
pub(crate) mod queues;
pub(crate) mod tenant;
mod tenants;
pub(crate) mod victim;

pub use eviction::Eviction;
pub(crate) use ghost::BYTES_PER_ENTRY as GHOST_BYTES_PER_RECORD;
pub(crate) use picker::VictimPicker;
