//! A backend for a directory of the operating system, through `std::fs`.
//!
//! For `examples/fuse_mirror` and real file systems. [`Files`] keeps the paths of each inode that
//! it looked up, created or linked, because the trait [`Backend`] names inodes by number.
//!
//! A change must keep `paths` in step with each rename and removal: a rename also changes the paths
//! of all inodes below, so no other call may use a path meanwhile. The cache excludes only calls in
//! the directories of the two names.

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use super::{Backend, InodeInfo};
use crate::kind::Kind;
use crate::qstr::Name;
use lowwater_base::sync::{Mutex, RwLock};
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory tree of the operating system. A symbolic link is reported as [`Kind::Other`] and not
/// followed; other file systems mounted below are not entered. A file system that ignores the case
/// of names is not supported; see [`Backend`].
///
/// Changes that are made without this cache are not noticed: cached answers stay until they are
/// reclaimed or [invalidated](crate::Mount::invalidate). A directory that was moved or replaced in
/// that way is [not found](io::ErrorKind::NotFound) until it is looked up under its new name. Each
/// call checks the inode of its directory first, and then uses the directory's path. A symbolic
/// link that another process puts in the place of that directory, or of one above it, between the
/// two steps is followed.
///
/// The paths are not bounded, and the cache's limits do not count them: one path is kept for each
/// name that was looked up, created or linked, until the name is removed or replaced through this
/// backend; and a number for each inode of another file system. A rename takes time in proportion
/// to the number of paths, and waits for all other calls of the backend.
#[derive(Debug)]
pub struct Files {
    root: InodeInfo,
    /// The file system of the root; inodes of others are not entered.
    device: u64,
    /// The known paths of each inode that was looked up, created or linked, and of the root: at
    /// least one, the newest last. A directory has one path, a file one for each hard link.
    paths: RwLock<HashMap<u64, Vec<PathBuf>>>,
    /// Held shared while a path is used, exclusively by a rename. Locked before `paths`.
    renames: RwLock<()>,
    /// The reported numbers of the inodes of other file systems, by device and inode number: other
    /// file systems use the same numbers as this one. Counted down from `u64::MAX`.
    foreign: Mutex<HashMap<(u64, u64), u64>>,
}

impl Files {
    /// Opens the tree below `root`. A relative path is that of the current working directory, and
    /// symbolic links in the path are followed now.
    ///
    /// # Errors
    ///
    /// The operating system's error for `root`; [`io::ErrorKind::NotADirectory`].
    pub fn open(root: &Path) -> io::Result<Self> {
        // The working directory may change while the tree is open. `is_current` does not follow
        // links.
        let root = fs::canonicalize(root)?;
        let meta = fs::metadata(&root)?;
        let node = node(&meta);
        if node.kind != Kind::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let paths = RwLock::new([(node.inode, vec![root])].into());
        let (device, renames, foreign) = (meta.dev(), RwLock::new(()), Mutex::default());
        Ok(Self { root: node, device, paths, renames, foreign })
    }

    /// Returns the path of the directory `dir`. An error if none is known, or another file was put
    /// in its place without this backend: a symbolic link could lead out of the tree.
    fn dir_path(&self, dir: u64) -> io::Result<PathBuf> {
        let path = self.paths.read().get(&dir).and_then(|known| known.last()).cloned();
        path.filter(|path| self.is_current(path, dir)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the path of `name` in the directory `dir`, with the errors of
    /// [`dir_path`](Self::dir_path).
    fn path(&self, dir: u64, name: Name<'_>) -> io::Result<PathBuf> {
        let mut path = self.dir_path(dir)?;
        path.push(OsStr::from_bytes(name.bytes()));
        Ok(path)
    }

    /// Returns whether a known path still leads to its inode.
    fn is_current(&self, path: &Path, inode: u64) -> bool {
        fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (self.device, inode))
    }

    /// Returns an inode as this backend reports it: the root of another file system is
    /// [`Kind::Other`], so that it is not entered, and has a number of its own.
    fn node(&self, meta: &Metadata) -> InodeInfo {
        if meta.dev() == self.device {
            return node(meta);
        }
        let mut foreign = self.foreign.lock();
        let next = u64::MAX - foreign.len() as u64;
        let inode = *foreign.entry((meta.dev(), meta.ino())).or_insert(next);
        InodeInfo { inode, kind: Kind::Other }
    }

    /// Returns whether the number is one that [`node`](Self::node) has given to an inode of another
    /// file system: they count down from the largest one.
    fn is_foreign(&self, inode: u64) -> bool {
        u64::MAX - inode < self.foreign.lock().len() as u64
    }

    /// As [`node`](Self::node), and stores the path, unless the inode is of another file system.
    fn record_path(&self, path: PathBuf, meta: &Metadata) -> InodeInfo {
        let node = self.node(meta);
        if meta.dev() != self.device {
            return node;
        }
        let mut paths = self.paths.write();
        let known = paths.entry(node.inode).or_default();
        // A directory that has another path was renamed without this backend.
        known.retain(|old| node.kind != Kind::Directory && *old != path);
        known.push(path);
        node
    }
}

impl Backend for Files {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok(self.root)
    }

    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        let _paths_stay = self.renames.read();
        let path = self.path(dir, name)?;
        match fs::symlink_metadata(&path) {
            Ok(meta) => Ok(Some(self.record_path(path, &meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo> {
        let _paths_stay = self.renames.read();
        let path = self.path(dir, name)?;
        match kind {
            Kind::File => drop(fs::File::create_new(&path)?),
            Kind::Directory => fs::create_dir(&path)?,
            Kind::Other => return Err(io::ErrorKind::Unsupported.into()),
        }
        let meta = fs::symlink_metadata(&path)?;
        Ok(self.record_path(path, &meta))
    }

    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()> {
        let _paths_stay = self.renames.read();
        let path = self.path(dir, name)?;
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            fs::remove_dir(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
        // The file may have other hard links, and another thread may have created a file with the
        // same number since, so only this path is removed.
        if let Entry::Occupied(mut entry) = self.paths.write().entry(meta.ino()) {
            entry.get_mut().retain(|known| *known != path);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        Ok(())
    }

    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()> {
        let _alone = self.renames.write();
        let (old, new) = (self.path(from.0, from.1)?, self.path(to.0, to.1)?);
        let inode = |path: &Path| fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        let is_one_file = inode(&old).is_some_and(|there| inode(&new) == Some(there));
        fs::rename(&old, &new)?;
        if is_one_file {
            // One name, or two names of one file: the operating system changes nothing.
            return Ok(());
        }
        self.paths.write().retain(|_, known| {
            // The path of the file that was replaced.
            known.retain(|path| !path.starts_with(&new));
            for path in &mut *known {
                if let Ok(below) = path.strip_prefix(&old) {
                    *path = if below.as_os_str().is_empty() { new.clone() } else { new.join(below) };
                }
            }
            !known.is_empty()
        });
        Ok(())
    }

    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()> {
        if self.is_foreign(file) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let _paths_stay = self.renames.read();
        let new = self.path(dir, name)?;
        let known = self.paths.read().get(&file).cloned().unwrap_or_default();
        // A path whose file was removed or replaced without this backend is skipped.
        let old = known.iter().rev().find(|path| self.is_current(path, file)).ok_or(io::ErrorKind::NotFound)?;
        fs::hard_link(old, &new)?;
        self.paths.write().entry(file).or_default().push(new);
        Ok(())
    }

    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        let _paths_stay = self.renames.read();
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir_path(dir)?)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) => names.push((entry.file_name().into_vec().into(), self.node(&meta))),
                // The file was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }
}

fn node(meta: &Metadata) -> InodeInfo {
    let kind = match meta.file_type() {
        t if t.is_dir() => Kind::Directory,
        t if t.is_file() => Kind::File,
        _ => Kind::Other,
    };
    InodeInfo { inode: meta.ino(), kind }
}
