//! A mount: what users of the cache hold, and its entries.

use crate::dcache::Core;
use crate::dentry::Dentry;
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::kind::Kind;
use crate::name::Name;
use crate::superblock::SuperBlock;
use lowwater_lru_core::sync::Arc;
use lowwater_lru_core::Memcg;
use lowwater_shrinker::Registration;
use std::fmt;

/// A backend under a cache. Dropping it unmounts: every name of it is freed.
///
/// Paths are bytes, from the mount's root, with or without a leading slash. `.` and `..` are understood on the way, symbolic links are
/// not followed.
pub struct Mount {
    pub(crate) core: Arc<Core>,
    pub(crate) sb: Arc<SuperBlock>,
    /// None while unmounting.
    registration: Option<Registration>,
}

/// A name that a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "dirent")]
pub struct DirEntry {
    /// The name.
    pub name: Box<[u8]>,
    /// What it stands for.
    pub kind: Kind,
    /// The number of what it stands for.
    #[doc(alias = "d_ino")]
    pub inode: u64,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Its number.
    pub inode: u64,
}

/// A name in use: it stays in the cache, with what it stands for, until this is dropped.
pub struct Entry<'m> {
    pub(crate) mount: &'m Mount,
    pub(crate) dentry: Arc<Dentry>,
    /// It took the dentry to dead, and is none of its users any more.
    dead: bool,
}

impl Mount {
    pub(crate) fn new(core: Arc<Core>, sb: Arc<SuperBlock>, registration: Registration) -> Self {
        Self { core, sb, registration: Some(registration) }
    }

    /// Finds what a path stands for; `None` if it, or a directory on the way, does not exist. Answered from the cache without a
    /// lock and without writing a shared line but the entry's own, if every name on the way is cached; [`stat`](Self::stat) does not
    /// write that either.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADirectory`] if a file is on the way; [`ErrorKind::InvalidName`], [`ErrorKind::NameTooLong`]; what the backend
    /// says.
    #[doc(alias = "path_lookupat")]
    pub fn lookup(&self, path: &[u8]) -> Result<Option<Entry<'_>>, Error> {
        self.lookup_for(path, &self.sb.group)
    }

    /// As [`lookup`](Self::lookup); names that are new to the cache are counted for `group`.
    ///
    /// # Errors
    ///
    /// As `lookup`.
    pub fn lookup_for(&self, path: &[u8], group: &Memcg) -> Result<Option<Entry<'_>>, Error> {
        self.resolve(path, group).map_err(|kind| kind.at(path))
    }

    /// What a path stands for, at one time during the call; `None` if it, or a directory on the way, does not exist. Unlike
    /// [`lookup`](Self::lookup) it does not keep the name in use. Answered from the cache it writes nothing that another thread reads
    /// (but the mark of use, where a walk cleared it), so threads that ask for the same names do not wait for each other.
    ///
    /// ```
    /// # use lowwater_dcache_model::{backend::Memory, Dcache, Kind};
    /// # use lowwater_lru_core::MemcgTree;
    /// # use lowwater_shrinker::Registry;
    /// # let tree = MemcgTree::default();
    /// # let registry = Registry::new(&tree, 1);
    /// # let mount = Dcache::builder().build().mount(std::sync::Arc::new(Memory::new()), &registry, tree.root())?;
    /// let made = mount.create(b"/hosts")?.inode();
    /// let stat = mount.stat(b"/hosts")?.unwrap();
    /// assert_eq!((stat.kind, stat.inode), (Kind::File, made));
    /// assert!(mount.stat(b"/missing")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[doc(alias = "vfs_statx")]
    pub fn stat(&self, path: &[u8]) -> Result<Option<Stat>, Error> {
        self.resolve_stat(path, &self.sb.group).map_err(|kind| kind.at(path))
    }

    /// The names in a directory, as the backend has them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`]; as [`lookup`](Self::lookup).
    pub fn readdir(&self, path: &[u8]) -> Result<Vec<DirEntry>, Error> {
        let read = || {
            let entry = self.resolve(path, &self.sb.group)?.ok_or(ErrorKind::NotFound)?;
            let number = entry.dentry.directory()?;
            let names = self.sb.backend.read_dir(number)?;
            Ok(names.into_iter().map(|(name, node)| DirEntry { name, kind: node.kind, inode: node.inode }).collect())
        };
        read().map_err(|kind: ErrorKind| kind.at(path))
    }

    /// Frees every name below a directory that nobody uses. How many.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[doc(alias = "shrink_dcache_parent")]
    pub fn shrink_tree(&self, path: &[u8]) -> Result<u64, Error> {
        let Some(entry) = self.lookup(path)? else { return Ok(0) };
        Ok(self.core.shrink_tree(&self.sb, &entry.dentry))
    }

    /// Inodes that are cached.
    pub fn inodes(&self) -> usize {
        self.sb.inodes.len()
    }

    /// The group that pays where none is named.
    pub fn group(&self) -> &Memcg {
        &self.sb.group
    }

    pub(crate) fn entry(&self, dentry: Arc<Dentry>) -> Entry<'_> {
        Entry { mount: self, dentry, dead: false }
    }
}

impl Drop for Mount {
    #[doc(alias = "shrink_dcache_for_umount")]
    fn drop(&mut self) {
        // First no callback, then no name.
        drop(self.registration.take());
        let root = self.sb.root();
        self.core.shrink_tree(&self.sb, root);
        self.core.unhash(root);
        self.core.put(&self.sb, root);
        self.core.forget_superblock(self.sb.id);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("id", &self.sb.id).finish_non_exhaustive()
    }
}

// === impl Entry ===

impl Entry<'_> {
    /// What it stands for, and its number.
    pub fn stat(&self) -> Stat {
        Stat { kind: self.kind(), inode: self.inode() }
    }

    /// What it stands for. A name that is removed while it is in use still stands for what it was.
    pub fn kind(&self) -> Kind {
        // Only entries of positives are made, and one in use is not turned negative.
        self.dentry.kind().unwrap_or(Kind::Other)
    }

    /// The number of what it stands for.
    pub fn inode(&self) -> u64 {
        self.dentry.number()
    }

    /// Its name now; a rename changes it.
    pub fn name(&self) -> Box<[u8]> {
        self.dentry.name()
    }

    /// Is its directory watched?
    #[doc(alias = "DCACHE_FSNOTIFY_PARENT_WATCHED")]
    pub fn is_watched(&self) -> bool {
        self.dentry.has(flag::PARENT_WATCHED)
    }

    /// For the only user, who has frozen the dentry: leaves it to be killed.
    pub(crate) fn into_dead(mut self) -> Arc<Dentry> {
        self.dead = true;
        Arc::clone(&self.dentry)
    }

    /// Finds a name in this directory, as [`Mount::lookup`].
    ///
    /// # Errors
    ///
    /// As [`Mount::lookup`].
    pub fn child(&self, name: &[u8]) -> Result<Option<Entry<'_>>, Error> {
        let find = || {
            let name = Name::new(name)?;
            self.dentry.directory()?;
            let child = self.mount.lookup_one(&self.dentry, name, &self.mount.sb.group)?;
            Ok(self.mount.positive(child))
        };
        find().map_err(|kind: ErrorKind| kind.at(name))
    }
}

impl Drop for Entry<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.dead {
            self.mount.core.put(&self.mount.sb, &self.dentry);
        }
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?}, {:?})", self.name().escape_ascii().to_string(), self.kind())
    }
}

impl Dentry {
    /// The number of the directory it stands for.
    pub(crate) fn directory(&self) -> Result<u64, ErrorKind> {
        match self.kind() {
            None => Err(ErrorKind::NotFound),
            Some(Kind::Directory) => Ok(self.number()),
            Some(_) => Err(ErrorKind::NotADirectory),
        }
    }
}
