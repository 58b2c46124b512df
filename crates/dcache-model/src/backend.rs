//! The source of truth behind the cache: a trait, a tree in memory, a directory of the operating
//! system's.

// Names are bytes, as Unix has them.
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
    /// Its number: no two things have the same at one time.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
}

/// What is behind the cache: a file system, an object store, a zone.
///
/// For one directory, `lookup` runs on any number of threads, the calls that change names on one and without `lookup`s beside it.
/// It must not use the mount that it is under: its calls come while the directory's lock is held. A panic in it passes to whoever asked, and
/// leaves the cache whole.
///
/// A backend that changes by itself makes cached answers old; that is for who mounts it to know, and to
/// [invalidate](crate::Mount::invalidate).
pub trait Backend: Send + Sync {
    /// The root directory.
    fn root(&self) -> io::Result<InodeInfo>;

    /// What `name` stands for in the directory `dir`; `None` if it does not exist.
    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>>;

    /// Makes a file or directory.
    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo>;

    /// Removes a name. A directory must be empty, or this is [`io::ErrorKind::DirectoryNotEmpty`].
    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()>;

    /// Moves a name; what `to` stood for is gone then.
    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()>;

    /// Gives a file another name.
    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()>;

    /// The names in a directory.
    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>>;
}
