//! Walking the tree below a directory, in steps as small as one likes.
//!
//! Between two steps a walk holds no lock: a use of each directory on its stack, and the next place in each. Places do not move, so
//! a child that stays is shown exactly once, whatever is created, removed, swept or trimmed beside it (D14). A rename between
//! directories can take a child from what the walk has seen to what it has not, or the other stack; [`Walk::renamed`] says whether there
//! was one, as the kernel's `d_walk` does before it begins again.

use crate::children::ChildFilter;
use crate::dentry::Dentry;
use crate::error::Error;
use crate::kind::Kind;
use crate::mount::{Entry, Mount};
use lowwater_lru_core::sync::Arc;

/// A child that a walk shows. It is in use for as long as it is shown.
pub struct Step<'w> {
    dentry: &'w Arc<Dentry>,
    depth: usize,
}

/// How the walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "d_walk_ret")]
pub enum Flow {
    /// To the child's children.
    Continue,
    /// Past them.
    #[doc(alias = "D_WALK_SKIP")]
    Skip,
    /// Nowhere: the walk has ended.
    #[doc(alias = "D_WALK_QUIT")]
    Quit,
}

/// A walk under way.
#[doc(alias = "d_walk")]
pub struct Walk<'m> {
    mount: &'m Mount,
    stack: Vec<(Entry<'m>, u32)>,
    filter: ChildFilter,
    begun: u32,
    looked: u64,
}

impl Mount {
    /// Begins a walk over what is cached below a directory.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup); a path that does not exist is a walk over nothing.
    pub fn walk(&self, path: &[u8]) -> Result<Walk<'_>, Error> {
        self.begin_walk(path, ChildFilter::All)
    }

    /// Begins a walk over positives only: it does not look at negatives, however many there are (D16).
    ///
    /// # Errors
    ///
    /// As [`walk`](Self::walk).
    pub fn walk_positives(&self, path: &[u8]) -> Result<Walk<'_>, Error> {
        self.begin_walk(path, ChildFilter::Positive)
    }

    fn begin_walk(&self, path: &[u8], filter: ChildFilter) -> Result<Walk<'_>, Error> {
        let begun = self.core.rename_lock.begin();
        let stack = self.lookup(path)?.into_iter().map(|top| (top, 0)).collect();
        Ok(Walk { mount: self, stack, filter, begun, looked: 0 })
    }
}

impl Walk<'_> {
    /// Shows up to `children_max` more. False when there are none left, or `show` said so. Holds one directory's lock for one
    /// child at a time, and none while it shows.
    pub fn step(&mut self, children_max: usize, mut show: impl FnMut(&Step<'_>) -> Flow) -> bool {
        let mut left = children_max;
        while let Some((dir, index)) = self.stack.last_mut() {
            if left == 0 {
                return true;
            }
            let next = dir.dentry.dir().and_then(|dir| {
                let children = dir.children.lock();
                let (at, child) = children.next(*index, self.filter)?;
                *index = at + 1;
                // One that is dying is not there any more.
                Some(child.count.get().then(|| Arc::clone(child)))
            });
            let Some(child) = next else {
                self.stack.pop();
                continue;
            };
            self.looked += 1;
            left -= 1;
            let Some(child) = child else { continue };
            let entry = self.mount.entry(child);
            let flow = show(&Step { dentry: &entry.dentry, depth: self.stack.len() });
            match flow {
                Flow::Continue if entry.dentry.kind() == Some(Kind::Directory) => self.stack.push((entry, 0)),
                Flow::Continue | Flow::Skip => {}
                Flow::Quit => self.stack.clear(),
            }
        }
        false
    }

    /// Was anything renamed since the walk began? Then what it showed may lack a child, or have it twice.
    pub fn renamed(&self) -> bool {
        self.mount.core.rename_lock.retry(self.begun)
    }

    /// Children that were looked at so far, shown or not.
    pub fn looked(&self) -> u64 {
        self.looked
    }
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("depth", &self.stack.len()).field("looked", &self.looked).finish_non_exhaustive()
    }
}

impl Step<'_> {
    /// What it stands for; `None` for a negative.
    pub fn kind(&self) -> Option<Kind> {
        self.dentry.kind()
    }

    /// Its name.
    pub fn name(&self) -> Box<[u8]> {
        self.dentry.name()
    }

    /// Levels below where the walk began, 1 for its children.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl std::fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Step({:?}, {:?})", self.name().escape_ascii().to_string(), self.kind())
    }
}
