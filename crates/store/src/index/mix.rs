//! Mixing of hashes.

use lowwater_base::hash::GOLDEN_RATIO;

/// Spreads a hash over all bits: hashers are allowed to leave some of them poor. Both halves of one product, as in wyhash and its kin.
#[inline]
pub(super) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * u128::from(GOLDEN_RATIO);
    product as u64 ^ (product >> 64) as u64
}
