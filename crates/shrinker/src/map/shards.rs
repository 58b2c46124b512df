//! The number of shards of the map.

/// Shards of a node, and of the index: enough that sixteen threads rarely contend if their lists
/// all become non-empty at once. A power of two.
pub(super) const SHARDS: usize = if cfg!(lowwater_loom) { 2 } else { 16 };
