//! A mounted backend, and references to its dentries.

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

/// A backend under a cache. Dropping it unmounts: every name of it is freed.
///
/// Paths are bytes, from the mount's root, with or without a leading slash. `.` and `..` are understood on the way, symbolic links are
/// not followed.
pub struct Mount {
    pub(crate) core: Arc<DcacheCore>,
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

/// A reference to a positive dentry: the dentry and its inode stay in the cache until the reference
/// is dropped.
#[doc(alias = "dget")]
#[doc(alias = "struct path")]
pub struct DentryRef<'m> {
    pub(crate) mount: &'m Mount,
    pub(crate) dentry: Arc<Dentry>,
    /// The dentry is dead, and this is none of its users any more.
    dead: bool,
}

impl Mount {
    pub(crate) fn new(core: Arc<DcacheCore>, sb: Arc<SuperBlock>, registration: Registration) -> Self {
        Self { core, sb, registration: Some(registration) }
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

    /// Returns the memcg that is charged when a call names none.
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
        // First no callback, then no name.
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
