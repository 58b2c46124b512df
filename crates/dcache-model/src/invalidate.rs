//! Invalidation, for callers that learn of a change which a backend made by itself: cached answers
//! are dropped, so that the next lookup calls the backend.
//!
//! Both calls hold the directory's `rwsem` exclusively. So every backend lookup that was in flight
//! in the directory has completed, and its answer is cached, before the scan begins; an answer that
//! remains after the scan was requested from the backend after the call began. A change must keep
//! this guarantee, whether or not a dentry is in use.

use crate::children::ChildFilter;
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::mount::Mount;
use lowwater_base::sync::Arc;

/// Children that are invalidated for each acquisition of the directory's `rwsem`.
const STEP: usize = 64;

impl Mount {
    /// Invalidates the dentry of a path, positive or negative, and frees the unused dentries below
    /// it. Returns whether the path was cached.
    ///
    /// A [`DentryRef`](crate::DentryRef) to the name keeps its dentry, with the inode that it had.
    /// The directories on the way to the name are resolved through the cache and are not
    /// invalidated.
    ///
    /// O(names cached below the path).
    ///
    /// ```
    /// # use lowwater_dcache_model::{backend::Memory, Dcache, Kind};
    /// # use lowwater_lru_core::MemcgTree;
    /// # use lowwater_shrinker::Registry;
    /// # use std::sync::Arc;
    /// # let tree = MemcgTree::default();
    /// # let registry = Registry::new(&tree, 1);
    /// # let backend = Arc::new(Memory::new());
    /// # let mount = Dcache::builder().build().mount(backend.clone(), &registry, tree.root())?;
    /// assert!(mount.stat(b"/hosts")?.is_none());
    /// backend.create_path(b"/hosts", Kind::File)?; // bypasses the cache
    /// assert!(mount.stat(b"/hosts")?.is_none());
    /// assert!(mount.invalidate(b"/hosts")?);
    /// assert!(mount.stat(b"/hosts")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for the root, which cannot be invalidated; the errors of
    /// [`lookup`](Self::lookup) for the directory of the path.
    #[doc(alias = "d_invalidate")]
    pub fn invalidate(&self, path: &[u8]) -> Result<bool, Error> {
        self.try_invalidate(path).map_err(|kind| kind.at(path))
    }

    fn try_invalidate(&self, path: &[u8]) -> Result<bool, ErrorKind> {
        let (dir, name) = match self.lookup_parent(path) {
            // No name is cached below a directory that does not exist.
            Err(ErrorKind::NotFound) => return Ok(false),
            found => found?,
        };
        let _exclusive = dir.dentry.make_dir().rwsem.write();
        let Some(dentry) = self.core.d_lookup(&self.core.qstr(&dir.dentry, name)) else { return Ok(false) };
        self.core.shrink_tree(&self.sb, &dentry);
        self.core.unhash(&dentry);
        self.core.put(&self.sb, &dentry);
        Ok(true)
    }

    /// Invalidates every negative in a directory, including those that were looked up repeatedly.
    /// Returns how many. A directory that does not exist has no negatives.
    ///
    /// O(negatives of the directory). Lookups in the directory that call the backend wait for up to
    /// 64 negatives at a time; lookups that are answered from the cache do not wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADirectory`]; the errors of [`lookup`](Self::lookup).
    pub fn invalidate_negatives(&self, dir: &[u8]) -> Result<u64, Error> {
        self.try_invalidate_negatives(dir).map_err(|kind| kind.at(dir))
    }

    /// Unhashes the negatives of a directory, [`STEP`] for each acquisition of its `rwsem`; the
    /// last put of an unhashed dentry kills it. Returns how many.
    fn try_invalidate_negatives(&self, dir: &[u8]) -> Result<u64, ErrorKind> {
        let Some(dir) = self.resolve(dir, &self.sb.group)? else { return Ok(0) };
        dir.dentry.directory()?;
        let part = dir.dentry.make_dir();
        let (mut index, mut given_up) = (0, 0);
        loop {
            let _exclusive = part.rwsem.write();
            let mut found = Vec::with_capacity(STEP);
            {
                let children = part.children.lock();
                while found.len() < STEP {
                    let Some((at, child)) = children.next(index, ChildFilter::Negative) else { break };
                    index = at + 1;
                    // A dying negative is unhashed by the thread that kills it.
                    if child.count.get() {
                        found.push(Arc::clone(child));
                    }
                }
                if found.is_empty() {
                    return Ok(given_up);
                }
            }
            for negative in found {
                given_up += u64::from(!negative.has(flag::UNHASHED));
                self.core.unhash(&negative);
                self.core.put(&self.sb, &negative);
            }
        }
    }
}
