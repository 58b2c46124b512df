//! The source of truth behind the cache: a trait, a tree in memory, a directory of the operating
//! system.
//!
//! The cache calls a backend for every name that is not cached, from many threads. A backend may
//! fail, block or panic; its answers are cached and never checked again, except by invalidation.
//!
//! A change must ensure that a backend is called with no locks but those that a cached answer never
//! needs: none in `root`, otherwise `rwsem`s of directories, and `rename_mutex` for a rename, for a
//! link between two directories, and for an invalidation beside which renames ran. So a backend
//! that blocks delays no lookup that is answered from the cache.

// On Unix only, where file names are bytes.
#[cfg(unix)]
mod files;
mod memory;

#[cfg(unix)]
pub use files::Files;
pub use memory::Memory;

use crate::kind::Kind;
use crate::qstr::Name;
use std::io;

/// The number and kind of an inode of a backend.
#[doc(alias = "struct kstat")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeInfo {
    /// The number, unique among the inodes that exist at one time.
    pub inode: u64,
    /// The kind of the inode. Only a [`Kind::Directory`] is entered.
    pub kind: Kind,
}

/// The source of truth behind the cache: a file system, an object store, a zone.
///
/// For one directory, `lookup` and `read_dir` may run on several threads at a time; a call that
/// changes names runs on one thread, without them. An implementation must not use the mount above
/// it, because calls run while the directory's `rwsem` is held. A panic propagates to the caller of
/// the mount, and leaves the cache consistent.
///
/// Names that differ in a byte are different names. A source that folds names, such as a file
/// system that ignores case, is not supported: the cache keeps an answer for each spelling, so a
/// name that is created stays absent in another one, and a rename that changes only the case does
/// nothing.
///
/// A backend that changes by itself makes cached answers stale. The owner of the mount has to
/// detect such changes and call [`Mount::invalidate`](crate::Mount::invalidate).
pub trait Backend: Send + Sync {
    /// Returns the inode of the root, a directory. Called once for each mount, by
    /// [`Dcache::mount`](crate::Dcache::mount), which returns an error of this call.
    fn root(&self) -> io::Result<InodeInfo>;

    /// Returns the inode of `name` in the directory `dir`; `None` if it does not exist.
    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>>;

    /// Creates `name` in the directory `dir`, and returns the new inode. Called for a name that is
    /// not cached, without a [`lookup`](Self::lookup) before, or that is cached as absent; a name
    /// that exists must be [`io::ErrorKind::AlreadyExists`]. Never called with [`Kind::Other`].
    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo>;

    /// Removes a name. A directory must be empty, or this is [`io::ErrorKind::DirectoryNotEmpty`].
    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()>;

    /// Renames `from` to `to`, and replaces `to` if it exists. Not called if both are known as
    /// names of one inode.
    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()>;

    /// Creates `name` in the directory `dir` as a further name of the inode `file`, which is no
    /// directory. Called for the same names as [`create`](Self::create).
    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()>;

    /// Returns all names in the directory `dir`, in any order, with their inodes.
    /// [`Mount::readdir`](crate::Mount::readdir) returns the same list, which is not cached.
    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>>;
}
