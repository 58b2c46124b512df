//! From a path to a dentry: RCU-walk without a lock or a write, then ref-walk, component by
//! component.
//!
//! # RCU-walk
//!
//! ```text
//!     for each name:   find the child on its chain     child.seq begun, then its name, parent and type are read
//!                      parent.seq unchanged?           so the child was the parent's when we came to it (D6)
//!     at the end:      take a count, or only a copy of what it stands for; child.seq unchanged?
//! ```
//!
//! Every step is checked against the one before, hand over hand; if one fails, or a name is not found, the walk begins again with
//! locks: a miss here proves nothing (D3). A negative whose check passes was there and negative, and is the answer.
//!
//! The kernel leaves no mark on a negative that is found this way, so that its second chance is left to chance; here it is
//! marked as used.
//!
//! # One question for many
//!
//! Who misses a name tells the others, in the directory's list of names that are being asked for, before it asks the backend. Those
//! who come meanwhile wait for its answer, and get the same dentry (D23).

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use crate::dentry::{Dentry, Dir};
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::kind::{kind_of, Kind};
use crate::mount::{DentryRef, DirEntry, Mount, Stat};
use crate::path::{check_path, is_end, next_component, Component};
use crate::qstr::{Name, QStr};
use lowwater_base::sync::Arc;
use lowwater_lru_core::Memcg;
use lowwater_store::hash_chains::{Found, Reader};

/// The result of RCU-walk.
enum RcuWalk<T> {
    Found(T),
    /// The path does not exist.
    Negative,
    /// A validation failed, or a component is not cached: the walk begins again as ref-walk.
    #[doc(alias = "ECHILD")]
    Retry,
}

impl Mount {
    /// Finds what a path stands for; `None` if it, or a directory on the way, does not exist.
    /// Answered from the cache without a lock and without writing a shared line but the entry's
    /// own, if every name on the way is cached; [`stat`](Self::stat) does not write that either.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADirectory`] if a file is on the way; [`ErrorKind::InvalidName`], [`ErrorKind::NameTooLong`]; what the backend
    /// says.
    #[doc(alias = "path_lookupat")]
    pub fn lookup(&self, path: &[u8]) -> Result<Option<DentryRef<'_>>, Error> {
        self.lookup_for(path, &self.sb.group)
    }

    /// As [`lookup`](Self::lookup); names that are new to the cache are counted for `group`.
    ///
    /// # Errors
    ///
    /// As `lookup`.
    pub fn lookup_for(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, Error> {
        self.resolve(path, group).map_err(|kind| kind.at(path))
    }

    /// What a path stands for, at one time during the call; `None` if it, or a directory on the
    /// way, does not exist. Unlike [`lookup`](Self::lookup) it does not keep the name in use.
    /// Answered from the cache it writes nothing that another thread reads (but the mark of use,
    /// where a walk cleared it), so threads that ask for the same names do not wait for each other.
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

    /// What a path stands for.
    #[inline]
    pub(crate) fn resolve(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, ErrorKind> {
        check_path(path)?;
        let take = |found: &Found<'_, Dentry>, _| found.count.get().then(|| self.dentry_ref(found.to_arc()));
        match self.rcu_walk(path, take)? {
            RcuWalk::Found(entry) => Ok(Some(entry)),
            RcuWalk::Negative => Ok(None),
            RcuWalk::Retry => self.ref_walk(path, group),
        }
    }

    /// A copy of what a path stands for.
    #[inline]
    pub(crate) fn resolve_stat(&self, path: &[u8], group: &Memcg) -> Result<Option<Stat>, ErrorKind> {
        check_path(path)?;
        let copy = |found: &Found<'_, Dentry>, kind| {
            found.mark_referenced();
            Some(Stat { kind, inode: found.number() })
        };
        match self.rcu_walk(path, copy)? {
            RcuWalk::Found(stat) => Ok(Some(stat)),
            RcuWalk::Negative => Ok(None),
            RcuWalk::Retry => Ok(self.ref_walk(path, group)?.map(|entry| entry.stat())),
        }
    }

    /// Walks without locks. `take` extracts the result from the positive dentry at the end, or
    /// returns `None` for a retry. The result is dropped if the dentry changed meanwhile.
    #[inline]
    #[doc(alias = "LOOKUP_RCU")]
    fn rcu_walk<T>(
        &self,
        path: &[u8],
        take: impl FnOnce(&Found<'_, Dentry>, Kind) -> Option<T>,
    ) -> Result<RcuWalk<T>, ErrorKind> {
        let reader = Reader::enter();
        let core = &*self.core;
        let root = self.sb.root();
        let mut rest = path;
        let mut name = match next_component(rest)? {
            Some((Component::Normal(name), behind)) => {
                rest = behind;
                name
            }
            // The root itself, or above it: not worth a fast way.
            _ => return Ok(RcuWalk::Retry),
        };
        let mut dir: &Dentry = root;
        let mut dir_seq = root.seq.begin();
        loop {
            let qstr = core.qstr(dir, name);
            let mut seq = 0;
            let found = core.chains.find(qstr.hash, &reader, |child| child.matches(&qstr).map(|s| seq = s).is_some());
            let Some(found) = found else { return Ok(RcuWalk::Retry) };
            // The parent is checked after the child's sequence began, so both held at one time.
            if dir.seq.retry(dir_seq) {
                return Ok(RcuWalk::Retry);
            }
            let flags = found.flags();
            let kind = kind_of(flags);
            let next = next_component(rest)?;
            let Some(kind) = kind else {
                if found.seq.retry(seq) {
                    return Ok(RcuWalk::Retry);
                }
                found.mark_referenced();
                return Ok(RcuWalk::Negative);
            };
            match next {
                None => {
                    if !rest.is_empty() && kind != Kind::Directory {
                        return Ok(RcuWalk::Retry);
                    }
                    let taken = take(&found, kind);
                    // An entry that is dropped takes its count back.
                    return Ok(taken.filter(|_| !found.seq.retry(seq)).map_or(RcuWalk::Retry, RcuWalk::Found));
                }
                Some((Component::Normal(next), behind)) if kind == Kind::Directory => {
                    (dir, dir_seq, name, rest) = (found.get(), seq, next, behind);
                }
                Some(_) => return Ok(RcuWalk::Retry),
            }
        }
    }

    #[cold]
    fn ref_walk(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, ErrorKind> {
        match self.ref_walk_components(path, group) {
            // A directory on the way was removed while we were in it.
            Err(ErrorKind::NotFound) => Ok(None),
            result => result,
        }
    }

    fn ref_walk_components(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, ErrorKind> {
        let root = self.sb.root();
        // The mount holds its root, so it is not dead.
        root.count.get();
        let mut here = self.dentry_ref(Arc::clone(root));
        let mut rest = path;
        while let Some((part, behind)) = next_component(rest)? {
            here.dentry.directory()?;
            let next = match part {
                Component::ParentDir => self.core.parent(&here.dentry)?,
                Component::Normal(name) => self.lookup_one(&here.dentry, name, group)?,
            };
            match self.positive(next) {
                Some(entry) => here = entry,
                None => return Ok(None),
            }
            rest = behind;
        }
        if path.ends_with(b"/") && is_end(rest) {
            here.dentry.directory()?;
        }
        Ok(Some(here))
    }

    /// Returns a reference to a positive dentry, and puts a negative one.
    pub(crate) fn positive(&self, dentry: Arc<Dentry>) -> Option<DentryRef<'_>> {
        let negative = dentry.is_negative();
        let entry = self.dentry_ref(dentry);
        (!negative).then_some(entry)
    }

    /// The dentry of a name in a directory that the caller uses, with one more user; asks the backend if need be.
    #[doc(alias = "lookup_slow")]
    pub(crate) fn lookup_one(
        &self,
        dir: &Arc<Dentry>,
        name: Name<'_>,
        group: &Memcg,
    ) -> Result<Arc<Dentry>, ErrorKind> {
        let qstr = self.core.qstr(dir, name);
        if let Some(dentry) = self.core.d_lookup(&qstr) {
            return Ok(dentry);
        }
        let _shared = dir.make_dir().rwsem.read();
        self.lookup_shared(dir, &qstr, group)
    }

    /// As [`lookup_one`](Self::lookup_one), for who holds the directory's `rwsem`, shared or alone.
    #[doc(alias = "d_alloc_parallel")]
    pub(crate) fn lookup_shared(
        &self,
        dir: &Arc<Dentry>,
        qstr: &QStr<'_>,
        group: &Memcg,
    ) -> Result<Arc<Dentry>, ErrorKind> {
        if dir.has(flag::DEADDIR) {
            return Err(ErrorKind::NotFound);
        }
        let part = dir.make_dir();
        // Before the lock: it may have to kill others.
        let reservation = self.core.reserve(&self.sb, group, qstr.len());
        let asked = {
            let mut in_lookup = part.in_lookup.lock();
            loop {
                let same = |other: &&Arc<Dentry>| other.is_in_lookup_for(qstr);
                if let Some(theirs) = in_lookup.dentries.iter().find(same).cloned() {
                    in_lookup.waiters += 1;
                    while in_lookup.dentries.iter().any(|other| Arc::ptr_eq(other, &theirs)) {
                        part.lookup_done.wait(&mut in_lookup);
                    }
                    in_lookup.waiters -= 1;
                    if !theirs.has(flag::UNHASHED) && theirs.count.get() {
                        return Ok(theirs);
                    }
                    // The backend failed, or it is gone again: ask for ourselves.
                } else if let Some(dentry) = self.core.d_lookup(qstr) {
                    return Ok(dentry);
                } else {
                    let dentry = self.core.alloc(&self.sb, dir, qstr, group, flag::IN_LOOKUP | reservation.take());
                    in_lookup.dentries.push(Arc::clone(&dentry));
                    break dentry;
                }
            }
        };
        let answer = InLookupGuard { mount: self, part, dentry: asked };
        self.core.counters.backend_lookup(answer.dentry.addr());
        let node = self.sb.backend.lookup(dir.directory()?, qstr.name)?;
        let dentry = &answer.dentry;
        if let Some(node) = node {
            let inode = self.sb.inodes.get(node.inode, node.kind, group, dentry.node);
            self.core.instantiate(&self.sb, dentry, inode);
        }
        self.core.rehash(dentry);
        dentry.count.get();
        Ok(Arc::clone(dentry))
    }
}

impl DentryRef<'_> {
    /// Finds a name in this directory, as [`Mount::lookup`].
    ///
    /// # Errors
    ///
    /// As [`Mount::lookup`].
    pub fn child(&self, name: &[u8]) -> Result<Option<DentryRef<'_>>, Error> {
        let find = || {
            let name = Name::new(name)?;
            self.dentry.directory()?;
            let child = self.mount.lookup_one(&self.dentry, name, &self.mount.sb.group)?;
            Ok(self.mount.positive(child))
        };
        find().map_err(|kind: ErrorKind| kind.at(name))
    }
}

impl Dentry {
    /// Returns whether this name is looked up in the backend. The dentry is not hashed yet, so
    /// `UNHASHED` is not compared.
    fn is_in_lookup_for(&self, qstr: &QStr<'_>) -> bool {
        self.hash() == qstr.hash >> 32 << 32 && *self.name() == *qstr.name.bytes()
    }
}

/// The thread that asks the backend for a name. Its drop ends the lookup and wakes the threads that
/// wait for the answer.
struct InLookupGuard<'a> {
    mount: &'a Mount,
    part: &'a Dir,
    dentry: Arc<Dentry>,
}

impl Drop for InLookupGuard<'_> {
    #[doc(alias = "d_lookup_done")]
    fn drop(&mut self) {
        {
            let mut locked = self.dentry.lock();
            self.dentry.update_flags(&mut locked, flag::IN_LOOKUP, 0, &self.mount.core.counters);
        }
        let mut in_lookup = self.part.in_lookup.lock();
        in_lookup.dentries.retain(|other| !Arc::ptr_eq(other, &self.dentry));
        if in_lookup.waiters > 0 {
            self.part.lookup_done.notify_all();
        }
        drop(in_lookup);
        self.mount.core.put(&self.mount.sb, &self.dentry);
    }
}
