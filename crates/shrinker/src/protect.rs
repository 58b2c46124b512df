//! The protection of groups by `min` and `low`: whether a reclaim may visit a group, and how many
//! of its bytes it may free.
//!
//! Numbers such as S19 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that no visit plans to free more than the unprotected part of a group,
//! beyond one object.

use lowwater_lru_core::{ByteSize, Memcg};

/// Whether a group's protection limits are respected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protect {
    /// `min` always, `low` as long as other groups can give memory.
    Limits,
    /// No group is protected.
    Nothing,
}

/// The protection layers of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Groups that neither `min` nor `low` protects.
    AboveLow,
    /// Groups that only `low` protects.
    BelowLow,
}

/// The part of a group that its layer does not protect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unprotected {
    pub(crate) layer: Layer,
    /// The bytes that may be freed before `low` or `min` protects the group; `u64::MAX` if neither
    /// does.
    pub(crate) bytes: u64,
    /// The bytes that the group uses; not 0.
    usage: u64,
}

impl Unprotected {
    /// A group without protection.
    pub(crate) const ALL: Self = Self { layer: Layer::AboveLow, bytes: u64::MAX, usage: 1 };

    /// Returns the unprotected part of a group in a reclaim from `root`; `None` if the group is not
    /// touched: it is dying (its parent has its objects, S19), or uses no more than its `min`
    /// protects.
    pub(crate) fn of(memcg: &Memcg, root: &Memcg, protect: Protect) -> Option<Self> {
        if !memcg.is_online() {
            return None;
        }
        if protect == Protect::Nothing {
            return Some(Self::ALL);
        }
        let protection = memcg.protection(root);
        if protection.min.max(protection.low) == ByteSize::ZERO {
            return Some(Self::ALL);
        }
        let usage = memcg.usage().get();
        let above = |limit: ByteSize| usage.checked_sub(limit.get()).filter(|bytes| *bytes > 0);
        if let Some(bytes) = above(protection.low.max(protection.min)) {
            return Some(Self { layer: Layer::AboveLow, bytes, usage });
        }
        match protection.min {
            ByteSize::ZERO => Some(Self { layer: Layer::BelowLow, ..Self::ALL }),
            min => above(min).map(|bytes| Self { layer: Layer::BelowLow, bytes, usage }),
        }
    }

    /// As [`of`](Self::of), if the group is in this layer.
    pub(crate) fn in_layer(layer: Layer, memcg: &Memcg, root: &Memcg, protect: Protect) -> Option<Self> {
        Self::of(memcg, root, protect).filter(|unprotected| unprotected.layer == layer)
    }

    /// Returns how many of the group's `objects` may be freed, if all are of the same size: at
    /// least one, as the last one may be larger than what is unprotected; `u64::MAX` if nothing is
    /// protected.
    pub(crate) fn part_of(self, objects: u64) -> u64 {
        if self.bytes >= self.usage {
            return u64::MAX;
        }
        let part = u128::from(objects) * u128::from(self.bytes) / u128::from(self.usage);
        (part as u64).max(1)
    }
}
