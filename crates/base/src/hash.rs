//! Hash mixing.
//!
//! One multiplier for all crates, so that none has a multiplier of its own with a worse spread.
//!
//! A change of it moves the entries of all tables, and must be measured. A change must keep
//! [`mix`] a pure function: tables recompute the hashes of their objects.

/// 2^64 divided by the golden ratio: the products of consecutive numbers are far apart (Fibonacci
/// hashing).
#[doc(alias = "GOLDEN_RATIO_64")]
pub const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multiplies to 128 bits and returns the exclusive or of both halves, as wyhash does: every bit of
/// `a` and `b` changes both high and low bits of the result.
#[inline]
#[must_use]
pub const fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Spreads a hash over all bits. A caller may supply any hasher, also one that returns the key, so
/// that some bits are nearly constant.
///
/// ```
/// use lowwater_base::hash::mix;
///
/// assert_ne!(mix(1) >> 48, mix(2) >> 48);
/// ```
#[inline]
#[must_use]
pub const fn mix(hash: u64) -> u64 {
    folded_multiply(hash, GOLDEN_RATIO)
}
