//! A number of bytes in few bits, as a floating-point number.
//!
//! A change must ensure that a number which was unpacked is packed exactly, also in a format with a
//! longer mantissa: counters add and subtract such numbers.

/// A number of bytes in `MANTISSA` + 4 bits, at most 32: exact below 2^`MANTISSA`, above rounded up
/// by less than one part in 2^(`MANTISSA` - 2). From 2^(`MANTISSA` + 30) on, the largest number
/// that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedSize<const MANTISSA: u32>(u32);

impl<const MANTISSA: u32> PackedSize<MANTISSA> {
    // The four bits above the mantissa are the exponent: the mantissa is shifted by twice the
    // exponent.
    const EXPONENT_MAX: u32 = 15;
    /// Numbers below this are exact.
    pub const EXACT_END: u64 = 1 << MANTISSA;

    /// Packs a number of bytes.
    #[inline]
    pub fn pack(bytes: u64) -> Self {
        if bytes < Self::EXACT_END {
            return Self(bytes as u32);
        }
        Self::pack_large(bytes)
    }

    #[cold]
    fn pack_large(bytes: u64) -> Self {
        let mut exponent = 0_u32;
        let fits = |exponent: u32| bytes.div_ceil(1 << (2 * exponent)) < Self::EXACT_END;
        while exponent < Self::EXPONENT_MAX && !fits(exponent) {
            exponent += 1;
        }
        let mantissa = bytes.div_ceil(1 << (2 * exponent)).min(Self::EXACT_END - 1) as u32;
        Self(mantissa | exponent << MANTISSA)
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn unpack(self) -> u64 {
        (u64::from(self.0) & (Self::EXACT_END - 1)) << (2 * (self.0 >> MANTISSA))
    }

    /// Returns the bits, to be stored.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the number whose bits were stored.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> impl Iterator<Item = u64> {
        (0..1 << 20).step_by(977).chain((0..48).map(|bit| (1 << bit) + 12_345))
    }

    #[test]
    fn a_number_is_rounded_up_by_little() {
        for bytes in numbers() {
            let packed = PackedSize::<18>::pack(bytes).unpack();
            assert!(packed >= bytes && packed - bytes <= bytes >> 16, "{packed} for {bytes}");
            let packed = PackedSize::<28>::pack(bytes).unpack();
            assert!(packed >= bytes && packed - bytes <= bytes >> 26, "{packed} for {bytes}");
            assert!(bytes >= 1 << 28 || packed == bytes);
        }
        assert_eq!(PackedSize::<18>::pack(u64::MAX).unpack(), ((1 << 18) - 1) << 30);
        assert_eq!(PackedSize::<28>::pack(u64::MAX).unpack(), ((1 << 28) - 1) << 30);
    }

    #[test]
    fn an_unpacked_number_is_exact_in_a_longer_format() {
        for bytes in numbers().chain([u64::MAX]) {
            let short = PackedSize::<18>::pack(bytes).unpack();
            assert_eq!(PackedSize::<18>::pack(short).unpack(), short);
            assert_eq!(PackedSize::<28>::pack(short).unpack(), short);
            let long = PackedSize::<28>::pack(bytes);
            assert_eq!(PackedSize::from_bits(long.bits()), long);
        }
    }
}
