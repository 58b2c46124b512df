//! An amount of memory.
//!
//! A type of its own keeps a number of entries or pages from being passed where bytes are expected.
//! Arithmetic saturates (the operators and the constructors alike). `FromStr` reads the text of
//! `{}` back to the same amount, and the rounded text of `{:#}` to an amount within a tenth of its
//! unit.
//!
//! A change must ensure that no operation wraps, that none panics except the division by zero, and
//! that `FromStr` reads every text that `Display` writes without a width.

#[cfg(feature = "serde")]
mod serde;

use core::fmt::{self, Write};
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// An amount of memory in bytes, as in cgroup v2's `memory.*` files. A separate type, so that it
/// cannot be confused with a count of objects.
///
/// ```
/// use lowwater_base::ByteSize;
/// assert_eq!(ByteSize::mib(64).get(), 64 << 20);
/// assert_eq!(ByteSize::MAX.to_string(), "max");
/// assert_eq!("1536K".parse::<ByteSize>().unwrap(), ByteSize::kib(1536));
/// assert_eq!("1.5 GiB".parse::<ByteSize>().unwrap(), ByteSize::mib(1536));
/// assert_eq!(format!("{:#}", ByteSize::kib(12_800)), "12.5 MiB");
/// ```
///
/// `{}` is for files: the exact number of bytes, or `max`. `{:#}` is for people: rounded, with a
/// unit. [`FromStr`](core::str::FromStr) reads both.
///
/// Operators saturate, as [`saturating_add`](Self::saturating_add) and
/// [`saturating_sub`](Self::saturating_sub) do: no limit plus an amount is no limit, and no amount
/// is negative. A division by zero panics.
///
/// ```
/// use lowwater_base::ByteSize;
/// let sizes = [ByteSize::kib(3), ByteSize::from(512_u64), ByteSize::from(512_usize)];
/// assert_eq!(sizes.into_iter().sum::<ByteSize>(), ByteSize::kib(4));
/// assert_eq!(ByteSize::mib(1) / 4 * 3 - ByteSize::kib(768), ByteSize::ZERO);
/// assert_eq!(ByteSize::MAX + ByteSize::new(1), ByteSize::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// No limit, which cgroup files write as `max`.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates an amount of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Creates an amount of `n` x 1024 bytes; saturates at [`ByteSize::MAX`].
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    /// Creates an amount of `n` x 1024 x 1024 bytes; saturates at [`ByteSize::MAX`].
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    /// Creates an amount of `n` x 1024 x 1024 x 1024 bytes; saturates at [`ByteSize::MAX`].
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 30))
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns a sum of added and subtracted sizes that wraps; zero if it is negative, as when a
    /// subtraction was summed and its addition was not: above [`ByteSize::MAX`] less 2^56.
    ///
    /// ```
    /// use lowwater_base::ByteSize;
    ///
    /// assert_eq!(ByteSize::of_wrapped_sum(5_u64.wrapping_sub(7)), ByteSize::ZERO);
    /// assert_eq!(ByteSize::of_wrapped_sum(1 << 63), ByteSize::new(1 << 63));
    /// ```
    pub const fn of_wrapped_sum(sum: u64) -> Self {
        if sum < u64::MAX << 56 {
            Self(sum)
        } else {
            Self::ZERO
        }
    }

    /// Returns the sum, at most [`ByteSize::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for ByteSize {
    /// Writes the format of cgroup files: the number, or `max`. The alternate form `{:#}` is for
    /// people: from 1 KiB on the nearest tenth of the largest unit that fits, as in `12.5 MiB`, but
    /// at most `15.9 EiB`, as 16 EiB are no amount.
    ///
    /// Width, fill and alignment pad the text, by default on its left. Other flags have no effect:
    /// [`FromStr`](core::str::FromStr) would not read a sign or a text cut by a precision.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            pad(f, format_args!("max"))
        } else if f.alternate() {
            self.fmt_for_people(f)
        } else {
            pad(f, format_args!("{}", self.0))
        }
    }
}

impl ByteSize {
    fn fmt_for_people(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1 << 10 {
            return pad(f, format_args!("{} B", self.0));
        }
        let unit = self.0.ilog2() / 10;
        let shift = unit * 10;
        let mut tenths = (u128::from(self.0) * 10 + (1 << (shift - 1))) >> shift;
        if unit == 6 {
            tenths = tenths.min(159);
        }
        pad(f, format_args!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit as usize - 1]))
    }
}

/// Writes an ASCII text with the width, fill and alignment of `f`. `Formatter::pad` would also cut
/// the text at a precision.
fn pad(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    let mut length = Length(0);
    fmt::write(&mut length, text)?;
    let missing = f.width().unwrap_or(0).saturating_sub(length.0);
    let before = match f.align() {
        Some(fmt::Alignment::Left) => 0,
        Some(fmt::Alignment::Center) => missing / 2,
        Some(fmt::Alignment::Right) | None => missing,
    };
    let fill = f.fill();
    (0..before).try_for_each(|_| f.write_char(fill))?;
    f.write_fmt(text)?;
    (before..missing).try_for_each(|_| f.write_char(fill))
}

/// Counts the bytes of a text instead of storing it.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

impl Add for ByteSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl Sub for ByteSize {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for ByteSize {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for ByteSize {
    type Output = Self;

    /// # Panics
    ///
    /// If `parts` is 0.
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl AddAssign for ByteSize {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for ByteSize {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for ByteSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Self::add)
    }
}

impl<'a> Sum<&'a Self> for ByteSize {
    fn sum<I: Iterator<Item = &'a Self>>(sizes: I) -> Self {
        sizes.copied().sum()
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<u32> for ByteSize {
    fn from(bytes: u32) -> Self {
        Self(bytes.into())
    }
}

impl From<usize> for ByteSize {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> Self {
        size.0
    }
}

/// The text is not an amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an amount of memory below 16 EiB: a number such as 1048576, 64M or 1.5 GiB (units K, M, G, T, P, E or KiB and so on), or \"max\"")]
pub struct ParseByteSizeError;

/// The maximum number of digits after the point.
const FRACTION_DIGITS_MAX: usize = 18;

impl core::str::FromStr for ByteSize {
    type Err = ParseByteSizeError;

    /// Parses `max`, or a number with an optional unit: `K`, `M`, `G`, `T`, `P` or `E` (powers of
    /// 1024, either case); or `B`, `KiB`, `MiB` and so on, after an optional space.
    ///
    /// The number may have a fraction of up to 18 digits if the unit is larger than a byte, as in
    /// `1.5 GiB`. A part of a byte is dropped: `0.1K` is 102 bytes.
    ///
    /// # Errors
    ///
    /// [`ParseByteSizeError`] for anything else, and for an amount that does not fit in 64 bits.
    fn from_str(text: &str) -> Result<Self, ParseByteSizeError> {
        if text == "max" {
            return Ok(Self::MAX);
        }
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len() - unit.len()];
        let shift = match unit.strip_prefix(' ').filter(|unit| unit.ends_with('B')).unwrap_or(unit) {
            "" | "B" => 0,
            "k" | "K" | "KiB" => 10,
            "m" | "M" | "MiB" => 20,
            "g" | "G" | "GiB" => 30,
            "t" | "T" | "TiB" => 40,
            "p" | "P" | "PiB" => 50,
            "e" | "E" | "EiB" => 60,
            _ => return Err(ParseByteSizeError),
        };
        Self::from_units(number, shift).ok_or(ParseByteSizeError)
    }
}

impl ByteSize {
    /// Returns `number` x 2^`shift` bytes, rounded down, for a decimal `number` without a sign and
    /// a `shift` of at most 60.
    fn from_units(number: &str, shift: u32) -> Option<Self> {
        let (whole, fraction) = match number.split_once('.') {
            None => (number, None),
            Some((whole, fraction)) => (whole, Some(fraction)),
        };
        // Below 2^124.
        let mut bytes = u128::from(whole.parse::<u64>().ok()?) << shift;
        if let Some(digits) = fraction {
            if shift == 0 || digits.len() > FRACTION_DIGITS_MAX {
                return None;
            }
            // Below 10^18 x 2^60.
            bytes += (u128::from(digits.parse::<u64>().ok()?) << shift) / 10_u128.pow(digits.len() as u32);
        }
        u64::try_from(bytes).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn parses_cgroup_numbers_and_suffixed_amounts() {
        let read = |text: &str| text.parse::<ByteSize>().map(ByteSize::get);
        assert_eq!([read("0"), read("17"), read("007")], [Ok(0), Ok(17), Ok(7)]);
        assert_eq!([read("3k"), read("3K")], [Ok(3 << 10); 2]);
        assert_eq!([read("3m"), read("3M")], [Ok(3 << 20); 2]);
        assert_eq!([read("3g"), read("3G")], [Ok(3 << 30); 2]);
        assert_eq!([read("3t"), read("3T")], [Ok(3 << 40); 2]);
        assert_eq!(
            [read("max"), read("18446744073709551615"), read("16777215T")],
            [Ok(u64::MAX), Ok(u64::MAX), Ok(16_777_215 << 40)]
        );
        assert_eq!([read("3p"), read("3P"), read("3 PiB")], [Ok(3 << 50); 3]);
        assert_eq!([read("3e"), read("3E"), read("3 EiB")], [Ok(3 << 60); 3]);
        assert_eq!([read("17B"), read("17 B")], [Ok(17); 2]);
        assert_eq!([read("3KiB"), read("3 KiB"), read("3 MiB")], [Ok(3 << 10), Ok(3 << 10), Ok(3 << 20)]);
        assert_eq!([read("3GiB"), read("3 TiB")], [Ok(3 << 30), Ok(3 << 40)]);
        for bad in ["", "K", "-1", "+1", " 1", "1 ", "1KK", "MAX", "18446744073709551616", "16777216T", "16E"] {
            assert_eq!(read(bad), Err(ParseByteSizeError), "{bad:?}");
        }
        for bad in ["1 K", "1  KiB", "1kiB", "1MB", "1iB", "KiB", " KiB", "1KiBiB", "1 KiB ", "\u{661}", "1b"] {
            assert_eq!(read(bad), Err(ParseByteSizeError), "{bad:?}");
        }
        assert_eq!([ByteSize::MAX.to_string(), ByteSize::kib(2).to_string()], ["max", "2048"]);
    }

    #[test]
    fn a_fraction_is_exact_to_a_byte_and_needs_a_unit() {
        let read = |text: &str| text.parse::<ByteSize>().map(ByteSize::get);
        assert_eq!([read("1.5M"), read("1.5 MiB"), read("01.50MiB")], [Ok(3 << 19); 3]);
        assert_eq!([read("64.0 MiB"), read("1.5 GiB"), read("0.5 TiB")], [Ok(64 << 20), Ok(3 << 29), Ok(1 << 39)]);
        // 102.4 bytes and 1023.999 bytes.
        assert_eq!([read("0.1K"), read("0.999999999999999999K")], [Ok(102), Ok(1023)]);
        // A part of 2^60 that has no exact binary fraction.
        assert_eq!(read("0.3E"), Ok((3 << 60) / 10));
        assert_eq!(read("15.999999999999999999 EiB"), Ok(u64::MAX - 1));
        for bad in ["1.5", "1.5 B", "1.0B", ".5M", "1.M", "1.5.5M", "1..5M", ".", ".M", "1,5M", "1.-5M", "1.+5M"] {
            assert_eq!(read(bad), Err(ParseByteSizeError), "{bad:?}");
        }
        for bad in ["16.0 EiB", "16777216.5T", "0.1234567890123456789M", "1.5 M", "1.5max"] {
            assert_eq!(read(bad), Err(ParseByteSizeError), "{bad:?}");
        }
    }

    proptest! {
        /// Numbers of each magnitude: a shift to the right leaves `64 - shift` random bits.
        #[test]
        fn each_printed_amount_is_read_again(random: u64, shift in 0_u32..64) {
            let size = ByteSize::new(random >> shift);
            prop_assert_eq!(size.to_string().parse::<ByteSize>(), Ok(size));
            let text = alloc::format!("{size:#}");
            let read = text.parse::<ByteSize>();
            prop_assert!(read.is_ok(), "{}", text);
            // Half a tenth of the unit, and a byte; a tenth where the text is limited to 15.9 EiB.
            let unit = size.get().checked_ilog2().map_or(1, |bits| 1_u64 << (bits / 10 * 10));
            let bound = if unit == 1 { 0 } else if text == "15.9 EiB" { unit / 10 } else { unit / 20 + 1 };
            prop_assert!(read.unwrap().get().abs_diff(size.get()) <= bound, "{} is read as {:?}", text, read);
        }
    }

    #[test]
    fn people_read_a_few_digits_and_a_unit() {
        let shown = |bytes: u64| alloc::format!("{:#}", ByteSize::new(bytes));
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_524, "1023.9 KiB"),
            (1_048_575, "1024.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (13_107_200, "12.5 MiB"),
            (1 << 40, "1.0 TiB"),
            ((1 << 50) - 1, "1024.0 TiB"),
            (u64::MAX - 1, "15.9 EiB"),
            (u64::MAX, "max"),
        ] {
            assert_eq!(shown(bytes), text);
        }
        assert_eq!(
            alloc::format!("{:>6}|{:<4}|{:>4}", ByteSize::new(17), ByteSize::new(2), ByteSize::MAX),
            "    17|2   | max"
        );
    }

    #[test]
    fn flags_pad_the_text_and_change_nothing_else() {
        use alloc::format;
        let five = ByteSize::new(5);
        assert_eq!([format!("{:.1}", ByteSize::MAX), format!("{:#.1}", ByteSize::MAX)], ["max"; 2]);
        assert_eq!([format!("{five:+}"), format!("{five:.0}"), format!("{five:+#}")], ["5", "5", "5 B"]);
        assert_eq!([format!("{five:04}"), format!("{:04}", ByteSize::MAX)], ["   5", " max"]);
        assert_eq!(format!("{:#10}|{:#.2}", ByteSize::kib(1), ByteSize::kib(1)), "   1.0 KiB|1.0 KiB");
        assert_eq!(format!("{:>6}|{:-^5}|{:<3}", five, five, five), "     5|--5--|5  ");
        assert_eq!(format!("{:>22}", ByteSize::new(u64::MAX - 1)), "  18446744073709551614");
    }

    #[test]
    fn operators_saturate() {
        let (one, max) = (ByteSize::new(1), ByteSize::MAX);
        assert_eq!([max + one, one - max, max * 2, one * 3 / 2], [max, ByteSize::ZERO, max, one]);
        let mut size = ByteSize::new(5);
        size += one;
        size -= ByteSize::new(9);
        assert_eq!(size, ByteSize::ZERO);
        assert_eq!([one, max].iter().sum::<ByteSize>(), max);
        assert_eq!(core::iter::empty::<ByteSize>().sum::<ByteSize>(), ByteSize::ZERO);
        assert_eq!(
            (ByteSize::from(7_u32), ByteSize::from(7_usize), u64::from(ByteSize::from(7_u64))),
            (size + ByteSize::new(7), ByteSize::new(7), 7)
        );
    }
}
