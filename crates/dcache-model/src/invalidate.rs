//! Invalidation, for callers that learn of a change which a backend made by itself: cached answers
//! are dropped, so that the next lookup calls the backend.
//!
//! Both calls hold the directory's `rwsem` exclusively. So every backend lookup that was in flight
//! in the directory has completed, and its answer is cached, before the scan begins; an answer that
//! remains after the scan was requested from the backend after the call began. A change must keep
//! this guarantee, whether or not a dentry is in use, and D26.
//!
//! # Directories in use
//!
//! The lock and the children of a directory are in its dentry. If the dentry of a directory in use
//! were unhashed, the next lookup would allocate a second one: names that are created through one
//! would be missing in the other, and no lock would exclude their changes. So the call itself looks
//! up a directory in use in the backend. If the answer is the same inode, the dentry stays, and its
//! children are invalidated one by one. Otherwise the dentry is treated as that of a removed
//! directory, as are the directories in use below it.
//!
//! # Renames
//!
//! Between two directories `invalidate` holds no lock, so a rename can move a dentry whose answer
//! is old into a directory that was scanned before. So the call repeats its pass if a rename ran
//! meanwhile, and excludes renames in the last pass.
//!
//! Numbers such as D26 are those of docs/INVARIANTS.md.

use crate::backend::InodeInfo;
use crate::children::ChildFilter;
use crate::dentry::{Dentry, Dir};
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::kind::Kind;
use crate::mount::{DentryRef, Mount};
use crate::qstr::Name;
use lowwater_base::sync::Arc;

/// Children that are invalidated for each acquisition of the directory's `rwsem`.
const STEP: usize = 64;

impl Mount {
    /// Invalidates the dentries of a path and of all names below it, positive and negative. Returns
    /// whether the path was cached.
    ///
    /// A [`DentryRef`] to a file keeps its dentry, with the inode that it had. The call itself
    /// looks up a directory in use in the backend: if it has the same inode, its references find
    /// the names that the backend has now; otherwise they find no names any more, as if the
    /// directory had been removed. The directories on the way to the name are resolved through the
    /// cache and are not invalidated.
    ///
    /// O(names cached below the path), and a lookup in the backend for each directory in use. Both
    /// are repeated, at most twice, if a rename of any mount of the cache ran meanwhile. This
    /// mount's renames, and its links between two directories, wait for the last pass.
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
    /// [`lookup`](Self::lookup) for the directory of the path; an error of the backend for a
    /// directory in use, which stays cached, as may others below the path.
    #[doc(alias = "d_invalidate")]
    pub fn invalidate(&self, path: &[u8]) -> Result<bool, Error> {
        self.try_invalidate(path).map_err(|kind| kind.at(path))
    }

    fn try_invalidate(&self, path: &[u8]) -> Result<bool, ErrorKind> {
        /// After this many passes during which a rename ran, renames are excluded.
        const OPTIMISTIC: u32 = 2;
        let mut was_cached = false;
        for _ in 0..OPTIMISTIC {
            let begun = self.core.rename_lock.begin();
            // The next pass may find nothing that is cached.
            was_cached |= self.invalidate_once(path)?;
            if !self.core.rename_lock.retry(begun) {
                return Ok(was_cached);
            }
        }
        let _no_renames = self.sb.rename_mutex.lock();
        Ok(self.invalidate_once(path)? || was_cached)
    }

    /// Invalidates a path and the names below it, but those that a concurrent rename moves past the
    /// scan. Returns whether the path was cached.
    fn invalidate_once(&self, path: &[u8]) -> Result<bool, ErrorKind> {
        let (dir, name) = match self.lookup_parent(path) {
            // No name is cached below a directory that does not exist.
            Err(ErrorKind::NotFound) => return Ok(false),
            found => found?,
        };
        // The directories in use whose children are still to be invalidated.
        let mut pending = Vec::new();
        {
            let _exclusive = dir.dentry.make_dir().rwsem.write();
            let Some(dentry) = self.core.d_lookup(&self.core.qstr(&dir.dentry, name)) else { return Ok(false) };
            let entry = self.dentry_ref(dentry);
            self.core.shrink_tree(&self.sb, &entry.dentry);
            pending.extend(self.invalidate_child(&dir.dentry, entry)?);
        }
        while let Some(dir) = pending.pop() {
            self.invalidate_children(&dir.dentry, &mut pending)?;
        }
        Ok(true)
    }

    /// Invalidates the children of a directory in use, [`STEP`] for each acquisition of its
    /// `rwsem`. Those that are directories in use are added to `pending`.
    fn invalidate_children<'m>(&'m self, dir: &Arc<Dentry>, pending: &mut Vec<DentryRef<'m>>) -> Result<(), ErrorKind> {
        let part = dir.make_dir();
        let mut index = 0;
        loop {
            let _exclusive = part.rwsem.write();
            let children = next_children(part, ChildFilter::All, &mut index);
            if children.is_empty() {
                return Ok(());
            }
            for child in children {
                if !child.count.get() {
                    // RCU-walk finds a dying dentry until it is unhashed.
                    self.core.unhash(&child);
                    continue;
                }
                let child = self.dentry_ref(child);
                if !child.dentry.has(flag::UNHASHED) {
                    pending.extend(self.invalidate_child(dir, child)?);
                }
            }
        }
    }

    /// Invalidates a hashed child of `dir`: kills or unhashes it, unless it is a directory in use
    /// that still exists. Returns a directory in use, whose children are not invalidated yet. The
    /// caller holds the `rwsem` of `dir` exclusively.
    fn invalidate_child<'m>(
        &'m self,
        dir: &Arc<Dentry>,
        child: DentryRef<'m>,
    ) -> Result<Option<DentryRef<'m>>, ErrorKind> {
        if child.dentry.kind() != Some(Kind::Directory) {
            self.core.unhash(&child.dentry);
            return Ok(None);
        }
        if child.dentry.count.freeze() {
            // No other thread is a user, and none is added any more.
            let dentry = child.into_dead();
            self.core.kill_and_put_parent(&self.sb, &dentry, dentry.lock());
            return Ok(None);
        }
        if !self.is_current(dir, &child)? {
            // Changes and lookups in the directory that are in flight complete first.
            let _settled = child.dentry.make_dir().rwsem.write();
            self.core.mark_removed(&self.sb, &child.dentry, true);
            self.core.unhash(&child.dentry);
        }
        Ok(Some(child))
    }

    /// Looks up a directory in use in the backend. Returns whether it is still the one that its
    /// dentry has, in `dir`.
    fn is_current(&self, dir: &Arc<Dentry>, child: &DentryRef<'_>) -> Result<bool, ErrorKind> {
        if dir.has(flag::DEADDIR) {
            return Ok(false);
        }
        let name = child.name();
        self.core.counters.backend_lookup(child.dentry.addr());
        match self.backend.lookup(dir.directory()?, Name::checked(&name)).map_err(ErrorKind::from) {
            Ok(now) => Ok(now == Some(InodeInfo { inode: child.inode(), kind: Kind::Directory })),
            // The backend has no directory `dir` any more.
            Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
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
            let negatives = next_children(part, ChildFilter::Negative, &mut index);
            if negatives.is_empty() {
                return Ok(given_up);
            }
            for negative in negatives {
                // RCU-walk finds a dying negative until it is unhashed.
                let entered = negative.count.get();
                given_up += u64::from(entered && !negative.has(flag::UNHASHED));
                self.core.unhash(&negative);
                if entered {
                    self.core.put(&self.sb, &negative);
                }
            }
        }
    }
}

/// Returns up to [`STEP`] children of a directory from `index` on, dying ones among them, and
/// advances `index`.
fn next_children(dir: &Dir, filter: ChildFilter, index: &mut u32) -> Vec<Arc<Dentry>> {
    let mut found = Vec::with_capacity(STEP);
    let children = dir.children.lock();
    while found.len() < STEP {
        let Some((at, child)) = children.next(*index, filter) else { break };
        *index = at + 1;
        found.push(Arc::clone(child));
    }
    found
}
