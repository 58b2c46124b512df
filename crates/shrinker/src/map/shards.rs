//! The number of shards of the map.
//!
//! Two under loom, so that models stay small.
//!
//! A change must ensure that the number stays a power of two, and small under loom.

/// Shards of a node, and of the index of shrinkers (`index.rs`): enough that sixteen threads rarely
/// contend if their lists all become non-empty at once. A power of two, so that the remainder of an
/// id, which selects the shard, needs no division.
pub(super) const SHARDS: usize = if cfg!(lowwater_loom) { 2 } else { 16 };
