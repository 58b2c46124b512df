//! For who learns that the backend changed by itself: what is cached of it is given up, so that the next who asks is answered anew.
//!
//! Both calls take the directory's `rwsem` alone. So every question to the backend that was under
//! way there has been answered and
//! cached before they look, and what they leave was asked for after they began.

use crate::children::ChildFilter;
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::mount::Mount;
use lowwater_base::sync::Arc;

/// Children that are given up while the directory is held once.
const STEP: usize = 64;

impl Mount {
    /// Gives up what is cached for a path, a positive or a negative, and what nobody uses below it. True if anything was. Who uses
    /// the name keeps an entry that stands for what it was. The directories on the way are taken as they are cached.
    ///
    /// O(names cached below it).
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
    /// backend.create_path(b"/hosts", Kind::File)?; // behind the cache's back
    /// assert!(mount.stat(b"/hosts")?.is_none());
    /// assert!(mount.invalidate(b"/hosts")?);
    /// assert!(mount.stat(b"/hosts")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for the root, which is never given up; as [`lookup`](Self::lookup), on the way to the directory.
    #[doc(alias = "d_invalidate")]
    pub fn invalidate(&self, path: &[u8]) -> Result<bool, Error> {
        self.try_invalidate(path).map_err(|kind| kind.at(path))
    }

    fn try_invalidate(&self, path: &[u8]) -> Result<bool, ErrorKind> {
        let (dir, name) = match self.lookup_parent(path) {
            // What is below a name that does not exist is not cached.
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

    /// Gives up every negative in a directory, those too that were asked for again. How many.
    ///
    /// O(negatives of the directory). Lookups there that ask the backend wait for 64 of them at a time; others do not wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADirectory`]; as [`lookup`](Self::lookup). In a directory that does not exist nothing is cached.
    pub fn invalidate_negatives(&self, dir: &[u8]) -> Result<u64, Error> {
        self.try_invalidate_negatives(dir).map_err(|kind| kind.at(dir))
    }

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
                    // One that is dying cannot be found any more, or will not be in a moment.
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
