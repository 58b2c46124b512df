//! [`ByteSize`] in files and messages, by `serde`.
//!
//! | format | written | read |
//! |---|---|---|
//! | for people (JSON, TOML) | a number of bytes, or `"max"` | a number of bytes, or a text such as `"1.5 GiB"` or `"max"` |
//! | compact | a `u64` | a `u64` |
//!
//! `max`, which is `u64::MAX`, is a text because TOML's integers have a sign and 64 bits.
//!
//! A change must ensure that every text and number that was once written is still read.

use core::fmt;

use serde_core::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::ByteSize;

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::MAX && serializer.is_human_readable() {
            return serializer.serialize_str("max");
        }
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(ByteSizeVisitor)
        } else {
            deserializer.deserialize_u64(ByteSizeVisitor)
        }
    }
}

/// Reads a number or a text.
struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a text such as \"64 MiB\" or \"max\"")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize::new(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize::new).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<ByteSize, String> {
        serde_json::from_str(json).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn a_configuration_holds_numbers_and_the_texts_of_people() {
        let sizes: Vec<ByteSize> = serde_json::from_str(r#"[0, 1024, "64 MiB", "1.5 MiB", "3g", "max"]"#).unwrap();
        let expected =
            [ByteSize::ZERO, ByteSize::kib(1), ByteSize::mib(64), ByteSize::kib(1536), ByteSize::gib(3), ByteSize::MAX];
        assert_eq!(sizes, expected);
        for bad in ["-1", "1.5", "\"1.5 MB\"", "true", "null", "\"\"", "18446744073709551616"] {
            let error = read(bad).unwrap_err();
            assert!(error.contains("64 MiB") || error.contains("out of range"), "{bad}: {error}");
        }
    }

    #[test]
    fn no_limit_is_written_as_a_text() {
        assert_eq!(serde_json::to_string(&ByteSize::MAX).unwrap(), "\"max\"");
        assert_eq!(serde_json::to_string(&ByteSize::kib(2)).unwrap(), "2048");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: u64) {
            let size = ByteSize::new(bytes);
            prop_assert_eq!(read(&serde_json::to_string(&size).unwrap()), Ok(size));
        }
    }

    #[test]
    fn a_compact_format_has_a_number_only() {
        use serde_test::{assert_tokens, Configure, Token};
        assert_tokens(&ByteSize::MAX.compact(), &[Token::U64(u64::MAX)]);
        assert_tokens(&ByteSize::kib(1).compact(), &[Token::U64(1024)]);
        assert_tokens(&ByteSize::MAX.readable(), &[Token::Str("max")]);
    }
}
