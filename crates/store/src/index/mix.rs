//! Mixing of hashes.

/// Spreads a hash over all bits: hashers are allowed to leave some of them poor. Both halves of one product, as in wyhash and its kin.
#[inline]
pub(super) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9E37_79B9_7F4A_7C15;
    product as u64 ^ (product >> 64) as u64
}
