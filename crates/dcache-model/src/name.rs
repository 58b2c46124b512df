//! One component of a path.
//!
//! Most names are short, and a cache holds millions of them, so names of up to [`Name::INLINE_MAX`] bytes lie inside the `Name`; longer
//! ones take an allocation of their length. (Linux draws the line so that a dentry fills its cache lines: `DNAME_INLINE_LEN`, 32 to 40
//! bytes by configuration.)
//!
//! # Invariants
//!
//! 1. A `Name` is 1 to [`Name::BYTES_MAX`] bytes, without `/` and NUL, and neither `.` nor `..`: those two are answered by the walk, not
//!    by the cache, and would put a directory below itself.
//! 2. A name is on the heap if and only if it is longer than [`Name::INLINE_MAX`].

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

/// One component of a path: bytes, not text, as in the kernel.
///
/// ```
/// use lowwater_dcache_model::{Name, NameError};
///
/// let name = Name::new(b"Makefile")?;
/// assert_eq!(name.as_bytes(), b"Makefile");
/// assert_eq!(name.heap_bytes(), 0);
/// assert_eq!(Name::new(b"a/b"), Err(NameError::Slash { at: 1 }));
/// # Ok::<(), NameError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "qstr")]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; Name::INLINE_MAX] },
    Heap(Box<[u8]>),
}

/// Bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There are none.
    #[error("a name has at least one byte; an empty component of a path is left out")]
    Empty,
    /// `.` or `..`
    #[error("`.` and `..` are not names in a directory but ways to walk; resolve them before")]
    Dots,
    /// More than [`Name::BYTES_MAX`] bytes.
    #[error("a name has at most {} bytes, this one has {len}", Name::BYTES_MAX)]
    TooLong {
        /// How many.
        len: usize,
    },
    /// It is more than one component.
    #[error("byte {at} of the name is a `/`; look up one component at a time")]
    Slash {
        /// Where the first one is, from 0.
        at: usize,
    },
    /// No file system can hold it.
    #[error("byte {at} of the name is NUL, which ends a path")]
    Nul {
        /// Where the first one is, from 0.
        at: usize,
    },
}

impl Name {
    /// The most bytes a name has.
    #[doc(alias = "NAME_MAX")]
    pub const BYTES_MAX: usize = 255;
    /// The most bytes that need no allocation.
    #[doc(alias = "DNAME_INLINE_LEN")]
    pub const INLINE_MAX: usize = 32;

    /// A copy of `bytes`, if they are a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong; of several things the first in its order.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            b"" => return Err(NameError::Empty),
            b"." | b".." => return Err(NameError::Dots),
            _ if bytes.len() > Self::BYTES_MAX => return Err(NameError::TooLong { len: bytes.len() }),
            _ => {}
        }
        let first = |byte| bytes.iter().position(|&b| b == byte);
        if let Some(at) = first(b'/') {
            return Err(NameError::Slash { at });
        }
        if let Some(at) = first(0) {
            return Err(NameError::Nul { at });
        }
        Ok(Self(Repr::of(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Bytes allocated beyond the `Name` itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }

    /// The hash of this name in the directory `parent`: the same name in another directory goes to another bucket, as in a tree where
    /// every directory has a `Makefile`.
    ///
    /// The hasher should be seeded: users choose names, and should not be able to choose buckets by them.
    #[doc(alias = "full_name_hash")]
    pub fn hash_in(&self, parent: u64, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        state.write_u64(parent);
        self.hash(&mut state);
        state.finish()
    }
}

impl Repr {
    /// INVARIANT 2.
    fn of(bytes: &[u8]) -> Self {
        let mut inline = [0; Name::INLINE_MAX];
        match inline.get_mut(..bytes.len()) {
            Some(front) => {
                front.copy_from_slice(bytes);
                Self::Inline { len: bytes.len() as u8, bytes: inline }
            }
            None => Self::Heap(bytes.into()),
        }
    }
}

// Compared, hashed and borrowed as its bytes, so that a map of names can be asked with bytes.

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl TryFrom<&[u8]> for Name {
    type Error = NameError;

    fn try_from(bytes: &[u8]) -> Result<Self, NameError> {
        Self::new(bytes)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text.as_bytes())
    }
}

impl fmt::Display for Name {
    /// Bytes that are not visible ASCII are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name(\"{self}\")")
    }
}

#[cfg(test)]
mod tests;
