//! A report that an evicted object was missed.

use lowwater_lru_core::ByteSize;

/// A relative cost of 1.
pub(crate) const COST_ONE: u32 = 16;

/// A miss on an object that was evicted, and whose key is remembered: a ghost hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miss {
    /// The bytes of the same group that were evicted after the object: if the group had had so many
    /// more, the object would still be there.
    pub distance: ByteSize,
    /// What the miss costs, in 16ths of what one costs on average over all shrinkers of the registry.
    pub cost: u32,
    /// How many misses it stands for, if only some are reported.
    pub weight: u32,
}

impl Miss {
    /// A miss at this distance, of average cost, which stands for itself.
    pub const fn at(distance: ByteSize) -> Self {
        Self { distance, cost: COST_ONE, weight: 1 }
    }

    /// With another cost, in 16ths.
    pub const fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// Stands for so many.
    pub const fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }
}
