//! Watches of a directory: its positive children carry a flag, so that a user of a child need not
//! check the parent.
//!
//! Setting a watch increments one counter, then walks over the positives: O(positives + 1), in
//! steps, for any number of negatives. A child that turns positive meanwhile reads the counter and
//! sets its own flag (D17); negatives never need it. The kernel walks all children under the
//! directory's lock, which has locked up machines with 200 million negatives in a directory.
//!
//! When the last watch is dropped, the flags stay, and are cleared when their dentries are moved or
//! turn negative, as in Linux since 6.12. So [`DentryRef::is_watched`] reads the counter, too.
//!
//! A change must increment the counter before the walk begins: a child that turns positive where
//! the walk has been is marked only because of the counter.
//!
//! Numbers such as D17 are those of docs/INVARIANTS.md.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::mount::{DentryRef, Mount};
use lowwater_base::sync::Arc;

/// Children that are collected for each acquisition of the directory's children lock.
const STEP: usize = 64;

/// A watch on a directory; dropping it ends the watch.
#[doc(alias = "fsnotify_mark")]
pub struct DirectoryWatch<'m> {
    directory: DentryRef<'m>,
    /// The index among the children at which the next step begins; `None` when all positive
    /// children are marked.
    next: Option<u32>,
    /// The number of positive children that the steps have collected.
    visited: u64,
}

impl Mount {
    /// Watches a directory. When this returns, all its positive children are marked; children that
    /// turn positive later are marked at that time.
    ///
    /// O(positive children + 1).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`]; the errors of
    /// [`lookup`](Self::lookup).
    #[doc(alias = "fsnotify_set_children_dentry_flags")]
    pub fn watch(&self, path: &[u8]) -> Result<DirectoryWatch<'_>, Error> {
        let mut watch = self.begin_watch(path)?;
        while watch.step() {}
        Ok(watch)
    }

    /// As [`watch`](Self::watch), but leaves the marking of children that are already positive to
    /// [`DirectoryWatch::step`].
    ///
    /// # Errors
    ///
    /// The errors of [`watch`](Self::watch).
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
    /// Marks up to 64 more children. Returns false when all are marked. Holds the directory's lock
    /// only to collect these children.
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
            // The child may have turned negative, or moved: only positive children of this
            // directory are marked.
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

    /// Returns the watched directory, which stays in the cache as long as the watch exists.
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
