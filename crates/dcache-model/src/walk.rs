//! Walks over the tree below a directory, in steps of any size.
//!
//! Between two steps a walk holds no lock. It counts as a user of each directory on its stack,
//! which keeps the directory in memory, and remembers the index of the next child in each. A
//! child's index does not change, so a child that stays is visited exactly once, even if others are
//! created, removed, swept or trimmed concurrently (D14).
//!
//! A rename between directories can move a child from the visited part of the tree to the rest, or
//! back. [`Walk::has_seen_rename`] returns whether a rename happened; the kernel's `d_walk` starts
//! again in that case.
//!
//! A change must ensure that no lock is held while the caller's code runs, and keep D14 and D16.
//!
//! Numbers such as D14 are those of docs/INVARIANTS.md.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::error::Error;
use crate::kind::Kind;
use crate::mount::{DentryRef, Mount};
use lowwater_base::sync::Arc;

/// A child that a walk visits; the walk is a user of it during the visit.
pub struct WalkEntry<'w> {
    dentry: &'w Arc<Dentry>,
    depth: usize,
}

/// How a walk continues after a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "d_walk_ret")]
pub enum WalkControl {
    /// Visits the children of the child.
    #[doc(alias = "D_WALK_CONTINUE")]
    Continue,
    /// Skips the children of the child.
    #[doc(alias = "D_WALK_SKIP")]
    Skip,
    /// Ends the walk.
    #[doc(alias = "D_WALK_QUIT")]
    Quit,
}

/// A walk over the dentries below a directory.
#[doc(alias = "d_walk")]
pub struct Walk<'m> {
    mount: &'m Mount,
    /// The directories from the top to the current one, each with the lowest index of a child that
    /// was not visited.
    stack: Vec<(DentryRef<'m>, u32)>,
    filter: ChildFilter,
    /// The sequence number of the rename lock when the walk began.
    begun: u32,
    visited: u64,
}

impl Mount {
    /// Begins a walk over the cached dentries below a directory.
    ///
    /// # Errors
    ///
    /// The errors of [`lookup`](Self::lookup). A path that does not exist gives an empty walk.
    pub fn walk(&self, path: &[u8]) -> Result<Walk<'_>, Error> {
        self.begin_walk(path, ChildFilter::All)
    }

    /// Begins a walk over positives (dentries with an inode) only: it does not read negatives,
    /// however many there are (`docs/INVARIANTS.md`, D16).
    ///
    /// # Errors
    ///
    /// The errors of [`walk`](Self::walk).
    pub fn walk_positives(&self, path: &[u8]) -> Result<Walk<'_>, Error> {
        self.begin_walk(path, ChildFilter::Positive)
    }

    fn begin_walk(&self, path: &[u8], filter: ChildFilter) -> Result<Walk<'_>, Error> {
        let begun = self.core.rename_lock.begin();
        let stack = self.lookup(path)?.into_iter().map(|top| (top, 0)).collect();
        Ok(Walk { mount: self, stack, filter, begun, visited: 0 })
    }
}

impl Walk<'_> {
    /// Visits up to `children_max` further children, and calls `show` with each but dying ones.
    /// Returns true after `children_max` children, even if none is left; false when it found no
    /// more before that, or `show` returned [`WalkControl::Quit`].
    ///
    /// Holds the lock of one directory for one child at a time, and no lock while `show` runs.
    pub fn step(&mut self, children_max: usize, mut show: impl FnMut(&WalkEntry<'_>) -> WalkControl) -> bool {
        let mut left = children_max;
        while let Some((dir, index)) = self.stack.last_mut() {
            if left == 0 {
                return true;
            }
            let next = dir.dentry.dir().and_then(|dir| {
                let children = dir.children.lock();
                let (at, child) = children.next(*index, self.filter)?;
                *index = at + 1;
                // A dying child counts as removed.
                Some(child.count.get().then(|| Arc::clone(child)))
            });
            let Some(child) = next else {
                self.stack.pop();
                continue;
            };
            self.visited += 1;
            left -= 1;
            let Some(child) = child else { continue };
            let entry = self.mount.dentry_ref(child);
            let flow = show(&WalkEntry { dentry: &entry.dentry, depth: self.stack.len() });
            match flow {
                WalkControl::Continue if entry.dentry.kind() == Some(Kind::Directory) => self.stack.push((entry, 0)),
                WalkControl::Continue | WalkControl::Skip => {}
                WalkControl::Quit => self.stack.clear(),
            }
        }
        false
    }

    /// Returns whether a rename happened since the walk began. If so, a child may have been missed,
    /// or visited twice.
    #[doc(alias = "need_seqretry")]
    pub fn has_seen_rename(&self) -> bool {
        self.mount.core.rename_lock.retry(self.begun)
    }

    /// Returns the number of children visited so far, including dying ones.
    pub fn visited(&self) -> u64 {
        self.visited
    }
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("depth", &self.stack.len()).field("visited", &self.visited).finish_non_exhaustive()
    }
}

impl WalkEntry<'_> {
    /// Returns the kind of the child's inode; `None` for a negative.
    pub fn kind(&self) -> Option<Kind> {
        self.dentry.kind()
    }

    /// Returns the name of the child.
    pub fn name(&self) -> Box<[u8]> {
        self.dentry.name()
    }

    /// Returns the number of levels below the directory of the walk: 1 for its children.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl std::fmt::Debug for WalkEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WalkEntry({:?}, {:?})", self.name().escape_ascii().to_string(), self.kind())
    }
}
