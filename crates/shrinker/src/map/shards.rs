//! How many shards the map has.

/// Shards of a node, and of the index: enough that sixteen threads whose lists fill at once seldom meet. A power of two.
pub(super) const SHARDS: usize = if cfg!(lowwater_loom) { 2 } else { 16 };
