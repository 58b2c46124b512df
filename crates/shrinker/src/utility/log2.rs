//! Logarithms in fixed point.
//!
//! Scores are compared by their logarithms, and kernels have no floating point. A change must keep
//! the documented error, and that the function is monotonic.

/// A logarithm of 1 (a factor of 2), in the units of [`log2`].
pub(crate) const ONE: i32 = 256;

/// Returns the binary logarithm of `x`, which must not be 0, in 256ths; the error is at most 4 of
/// them.
pub(crate) fn log2(x: u64) -> i32 {
    let exponent = x.ilog2();
    // The fraction after the leading 1, in 65,536ths.
    let fraction = i64::from((x << (u64::BITS - 1 - exponent) << 1 >> (u64::BITS - 16)) as u16);
    // log2(1 + f) is approximately f plus a parabola that is 0 at both ends, 0.344 f (1 - f); the
    // error is below 0.0081, which is 2.1 of the 256ths.
    let bend = (((fraction * (0x1_0000 - fraction)) >> 16) * 22_544) >> 16;
    exponent as i32 * ONE + ((fraction + bend) >> 8) as i32
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_logarithm_is_within_its_error_and_never_falls() {
        let mut last = 0;
        for x in (1..100_000).chain((17..64).flat_map(|n| [(1 << n) - 1, 1 << n, 3 << (n - 1)])).chain([u64::MAX]) {
            let exact = (x as f64).log2() * f64::from(ONE);
            assert!((f64::from(log2(x)) - exact).abs() <= 4.0, "{x}: {} for {exact}", log2(x));
            assert!(log2(x) >= last, "{x}");
            last = log2(x);
        }
    }
}
