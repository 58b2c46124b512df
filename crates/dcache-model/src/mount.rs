//! A mounted backend, and references to its dentries.
//!
//! A mount owns its root and is a user of it, so the root is never freed while the mount exists.
//!
//! A change must ensure that a mount's drop ends the shrinker before it frees the dentries, which
//! the shrinker could visit.

use crate::backend::Backend;
use crate::dcache_core::DcacheCore;
use crate::dentry::Dentry;
use crate::error::Error;
use crate::flag;
use crate::kind::Kind;
use crate::superblock::SuperBlock;
use lowwater_base::sync::Arc;
use lowwater_lru_core::Memcg;
use lowwater_shrinker::Registration;
use std::fmt;

/// A backend under a cache. Dropping a mount unmounts the backend and frees all its dentries.
///
/// Paths are byte strings from the mount's root, with or without a leading slash. `.` and `..` are
/// resolved on the way; symbolic links are not followed.
pub struct Mount {
    pub(crate) core: Arc<DcacheCore>,
    pub(crate) sb: Arc<SuperBlock>,
    /// `None` while unmounting.
    registration: Option<Registration>,
    pub(crate) backend: Arc<dyn Backend>,
}

/// A name in a directory, with the kind and number of its inode, from [`Mount::readdir`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "dirent")]
pub struct DirEntry {
    /// The name in its directory, without a path: bytes of no particular encoding.
    pub name: Box<[u8]>,
    /// The kind of its inode.
    pub kind: Kind,
    /// The number of its inode.
    #[doc(alias = "d_ino")]
    pub inode: u64,
}

/// The kind and number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The kind of the inode.
    pub kind: Kind,
    /// The number that the backend gave the inode, unique among the inodes that exist at one time.
    pub inode: u64,
}

/// A reference to a positive dentry: the dentry and its inode stay in the cache until the reference
/// is dropped.
#[doc(alias = "dget")]
#[doc(alias = "struct path")]
pub struct DentryRef<'m> {
    pub(crate) mount: &'m Mount,
    pub(crate) dentry: Arc<Dentry>,
    /// The dentry was frozen and is about to be killed: the drop does not put it.
    dead: bool,
}

impl Mount {
    pub(crate) fn new(
        core: Arc<DcacheCore>,
        sb: Arc<SuperBlock>,
        registration: Registration,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self { core, sb, registration: Some(registration), backend }
    }

    /// Frees every unused dentry below a directory. Returns how many; 0 if the path does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`lookup`](Self::lookup).
    #[doc(alias = "shrink_dcache_parent")]
    pub fn shrink_tree(&self, path: &[u8]) -> Result<u64, Error> {
        let Some(entry) = self.lookup(path)? else { return Ok(0) };
        Ok(self.core.shrink_tree(&self.sb, &entry.dentry))
    }

    /// Returns the number of cached inodes.
    pub fn inodes(&self) -> usize {
        self.sb.inodes.len()
    }

    /// Returns the memcg that new dentries belong to when a call names none.
    pub fn group(&self) -> &Memcg {
        &self.sb.group
    }

    pub(crate) fn dentry_ref(&self, dentry: Arc<Dentry>) -> DentryRef<'_> {
        DentryRef { mount: self, dentry, dead: false }
    }
}

impl Drop for Mount {
    #[doc(alias = "shrink_dcache_for_umount")]
    fn drop(&mut self) {
        // The shrinker is unregistered first, so that no callback begins while the dentries are
        // freed. A scan may be in flight if this drop runs in a callback, and another mount's
        // thread may trim a chain: `shrink_tree` waits for the dentries that they kill.
        drop(self.registration.take());
        let root = self.sb.root();
        self.core.shrink_tree(&self.sb, root);
        self.core.unhash(root);
        self.core.put(&self.sb, root);
        self.core.remove_superblock(self.sb.id);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("id", &self.sb.id).finish_non_exhaustive()
    }
}

// === impl DentryRef ===

impl DentryRef<'_> {
    /// Returns the kind and number of the inode.
    pub fn stat(&self) -> Stat {
        Stat { kind: self.kind(), inode: self.inode() }
    }

    /// Returns the kind of the inode. A name that is removed while it is in use keeps its inode
    /// until the last reference is dropped.
    pub fn kind(&self) -> Kind {
        // A reference is made only of a positive dentry, and a dentry in use is not turned
        // negative.
        self.dentry.kind().unwrap_or(Kind::Other)
    }

    /// Returns the number that the backend gave the inode, unique among the inodes that exist at
    /// one time.
    pub fn inode(&self) -> u64 {
        self.dentry.number()
    }

    /// Returns the current name; a rename changes it.
    pub fn name(&self) -> Box<[u8]> {
        self.dentry.name()
    }

    /// Returns whether the directory of the name is watched. If it is, or was, takes two locks.
    #[doc(alias = "DCACHE_FSNOTIFY_PARENT_WATCHED")]
    pub fn is_watched(&self) -> bool {
        if !self.dentry.has(flag::PARENT_WATCHED) {
            return false;
        }
        // The flag stays when the last watch ends, so the directory's counter is read as well.
        let locked = self.dentry.lock();
        let is_watched = |parent: &Arc<Dentry>| parent.dir().is_some_and(|dir| dir.children.lock().watchers > 0);
        self.dentry.has(flag::PARENT_WATCHED) && locked.parent.as_ref().is_some_and(is_watched)
    }

    /// Returns the dentry, which the only user has frozen, without a put: the caller kills it.
    pub(crate) fn into_dead(mut self) -> Arc<Dentry> {
        self.dead = true;
        Arc::clone(&self.dentry)
    }
}

impl Drop for DentryRef<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.dead {
            self.mount.core.put(&self.mount.sb, &self.dentry);
        }
    }
}

impl fmt::Debug for DentryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DentryRef({:?}, {:?})", self.name().escape_ascii().to_string(), self.kind())
    }
}
