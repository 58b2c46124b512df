//! Which keys are asked for: made before anything is timed, the same for every contender.

use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand::SeedableRng;
use rand_distr::Zipf;

/// Odd, so that no two numbers become one key; spreads neighbours over all tables.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key of this number.
pub fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD)
}

/// Numbers from 0 to `keys` by Zipf's law: the smaller, the more often.
pub fn zipf(keys: usize, exponent: f64) -> Zipf<f64> {
    Zipf::new(keys as f64, exponent).expect("keys, and a positive exponent")
}

/// So many keys by Zipf's law; another sequence for each `seed`.
pub fn zipf_keys(keys: usize, exponent: f64, length: usize, seed: u64) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(seed);
    let zipf = zipf(keys, exponent);
    (0..length).map(|_| key(zipf.sample(&mut random) as u64 - 1)).collect()
}
