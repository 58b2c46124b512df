//! Constants for hashing.
//!
//! One multiplier for all crates, so that none has a multiplier of its own with a worse spread.
//!
//! A change of it moves the entries of all tables, and must be measured.

/// 2^64 divided by the golden ratio: the products of consecutive numbers are far apart (Fibonacci
/// hashing).
#[doc(alias = "GOLDEN_RATIO_64")]
pub const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
