//! Errors, each with a path of the call.
//!
//! The path is added at the public call (`ErrorKind::at`); inside the crate only kinds are passed.
//! Kinds that the backend has in common with the cache are the same for both, so that a caller need
//! not know which of them found the fault.
//!
//! A change must ensure that the conversion to [`std::io::Error`] and back keeps such a kind.

use std::fmt;
use std::io;

/// A failed operation, with the path that the caller passed. Of two paths it is the one at fault,
/// but always the old one if a rename fails after the lookups.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", PathText(path))]
pub struct Error {
    kind: ErrorKind,
    path: Box<[u8]>,
}

/// The reason of a failure, named as in [`std::io::ErrorKind`] where that has an equivalent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name, or a directory on the way to it, does not exist.
    #[error("no such file or directory")]
    #[doc(alias = "ENOENT")]
    NotFound,
    /// The name exists already.
    #[error("it exists already")]
    #[doc(alias = "EEXIST")]
    AlreadyExists,
    /// A component of the path other than the last is not a directory, or the operation is for
    /// directories only.
    #[error("not a directory")]
    #[doc(alias = "ENOTDIR")]
    NotADirectory,
    /// The operation is not for directories.
    #[error("it is a directory")]
    #[doc(alias = "EISDIR")]
    IsADirectory,
    /// The directory still holds names.
    #[error("the directory is not empty")]
    #[doc(alias = "ENOTEMPTY")]
    DirectoryNotEmpty,
    /// A name of more than 255 bytes, or a path of more than 4,096.
    #[error("a name is longer than 255 bytes, or the path longer than 4096")]
    #[doc(alias = "ENAMETOOLONG")]
    NameTooLong,
    /// An empty path, a path with a zero byte, or `.` or `..` where a name is required.
    #[error("not a name: empty, with a byte 0, or `.` or `..` as the last part")]
    #[doc(alias = "EINVAL")]
    InvalidName,
    /// A directory cannot be moved below itself.
    #[error("a directory cannot be moved below itself")]
    #[doc(alias = "ELOOP")]
    Loop,
    /// The backend's root spans several file systems, and the two paths are on different ones.
    #[error("the two paths are on different file systems")]
    #[doc(alias = "EXDEV")]
    CrossesDevices,
    /// The cache has 65,536 mounts, or the shrinker registry has no id or no memory left.
    #[error("too many mounts on the cache, or no shrinker id left")]
    #[doc(alias = "EMLINK")]
    TooManyReferences,
    /// The backend returned this error, which has none of the kinds above.
    #[error("the backend failed: {0}")]
    Backend(io::Error),
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, path: &[u8]) -> Self {
        Self { kind, path: path.into() }
    }

    /// Returns the reason of the failure. The backend's own error is kept in [`ErrorKind::Backend`]
    /// only.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the path that the caller passed.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl ErrorKind {
    /// Returns the equivalent [`std::io::ErrorKind`]. A name that is too long is `InvalidInput`:
    /// `InvalidFilename` needs Rust 1.87.
    pub fn io(&self) -> io::ErrorKind {
        match self {
            Self::NotFound => io::ErrorKind::NotFound,
            Self::AlreadyExists => io::ErrorKind::AlreadyExists,
            Self::NotADirectory => io::ErrorKind::NotADirectory,
            Self::IsADirectory => io::ErrorKind::IsADirectory,
            Self::DirectoryNotEmpty => io::ErrorKind::DirectoryNotEmpty,
            Self::NameTooLong | Self::InvalidName | Self::Loop => io::ErrorKind::InvalidInput,
            Self::CrossesDevices => io::ErrorKind::CrossesDevices,
            Self::TooManyReferences => io::ErrorKind::TooManyLinks,
            Self::Backend(error) => error.kind(),
        }
    }

    pub(crate) fn at(self, path: &[u8]) -> Error {
        Error::new(self, path)
    }
}

impl From<io::Error> for ErrorKind {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::AlreadyExists,
            io::ErrorKind::NotADirectory => Self::NotADirectory,
            io::ErrorKind::IsADirectory => Self::IsADirectory,
            io::ErrorKind::DirectoryNotEmpty => Self::DirectoryNotEmpty,
            io::ErrorKind::CrossesDevices => Self::CrossesDevices,
            _ => Self::Backend(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind.io(), error)
    }
}

/// A path formatted for messages: bytes that are not printable ASCII are escaped, and a long path
/// is cut.
struct PathText<'a>(&'a [u8]);

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 200;
        let shown = &self.0[..self.0.len().min(SHOWN_MAX)];
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_backends_error_is_printed_once() {
        let error = ErrorKind::from(io::Error::from_raw_os_error(5)).at(b"/a");
        assert!(error.to_string().starts_with("/a: the backend failed: "), "{error}");
        assert!(error.to_string().ends_with("(os error 5)"), "{error}");
        assert!(error.source().is_none() && error.kind().source().is_none());
    }
}
