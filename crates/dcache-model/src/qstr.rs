//! Names and hashed names: the bytes of a name, its hash below a directory, and the words in which
//! a lookup compares it.
//!
//! A dentry holds the first 32 bytes of its name inline, in four words padded with zeros; a name of
//! up to 32 bytes is compared with four loads. In a dentry the words are atomics, so that a lookup
//! may read them while a rename writes, and discard the result.
//!
//! A change must ensure that equal names below one directory have equal hashes, and that unequal
//! names never compare as equal. Padding keeps them apart because a name has no byte 0.

use crate::error::ErrorKind;
use lowwater_base::hash::{folded_multiply, GOLDEN_RATIO};
use std::fmt;

/// The most bytes that a name may have.
pub const NAME_MAX: usize = 255;

/// Words of a name that a dentry holds inline.
pub(crate) const WORDS: usize = 4;
/// Bytes of a name that a dentry holds inline.
#[doc(alias = "DNAME_INLINE_LEN")]
pub(crate) const INLINE_MAX: usize = WORDS * 8;

/// A name: 1 to 255 bytes without `/` and without a byte 0, not `.` or `..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NameTooLong`], [`ErrorKind::InvalidName`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ErrorKind> {
        if bytes.len() > NAME_MAX {
            return Err(ErrorKind::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|&b| b == 0 || b == b'/') {
            return Err(ErrorKind::InvalidName);
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes of the name: 1 to [`NAME_MAX`] bytes of no particular encoding.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Wraps bytes that the caller has checked.
    pub(crate) fn checked(bytes: &'a [u8]) -> Self {
        debug_assert!(Self::new(bytes).is_ok(), "the caller has checked the name");
        Self(bytes)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A hashed name below a directory, in the form that a lookup compares.
#[doc(alias = "struct qstr")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct QStr<'a> {
    pub(crate) name: Name<'a>,
    /// The first [`INLINE_MAX`] bytes, little-endian, padded with zeros.
    pub(crate) words: [u64; WORDS],
    /// The address of the directory, unique while the directory has children; 0 for a root.
    pub(crate) parent: usize,
    /// The hash of secret, parent and name. A dentry stores its high half.
    pub(crate) hash: u64,
}

impl<'a> QStr<'a> {
    /// Hashes `name` below the directory at `parent`. `secret` is random and belongs to one cache,
    /// so that a caller cannot choose a bucket.
    #[inline]
    #[doc(alias = "full_name_hash")]
    pub(crate) fn new(secret: u64, parent: usize, name: Name<'a>) -> Self {
        let bytes = name.0;
        let mut words = [0; WORDS];
        let mut hash = folded_multiply(parent as u64 ^ secret, bytes.len() as u64 ^ GOLDEN_RATIO);
        let (head, tail) = bytes.split_at(bytes.len().min(INLINE_MAX));
        let mut chunks = head.chunks_exact(8);
        let mut at = 0;
        for chunk in &mut chunks {
            // Cannot fail: a chunk of `chunks_exact(8)` has 8 bytes.
            let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
            words[at] = word;
            hash = folded_multiply(hash ^ word, secret | 1);
            at += 1;
        }
        if !chunks.remainder().is_empty() {
            let word = load_short(chunks.remainder());
            words[at] = word;
            hash = folded_multiply(hash ^ word, secret | 1);
        }
        for chunk in tail.chunks(8) {
            hash = folded_multiply(hash ^ load_short(chunk), secret | 1);
        }
        Self { name, words, parent, hash: folded_multiply(hash, GOLDEN_RATIO) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.name.0.len()
    }

    /// Returns the bytes that do not fit into the words.
    pub(crate) fn tail(&self) -> &'a [u8] {
        &self.name.0[self.len().min(INLINE_MAX)..]
    }
}

/// Returns up to 8 bytes as a word, padded with zeros.
#[inline]
fn load_short(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if n >= 4 {
        let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let high = u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]);
        // With fewer than 8 bytes the two halves overlap in equal bits.
        u64::from(low) | u64::from(high) << ((n - 4) * 8)
    } else {
        bytes.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
    }
}

/// Returns the bytes that the words and the tail encode.
pub(crate) fn unpack(words: [u64; WORDS], len: usize, tail: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(len.min(INLINE_MAX)));
    bytes.extend_from_slice(tail);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    fn malformed_names_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err(), "{}", bad.escape_ascii());
        }
        for good in [&b"..."[..], b".a", b"\xff\n", &[b'x'; 255]] {
            assert_eq!(Name::new(good).unwrap().bytes(), good);
        }
    }

    proptest! {
        #[test]
        fn words_and_tail_are_the_name(bytes in prop::collection::vec(1..=255_u8, 1..=255)) {
            prop_assume!(Name::new(&bytes).is_ok());
            let qstr = QStr::new(1, 2, Name::new(&bytes).unwrap());
            prop_assert_eq!(&*unpack(qstr.words, qstr.len(), qstr.tail()), &bytes[..]);
        }

        #[test]
        fn one_byte_changes_the_bucket_bits(mut bytes in prop::collection::vec(b'a'..=b'z', 1..=64), at in 0..64_usize) {
            let before = QStr::new(77, 4096, Name::new(&bytes).unwrap()).hash;
            let at = at % bytes.len();
            bytes[at] = bytes[at].wrapping_sub(1).max(b'A');
            prop_assert_ne!(before >> 32, QStr::new(77, 4096, Name::new(&bytes).unwrap()).hash >> 32);
        }
    }
}
