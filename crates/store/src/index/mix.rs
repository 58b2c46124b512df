//! Hash mixing.

use lowwater_base::hash::GOLDEN_RATIO;

/// Spreads a hash over all bits, because hashers may leave some of them poor. Combines both halves
/// of one product, as wyhash does.
#[inline]
pub(super) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * u128::from(GOLDEN_RATIO);
    product as u64 ^ (product >> 64) as u64
}
