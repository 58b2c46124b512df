//! A tree in memory: a backend for tests, measurements and replays.
//!
//! The reference implementation of [`Backend`]: it has no other source of names, no delays, and one
//! lock. It checks only what the trait demands; the cache refuses other wrong calls before.
//!
//! A change must keep it exact: tests compare the cache with it.

use super::{Backend, InodeInfo};
use crate::kind::Kind;
use crate::qstr::Name;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};
use lowwater_base::sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;

/// A tree in memory, under one lock.
#[derive(Debug)]
pub struct Memory {
    tree: Mutex<MemoryTree>,
    lookups: AtomicU64,
}

#[derive(Debug)]
struct MemoryTree {
    /// The number of the next inode. Numbers are not used again.
    next: u64,
    /// The names in each directory, by the directory's inode.
    directories: HashMap<u64, BTreeMap<Box<[u8]>, InodeInfo>>,
    /// The number of names of each inode but the root, and its kind.
    links: HashMap<u64, (u64, Kind)>,
}

/// The inode of the root directory.
const ROOT: u64 = 1;

impl Memory {
    /// Returns a tree that has only its root.
    pub fn new() -> Self {
        let tree = MemoryTree { next: ROOT + 1, directories: [(ROOT, BTreeMap::new())].into(), links: HashMap::new() };
        Self { tree: Mutex::new(tree), lookups: AtomicU64::new(0) }
    }

    /// Returns the number of calls of `lookup`: names that were not answered from the cache.
    pub fn lookups(&self) -> u64 {
        // Relaxed: a statistic.
        self.lookups.load(Ordering::Relaxed)
    }

    /// Creates a path and all its directories, bypassing the cache: for tests and setup.
    #[doc(alias = "create_dir_all")]
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if a component is not a valid name;
    /// [`io::ErrorKind::NotADirectory`] if a file is on the way; [`io::ErrorKind::AlreadyExists`]
    /// if the path exists with another kind.
    pub fn create_path(&self, path: &[u8], kind: Kind) -> io::Result<()> {
        let mut node = self.root()?;
        let mut parts = path.split(|&b| b == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let name =
                Name::new(part).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
            let kind = if parts.peek().is_some() { Kind::Directory } else { kind };
            let there = self.tree.lock().directory(node.inode)?.get(part).copied();
            node = match there {
                Some(node) => node,
                None => self.create(node.inode, name, kind)?,
            };
        }
        if node.kind == kind {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryTree {
    /// Returns the names in a directory. A removed directory is an error, too.
    fn directory(&mut self, dir: u64) -> io::Result<&mut BTreeMap<Box<[u8]>, InodeInfo>> {
        self.directories.get_mut(&dir).ok_or_else(|| io::ErrorKind::NotADirectory.into())
    }

    /// Removes a name, and its inode if that was the last name. A directory must be empty.
    fn take(&mut self, dir: u64, name: Name<'_>) -> io::Result<InodeInfo> {
        let node = *self.directory(dir)?.get(name.bytes()).ok_or(io::ErrorKind::NotFound)?;
        if self.directories.get(&node.inode).is_some_and(|names| !names.is_empty()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.directory(dir)?.remove(name.bytes());
        let links = self.links.get_mut(&node.inode).map_or(0, |(links, _)| {
            *links -= 1;
            *links
        });
        if links == 0 {
            self.links.remove(&node.inode);
            self.directories.remove(&node.inode);
        }
        Ok(node)
    }
}

impl Backend for Memory {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok(InodeInfo { inode: ROOT, kind: Kind::Directory })
    }

    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        // Relaxed: a statistic.
        self.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(self.tree.lock().directory(dir)?.get(name.bytes()).copied())
    }

    fn create(&self, dir: u64, name: Name<'_>, kind: Kind) -> io::Result<InodeInfo> {
        let mut tree = self.tree.lock();
        let node = InodeInfo { inode: tree.next, kind };
        let names = tree.directory(dir)?;
        if names.contains_key(name.bytes()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        names.insert(name.bytes().into(), node);
        tree.next += 1;
        tree.links.insert(node.inode, (1, kind));
        if kind == Kind::Directory {
            tree.directories.insert(node.inode, BTreeMap::new());
        }
        Ok(node)
    }

    fn remove(&self, dir: u64, name: Name<'_>) -> io::Result<()> {
        self.tree.lock().take(dir, name).map(drop)
    }

    fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>)) -> io::Result<()> {
        let mut tree = self.tree.lock();
        let node = *tree.directory(from.0)?.get(from.1.bytes()).ok_or(io::ErrorKind::NotFound)?;
        if tree.directory(to.0)?.get(to.1.bytes()).is_some_and(|there| there.inode == node.inode) {
            // Both are names of one object: POSIX demands that the rename does nothing.
            return Ok(());
        }
        match tree.take(to.0, to.1) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        tree.directory(from.0)?.remove(from.1.bytes());
        tree.directory(to.0)?.insert(to.1.bytes().into(), node);
        Ok(())
    }

    fn link(&self, file: u64, dir: u64, name: Name<'_>) -> io::Result<()> {
        let mut tree = self.tree.lock();
        if tree.directory(dir)?.contains_key(name.bytes()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (links, kind) = tree.links.get_mut(&file).ok_or(io::ErrorKind::NotFound)?;
        *links += 1;
        let node = InodeInfo { inode: file, kind: *kind };
        tree.directory(dir)?.insert(name.bytes().into(), node);
        Ok(())
    }

    fn read_dir(&self, dir: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        Ok(self.tree.lock().directory(dir)?.iter().map(|(name, node)| (name.clone(), *node)).collect())
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn create_path_refuses_an_existing_name_of_another_kind() {
        let memory = Memory::new();
        for kind in [Kind::File, Kind::Directory, Kind::Other] {
            let path = format!("/dir/{kind:?}").into_bytes();
            memory.create_path(&path, kind).unwrap();
            for other in [Kind::File, Kind::Directory, Kind::Other] {
                let made = memory.create_path(&path, other).map_err(|error| error.kind());
                assert_eq!(made, if other == kind { Ok(()) } else { Err(io::ErrorKind::AlreadyExists) });
            }
        }
        let below_file = memory.create_path(b"/dir/File/below", Kind::File).map_err(|error| error.kind());
        assert_eq!(below_file, Err(io::ErrorKind::NotADirectory));
        memory.create_path(b"/", Kind::Directory).unwrap();
        let root = memory.create_path(b"/", Kind::File).map_err(|error| error.kind());
        assert_eq!(root, Err(io::ErrorKind::AlreadyExists), "the root is a directory");
    }

    #[test]
    fn a_rename_to_a_name_of_the_same_object_does_nothing() {
        let memory = Memory::new();
        let name = |bytes| Name::new(bytes).unwrap();
        let file = memory.create(ROOT, name(b"file"), Kind::File).unwrap();
        let dir = memory.create(ROOT, name(b"dir"), Kind::Directory).unwrap();
        memory.create(dir.inode, name(b"below"), Kind::File).unwrap();
        memory.link(file.inode, ROOT, name(b"link")).unwrap();

        memory.rename((ROOT, name(b"file")), (ROOT, name(b"file"))).unwrap();
        memory.rename((ROOT, name(b"dir")), (ROOT, name(b"dir"))).unwrap();
        memory.rename((ROOT, name(b"file")), (ROOT, name(b"link"))).unwrap();

        for (bytes, node) in [(&b"file"[..], file), (b"link", file), (b"dir", dir)] {
            assert_eq!(memory.lookup(ROOT, name(bytes)).unwrap(), Some(node));
        }
        assert_eq!(memory.read_dir(dir.inode).unwrap().len(), 1);
        // The count of names is unchanged: the file is there until the second one is removed.
        memory.remove(ROOT, name(b"file")).unwrap();
        assert_eq!(memory.tree.lock().links.get(&file.inode), Some(&(1, Kind::File)));
    }
}
