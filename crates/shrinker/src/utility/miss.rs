//! A report that an evicted object was missed.
//!
//! A plain value with defaults, so that a reporter sets only the fields that it knows. A new field
//! needs a default.

use lowwater_lru_core::ByteSize;

/// A relative cost of 1: costs are in 16ths.
pub(crate) const COST_ONE: u32 = 16;

/// A ghost hit: a miss on an object that was evicted, and whose key is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miss {
    /// The bytes of the same shrinker and group that were evicted after the object: with this many
    /// more bytes for them, the object would still be cached.
    pub distance: ByteSize,
    /// The cost of the miss, in 16ths of the average cost over all shrinkers of the registry.
    pub cost: u32,
    /// The number of misses that this report represents, if only some are reported.
    pub weight: u32,
}

impl Miss {
    /// Creates a miss at this distance, of average cost and weight 1.
    pub const fn at(distance: ByteSize) -> Self {
        Self { distance, cost: COST_ONE, weight: 1 }
    }

    /// Sets the cost of the miss, in 16ths of the average cost over all shrinkers of the registry;
    /// 16 by default.
    pub const fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// Sets the number of misses that this report represents, for example 8 if one of 8 misses is
    /// reported; 1 by default. The miss counts this number of times.
    pub const fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }
}
