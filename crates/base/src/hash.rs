//! Constants for hashing.
//!
//! One constant for all crates, so that a table that is indexed by one hash is not filled unevenly
//! by another.
//!
//! A change of a constant moves the entries of all tables, and must be measured.

/// 2^64 divided by the golden ratio: the products of consecutive numbers are far apart (Fibonacci
/// hashing).
#[doc(alias = "GOLDEN_RATIO_64")]
pub const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
