//! From a path to a dentry: RCU-walk without a lock, then ref-walk, component by component. (The
//! end of a name of more than 32 bytes is compared under the `d_lock` of its dentry.)
//!
//! # RCU-walk
//!
//! ```text
//!     for each name:   find the child on its chain    child.seq begun; name, parent, type read
//!                      parent.seq unchanged?          the parent had this child at that time (D6)
//!     at the end:      take a count, or copy number and kind; child.seq unchanged?
//! ```
//!
//! Each step is validated against the step before, hand over hand. If a validation fails, or a name
//! is not found, the walk starts again with locks, because a miss here proves nothing (D3). A
//! negative that passes its validation existed and was negative, and is the answer.
//!
//! The kernel does not mark a negative that RCU-walk found as referenced, so its second chance is
//! left to luck; here it is marked.
//!
//! # Concurrent misses
//!
//! A thread that misses a name enters it into the directory's `InLookup` list before it calls the
//! backend. Threads that miss the same name meanwhile wait for that call, and get the same dentry
//! (D23).
//!
//! Numbers such as D6 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that RCU-walk takes no other lock, writes to no dentry but the last one,
//! and gives up if a validation fails or a name is not found (D3).

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use crate::dentry::{Dentry, Dir};
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::kind::{kind_of, Kind};
use crate::mount::{DentryRef, DirEntry, Mount, Stat};
use crate::path::{check_path, next_component, Component};
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
    /// Looks up a path, and returns a reference to its dentry; `None` if the path, or a directory
    /// on the way, does not exist.
    ///
    /// If every name on the way is cached and has at most 32 bytes, the lookup takes no lock and
    /// writes no shared cache line but the dentry's own, which [`stat`](Self::stat) only reads,
    /// except for a referenced flag. To compare a longer name, it takes the lock of one dentry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADirectory`] if a file is on the way; [`ErrorKind::InvalidName`];
    /// [`ErrorKind::NameTooLong`]; an error of the backend.
    #[doc(alias = "path_lookupat")]
    pub fn lookup(&self, path: &[u8]) -> Result<Option<DentryRef<'_>>, Error> {
        self.lookup_for(path, &self.sb.group)
    }

    /// As [`lookup`](Self::lookup); dentries that the lookup allocates belong to `group`.
    ///
    /// # Errors
    ///
    /// As `lookup`.
    pub fn lookup_for(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, Error> {
        self.resolve(path, group).map_err(|kind| kind.at(path))
    }

    /// Returns the kind and inode number of a path, as they were at one time during the call;
    /// `None` if the path, or a directory on the way, does not exist.
    ///
    /// Unlike [`lookup`](Self::lookup), `stat` does not keep the dentry in use. When it is answered
    /// from the cache it writes nothing that another thread reads, except the referenced flag where
    /// a walk cleared it, so threads that look up the same names do not contend.
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

    /// Returns the names in a directory, read from the backend. Changes in the directory wait
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`]; the errors of
    /// [`lookup`](Self::lookup).
    pub fn readdir(&self, path: &[u8]) -> Result<Vec<DirEntry>, Error> {
        let read = || {
            let entry = self.resolve(path, &self.sb.group)?.ok_or(ErrorKind::NotFound)?;
            let number = entry.dentry.directory()?;
            // Excludes a removal, after which the backend may give the number to another directory.
            let _shared = entry.dentry.make_dir().rwsem.read();
            if entry.dentry.has(flag::DEADDIR) {
                return Err(ErrorKind::NotFound);
            }
            let names = self.backend.read_dir(number)?;
            Ok(names.into_iter().map(|(name, node)| DirEntry { name, kind: node.kind, inode: node.inode }).collect())
        };
        read().map_err(|kind: ErrorKind| kind.at(path))
    }

    /// Resolves a path to a reference to its dentry.
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

    /// Resolves a path to a copy of its kind and inode number.
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

    /// Walks without locks (RCU-walk). `take` extracts the result from the positive dentry at the
    /// end, or returns `None` for a retry. The result is dropped if the dentry changed meanwhile.
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
            // The root, or `..`: rare, so only ref-walk handles it.
            _ => return Ok(RcuWalk::Retry),
        };
        let mut dir: &Dentry = root;
        let mut dir_seq = root.seq.begin();
        loop {
            let qstr = core.qstr(dir, name);
            let mut seq = 0;
            let found = core.chains.find(qstr.hash, &reader, |child| child.matches(&qstr).map(|s| seq = s).is_some());
            let Some(found) = found else { return Ok(RcuWalk::Retry) };
            // The parent is validated after the child's sequence began, so both were unchanged at
            // one time.
            if dir.seq.retry(dir_seq) {
                return Ok(RcuWalk::Retry);
            }
            let flags = found.flags();
            let kind = kind_of(flags);
            let Some(kind) = kind else {
                if found.seq.retry(seq) {
                    return Ok(RcuWalk::Retry);
                }
                found.mark_referenced();
                return Ok(RcuWalk::Negative);
            };
            match next_component(rest)? {
                None => {
                    if !rest.is_empty() && kind != Kind::Directory {
                        return Ok(RcuWalk::Retry);
                    }
                    let taken = take(&found, kind);
                    // If the validation fails, the drop of a taken reference puts its count.
                    return Ok(taken.filter(|_| !found.seq.retry(seq)).map_or(RcuWalk::Retry, RcuWalk::Found));
                }
                Some((Component::Normal(next), behind)) if kind == Kind::Directory => {
                    (dir, dir_seq, name, rest) = (found.get(), seq, next, behind);
                }
                Some(_) => return Ok(RcuWalk::Retry),
            }
        }
    }

    /// Walks with locks and references (ref-walk). Calls the backend for names that are not cached.
    #[cold]
    fn ref_walk(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, ErrorKind> {
        match self.ref_walk_components(path, group) {
            // A directory on the way was removed during the walk.
            Err(ErrorKind::NotFound) => Ok(None),
            result => result,
        }
    }

    fn ref_walk_components(&self, path: &[u8], group: &Memcg) -> Result<Option<DentryRef<'_>>, ErrorKind> {
        let root = self.sb.root();
        // The user that `here` puts. Cannot fail: the mount is a user of its root, so the root is
        // not dead.
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
        // Only slashes and `.` are left.
        if !rest.is_empty() {
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

    /// Returns the dentry of a name in a directory that the caller uses, with one more user; calls
    /// the backend on a miss.
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

    /// As [`lookup_one`](Self::lookup_one), for a caller that holds the directory's `rwsem`, shared
    /// or exclusive.
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
        // A cached name needs no charge, which may have to kill other dentries.
        if let Some(dentry) = self.core.charges.then(|| self.core.d_lookup(qstr)).flatten() {
            return Ok(dentry);
        }
        // Before the lock is taken: the charge may kill dentries.
        let reservation = self.core.reserve(&self.sb, group, qstr.len());
        let asked = {
            let mut in_lookup = part.in_lookup.lock();
            loop {
                let same = |other: &&Arc<Dentry>| other.is_in_lookup_for(qstr);
                if let Some(theirs) = in_lookup.dentries.iter().find(same).cloned() {
                    // Before the wait: the last put may kill the dentry. The get cannot fail, as
                    // the thread that calls the backend is a user while the dentry is on the list.
                    let entered = theirs.count.get();
                    debug_assert!(entered, "a dentry in use is not dead");
                    in_lookup.waiters += 1;
                    while in_lookup.dentries.iter().any(|other| Arc::ptr_eq(other, &theirs)) {
                        part.lookup_done.wait(&mut in_lookup);
                    }
                    in_lookup.waiters -= 1;
                    if !theirs.has(flag::UNHASHED) {
                        return Ok(theirs);
                    }
                    // The backend failed, or the name is gone again: this thread calls the backend
                    // itself. The put may kill the dentry.
                    drop(in_lookup);
                    self.core.put(&self.sb, &theirs);
                    in_lookup = part.in_lookup.lock();
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
        let node = self.backend.lookup(dir.directory()?, qstr.name)?;
        let dentry = &answer.dentry;
        if let Some(node) = node {
            let inode = self.sb.inodes.get(node.inode, node.kind, group, dentry.node);
            self.core.instantiate(&self.sb, dentry, inode);
        }
        self.core.rehash(dentry);
        // A user for the caller; the guard's drop puts the other one, with which `alloc` began.
        dentry.count.get();
        Ok(Arc::clone(dentry))
    }
}

impl DentryRef<'_> {
    /// Looks up a name in this directory, as [`Mount::lookup`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the name is not cached and the directory was removed, or counts
    /// as removed ([`Mount::invalidate`]); otherwise as [`Mount::lookup`].
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
    /// Returns whether this dentry, which is in its directory's `InLookup` list, has this name. The
    /// dentry is not hashed yet, so `UNHASHED` is not compared.
    fn is_in_lookup_for(&self, qstr: &QStr<'_>) -> bool {
        // A dentry keeps the upper half of its hash.
        self.hash() == qstr.hash >> 32 << 32 && *self.name() == *qstr.name.bytes()
    }
}

/// The guard of a thread that looks a name up in the backend. Its drop, also by a panic of the
/// backend, ends the lookup and wakes the waiting threads.
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
