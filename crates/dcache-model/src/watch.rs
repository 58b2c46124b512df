//! Watching a directory: its positive children carry a mark, so that who uses one need not ask its parent.
//!
//! To set a watch is one word, then a walk over the positives: O(positives + 1), in steps, whatever the number of negatives. A child
//! that turns positive meanwhile finds that word and marks itself (D17); negatives never need the mark. The kernel walks all
//! children under the directory's lock, which has locked machines up with 200 million negatives there.
//!
//! When the last watch goes, marks stay and are cleared where they are met, as Linux does since 6.12.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::mount::{DentryRef, Mount};
use lowwater_base::sync::Arc;

/// Children that are marked while the lock is held once.
const STEP: usize = 64;

/// A watch on a directory, until it is dropped.
#[doc(alias = "fsnotify_mark")]
pub struct DirectoryWatch<'m> {
    directory: DentryRef<'m>,
    /// The next index to mark; `None` when all children are marked.
    next: Option<u32>,
    visited: u64,
}

impl Mount {
    /// Watches a directory. All its positive children are marked when this returns, and those that turn positive later will be.
    ///
    /// O(positive children + 1).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`]; as [`lookup`](Self::lookup).
    #[doc(alias = "fsnotify_set_children_dentry_flags")]
    pub fn watch(&self, path: &[u8]) -> Result<DirectoryWatch<'_>, Error> {
        let mut watch = self.begin_watch(path)?;
        while watch.step() {}
        Ok(watch)
    }

    /// As [`watch`](Self::watch), but leaves the marking of the children that are positive now to
    /// [`DirectoryWatch::step`].
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn begin_watch(&self, path: &[u8]) -> Result<DirectoryWatch<'_>, Error> {
        let begin = || {
            let directory = self.resolve(path, &self.sb.group)?.ok_or(ErrorKind::NotFound)?;
            directory.dentry.directory()?;
            let mut children = directory.dentry.make_dir().children.lock();
            children.watchers += 1;
            drop(children);
            Ok(DirectoryWatch { directory, next: Some(0), visited: 0 })
        };
        begin().map_err(|kind: ErrorKind| kind.at(path))
    }
}

impl DirectoryWatch<'_> {
    /// Marks up to 64 more children. False when all are marked. Holds the directory's lock that long, and no longer.
    pub fn step(&mut self) -> bool {
        let Some(mut index) = self.next else { return false };
        let mount = self.directory.mount;
        let mut found: Vec<Arc<Dentry>> = Vec::with_capacity(STEP);
        {
            let children = self.directory.dentry.make_dir().children.lock();
            while found.len() < STEP {
                let Some((at, child)) = children.next(index, ChildFilter::Positive) else { break };
                found.push(Arc::clone(child));
                index = at + 1;
            }
        }
        self.visited += found.len() as u64;
        self.next = (found.len() == STEP).then_some(index);
        for child in found {
            let mut locked = child.lock();
            // It may have turned negative, or moved away: the mark is for children of this directory that are positive.
            let here = locked.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, &self.directory.dentry));
            if here && !child.is_negative() {
                child.update_flags(&mut locked, 0, flag::PARENT_WATCHED, &mount.core.counters);
            }
        }
        self.next.is_some()
    }

    /// Returns the number of children visited to set the watch.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// The directory.
    pub fn directory(&self) -> &DentryRef<'_> {
        &self.directory
    }
}

impl Drop for DirectoryWatch<'_> {
    fn drop(&mut self) {
        self.directory.dentry.make_dir().children.lock().watchers -= 1;
    }
}

impl std::fmt::Debug for DirectoryWatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryWatch").field("directory", &self.directory).finish_non_exhaustive()
    }
}
