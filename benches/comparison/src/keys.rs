//! The sequences of requested keys: generated before the measurement, and equal for all contenders.
//!
//! Drawing a key takes longer than some of the measured operations, so all keys exist before the
//! clock starts.
//!
//! A change of a sequence makes figures incomparable with those of docs/MEASURED.md.

use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use rand_distr::Zipf;

/// A multiplier that spreads neighbouring numbers over all keys. Odd, so that distinct numbers give
/// distinct keys.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the key of a number.
pub fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

/// Returns Zipf's distribution over the numbers 1 to `keys`: small numbers are the most frequent.
pub fn zipf(keys: usize, exponent: f64) -> Zipf<f64> {
    Zipf::new(keys as f64, exponent).expect("keys, and a positive exponent")
}

/// Returns `length` keys by Zipf's law; a different sequence for each `seed`.
pub fn zipf_keys(keys: usize, exponent: f64, length: usize, seed: u64) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(seed);
    let zipf = zipf(keys, exponent);
    (0..length).map(|_| key(zipf.sample(&mut random) as u64 - 1)).collect()
}
