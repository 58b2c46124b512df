//! An amount of memory.

use core::fmt;

/// An amount of memory in bytes, as in cgroup v2's `memory.*` files. A separate type, so that it
/// cannot be confused with a count of objects.
///
/// ```
/// use lowwater_base::ByteSize;
/// assert_eq!(ByteSize::mib(64).get(), 64 << 20);
/// assert_eq!(ByteSize::MAX.to_string(), "max");
/// assert_eq!("1536K".parse::<ByteSize>().unwrap(), ByteSize::kib(1536));
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
    /// Writes the format of cgroup files: the number, or `max`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            f.write_str("max")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// The text is not an amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an amount of memory: a whole number with an optional suffix K, M, G or T, or \"max\"")]
pub struct ParseByteSizeError;

impl core::str::FromStr for ByteSize {
    type Err = ParseByteSizeError;

    /// Parses `max`, or a whole number with an optional `K`, `M`, `G` or `T` (powers of 1024,
    /// either case).
    ///
    /// # Errors
    ///
    /// [`ParseByteSizeError`] for anything else, and for an amount that does not fit in 64 bits.
    fn from_str(text: &str) -> Result<Self, ParseByteSizeError> {
        if text == "max" {
            return Ok(Self::MAX);
        }
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
            Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
            Some(b't' | b'T') => (&text[..text.len() - 1], 40),
            _ => (text, 0),
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseByteSizeError);
        }
        let n: u64 = digits.parse().map_err(|_| ParseByteSizeError)?;
        n.checked_mul(1 << shift).map(Self).ok_or(ParseByteSizeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn amounts_are_read_as_cgroup_files_and_people_write_them() {
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
        for bad in ["", "K", "-1", "+1", " 1", "1 ", "1KK", "1.5M", "1P", "MAX", "18446744073709551616", "16777216T"] {
            assert_eq!(read(bad), Err(ParseByteSizeError), "{bad:?}");
        }
        assert_eq!([ByteSize::MAX.to_string(), ByteSize::kib(2).to_string()], ["max", "2048"]);
    }
}
