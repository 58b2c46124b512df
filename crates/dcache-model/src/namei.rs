//! Changes of names: create, mkdir, link, unlink, rmdir, rename.
//!
//! Each call holds its directory's `rwsem` exclusively; a rename and a link those of both
//! directories, in the order of `lock_order`. So no lookup in that directory calls the backend
//! meanwhile, and two changes of one name exclude each other (D2). Lookups that are answered from
//! the cache are not blocked.
//!
//! Numbers such as D2 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that the backend changes a name with the directory's `rwsem` held
//! exclusively, and that the tree of dentries is changed only after the backend succeeded.

use crate::dcache_core::{DcacheCore, OnUnlink};
use crate::dentry::{Dentry, DentryGuard, Dir};
use crate::error::{Error, ErrorKind};
use crate::flag;
use crate::kind::Kind;
use crate::mount::{DentryRef, Mount};
use crate::path::split_last;
use crate::qstr::{Name, QStr};
use lowwater_base::sync::atomic::Ordering;
use lowwater_base::sync::Arc;
use std::io;

impl Mount {
    /// Creates a file. A negative that is cached for the name becomes the file's dentry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::NotFound`] if the directory does not exist;
    /// [`ErrorKind::NotADirectory`]; [`ErrorKind::IsADirectory`] if the path ends with a slash;
    /// errors of paths; an error of the backend.
    #[doc(alias = "vfs_create")]
    pub fn create(&self, path: &[u8]) -> Result<DentryRef<'_>, Error> {
        self.create_kind(path, Kind::File).map_err(|kind| kind.at(path))
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); the path may end with a slash.
    #[doc(alias = "vfs_mkdir")]
    pub fn mkdir(&self, path: &[u8]) -> Result<DentryRef<'_>, Error> {
        self.create_kind(path, Kind::Directory).map_err(|kind| kind.at(path))
    }

    /// Creates a further name (a hard link) for a file.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), for `new`, but `NotFound` if it is vacant and ends with a
    /// slash; [`ErrorKind::CrossesDevices`]; [`ErrorKind::NotFound`] and
    /// [`ErrorKind::IsADirectory`] for `old`.
    #[doc(alias = "vfs_link")]
    pub fn link(&self, old: &[u8], new: &[u8]) -> Result<DentryRef<'_>, Error> {
        let file = self.resolve(old, &self.sb.group).and_then(|file| file.ok_or(ErrorKind::NotFound));
        // Dropped at once: this lookup reports the errors of the path, and caches the file before
        // directories are locked.
        drop(file.and_then(not_directory).map_err(|kind| kind.at(old))?);
        let (from, old_name) = self.lookup_parent(old).map_err(|kind| kind.at(old))?;
        let (to, new_name) = self.lookup_parent(new).map_err(|kind| kind.at(new))?;
        let same = Arc::ptr_eq(&from.dentry, &to.dentry);
        let _rename_mutex = (!same).then(|| self.sb.rename_mutex.lock());
        let (first, second) = self.core.lock_order(&from.dentry, &to.dentry);
        let _first = first.make_dir().rwsem.write();
        let _second = second.map(|second| second.make_dir().rwsem.write());
        // Looked up under the lock, and locked during the link: the backend may give the number of
        // a removed file to another one.
        let file = self.lookup_positive(&from.dentry, old_name).and_then(not_directory).map_err(|kind| kind.at(old))?;
        self.link_at(&file, (&to.dentry, new_name), new.ends_with(b"/")).map_err(|kind| kind.at(new))
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::IsADirectory`]; [`ErrorKind::NotADirectory`] if the
    /// path ends with a slash; errors of paths; an error of the backend.
    #[doc(alias = "vfs_unlink")]
    pub fn unlink(&self, path: &[u8]) -> Result<(), Error> {
        self.remove(path, false).map_err(|kind| kind.at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`], [`ErrorKind::DirectoryNotEmpty`];
    /// errors of paths; an error of the backend.
    #[doc(alias = "vfs_rmdir")]
    pub fn rmdir(&self, path: &[u8]) -> Result<(), Error> {
        self.remove(path, true).map_err(|kind| kind.at(path))
    }

    /// Renames `old` to `new`, and replaces `new` if it exists. No concurrent lookup finds both
    /// names or neither (`docs/INVARIANTS.md`, D5), and none misses a `new` that is replaced.
    ///
    /// A replaced name is removed as by [`unlink`](Self::unlink) or [`rmdir`](Self::rmdir): its
    /// references keep their inode, names below a replaced directory are not found any more, and a
    /// negative that was cached for `new` is freed. References to `old` have the new name, and are
    /// watched if its directory is. Nothing is done if both are names of one file.
    ///
    /// O(depths of both directories + dentries cached below a replaced directory).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`]; [`ErrorKind::CrossesDevices`]; [`ErrorKind::Loop`] for a directory
    /// below itself; [`ErrorKind::DirectoryNotEmpty`]; [`ErrorKind::IsADirectory`] and
    /// [`ErrorKind::NotADirectory`] when one is a directory and the other is not;
    /// `NotADirectory` for a file if one of the paths ends with a slash; errors of paths; an error
    /// of the backend.
    ///
    /// ```
    /// # use lowwater_dcache_model::{backend::Memory, Dcache};
    /// # use lowwater_lru_core::MemcgTree;
    /// # use lowwater_shrinker::Registry;
    /// # let tree = MemcgTree::default();
    /// # let registry = Registry::new(&tree, 1);
    /// # let mount = Dcache::builder().build().mount(std::sync::Arc::new(Memory::new()), &registry, tree.root())?;
    /// let (new, old) = (mount.create(b"/hosts.new")?, mount.create(b"/hosts")?);
    /// mount.rename(b"/hosts.new", b"/hosts")?;
    /// assert_eq!(mount.stat(b"/hosts")?, Some(new.stat()));
    /// assert_ne!(old.inode(), new.inode()); // The replaced file stays until its last reference is dropped.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "vfs_rename")]
    pub fn rename(&self, old: &[u8], new: &[u8]) -> Result<(), Error> {
        let (from, old_name) = self.lookup_parent(old).map_err(|kind| kind.at(old))?;
        let (to, new_name) = self.lookup_parent(new).map_err(|kind| kind.at(new))?;
        let names_directory = [old, new].iter().any(|path| path.ends_with(b"/"));
        self.rename_at((&from.dentry, old_name), (&to.dentry, new_name), names_directory).map_err(|kind| kind.at(old))
    }

    /// Looks up the directory of a path. Returns it, and the last name of the path.
    #[doc(alias = "filename_parentat")]
    pub(crate) fn lookup_parent<'p>(&self, path: &'p [u8]) -> Result<(DentryRef<'_>, Name<'p>), ErrorKind> {
        let (dir, name) = split_last(path)?;
        let dir = if dir.is_empty() { b"/" } else { dir };
        let dir = self.resolve(dir, &self.sb.group)?.ok_or(ErrorKind::NotFound)?;
        dir.dentry.directory()?;
        Ok((dir, name))
    }

    fn create_kind(&self, path: &[u8], kind: Kind) -> Result<DentryRef<'_>, ErrorKind> {
        let (dir, name) = self.lookup_parent(path)?;
        if kind != Kind::Directory && path.ends_with(b"/") {
            return Err(ErrorKind::IsADirectory);
        }
        let _exclusive = dir.dentry.make_dir().rwsem.write();
        let (number, cached) = self.lookup_vacant(&dir.dentry, name)?;
        let node = self.backend.create(number, name, kind)?;
        let inode = self.sb.inodes.get(node.inode, node.kind, &self.sb.group, self.core.current_node(&self.sb));
        Ok(self.instantiate_at(&dir.dentry, name, cached, inode))
    }

    /// Links a file below a directory. The caller holds the `rwsem`s of both directories.
    fn link_at(
        &self,
        file: &DentryRef<'_>,
        (dir, name): (&Arc<Dentry>, Name<'_>),
        names_directory: bool,
    ) -> Result<DentryRef<'_>, ErrorKind> {
        if names_directory {
            // Not found, whether that is cached or not.
            return self.lookup_positive(dir, name).and(Err(ErrorKind::AlreadyExists));
        }
        let (number, cached) = self.lookup_vacant(dir, name)?;
        self.backend.link(file.inode(), number, name)?;
        let inode = self.sb.inodes.get(file.inode(), file.kind(), &self.sb.group, self.core.current_node(&self.sb));
        Ok(self.instantiate_at(dir, name, cached, inode))
    }

    /// Checks that a name does not exist in `dir`. Returns the directory's inode number, and the
    /// negative that is cached for the name, if any. The caller holds the directory's `rwsem`.
    fn lookup_vacant(&self, dir: &Arc<Dentry>, name: Name<'_>) -> Result<(u64, Option<DentryRef<'_>>), ErrorKind> {
        if dir.has(flag::DEADDIR) {
            return Err(ErrorKind::NotFound);
        }
        let number = dir.directory()?;
        let Some(dentry) = self.core.d_lookup(&self.core.qstr(dir, name)) else { return Ok((number, None)) };
        let entry = self.dentry_ref(dentry);
        if !entry.dentry.is_negative() {
            return Err(ErrorKind::AlreadyExists);
        }
        Ok((number, Some(entry)))
    }

    fn instantiate_at<'m>(
        &'m self,
        dir: &Arc<Dentry>,
        name: Name<'_>,
        cached: Option<DentryRef<'m>>,
        inode: Arc<crate::inode::Inode>,
    ) -> DentryRef<'m> {
        match cached {
            Some(entry) => {
                self.core.instantiate(&self.sb, &entry.dentry, inode);
                entry
            }
            None => {
                let (group, qstr) = (&self.sb.group, self.core.qstr(dir, name));
                let reservation = self.core.reserve(&self.sb, group, qstr.len());
                let dentry = self.core.alloc(&self.sb, dir, &qstr, group, reservation.take());
                self.core.instantiate(&self.sb, &dentry, inode);
                self.core.rehash(&dentry);
                self.dentry_ref(dentry)
            }
        }
    }

    /// Looks up a name that must exist. The caller holds the directory's `rwsem`.
    fn lookup_positive(&self, dir: &Arc<Dentry>, name: Name<'_>) -> Result<DentryRef<'_>, ErrorKind> {
        let dentry = self.lookup_shared(dir, &self.core.qstr(dir, name), &self.sb.group)?;
        self.positive(dentry).ok_or(ErrorKind::NotFound)
    }

    fn remove(&self, path: &[u8], directory: bool) -> Result<(), ErrorKind> {
        let (dir, name) = self.lookup_parent(path)?;
        let _exclusive = dir.dentry.make_dir().rwsem.write();
        let entry = self.lookup_positive(&dir.dentry, name)?;
        match (directory, entry.kind() == Kind::Directory) {
            (true, false) => return Err(ErrorKind::NotADirectory),
            (false, true) => return Err(ErrorKind::IsADirectory),
            (false, false) if path.ends_with(b"/") => return Err(ErrorKind::NotADirectory),
            _ => {}
        }
        let number = dir.dentry.directory()?;
        {
            let victim = entry.dentry.dir().filter(|_| directory);
            // Names in the directory cannot change while it is removed.
            let _victim = victim.map(|victim| victim.rwsem.write());
            self.backend.remove(number, name).map_err(|error| not_empty(error, directory))?;
            self.core.mark_removed(&self.sb, &entry.dentry, directory);
        }
        self.d_delete(entry);
        Ok(())
    }

    /// Turns an unlinked dentry into a negative, kills it, or unhashes it if it has other users
    /// (D21).
    fn d_delete(&self, entry: DentryRef<'_>) {
        let (core, sb) = (&*self.core, &*self.sb);
        if !entry.dentry.count.freeze() {
            // Another user keeps the dentry with its inode; new lookups do not find it.
            return core.unhash(&entry.dentry);
        }
        let frozen = FrozenDentry { core, dentry: &entry.dentry };
        let stays =
            core.on_unlink == OnUnlink::KeepNegative && core.negatives.can_keep_removed(core, sb, &entry.dentry);
        std::mem::forget(frozen);
        if stays {
            core.turn_negative(sb, &entry.dentry);
            core.unfreeze(&entry.dentry);
        } else {
            // The freeze succeeded, so no other thread is a user, and none was added since.
            let dentry = entry.into_dead();
            core.kill_and_put_parent(sb, &dentry, dentry.lock());
        }
    }

    /// Renames below two directories that the caller has looked up: locks them, asks the backend,
    /// and moves the dentry. With `names_directory`, only a directory may be renamed.
    fn rename_at(
        &self,
        from: (&Arc<Dentry>, Name<'_>),
        to: (&Arc<Dentry>, Name<'_>),
        names_directory: bool,
    ) -> Result<(), ErrorKind> {
        let core = &*self.core;
        // One rename at a time, so that the ancestor relations do not change.
        let _rename_mutex = self.sb.rename_mutex.lock();
        let (first, second) = core.lock_order(from.0, to.0);
        let _first = first.make_dir().rwsem.write();
        let _second = second.map(|second| second.make_dir().rwsem.write());

        let old = self.lookup_positive(from.0, from.1)?;
        if names_directory && old.kind() != Kind::Directory {
            return Err(ErrorKind::NotADirectory);
        }
        // By number: if the backend has moved `old` by itself, dentries in use below it may still
        // be children of another dentry of `old`.
        if old.kind() == Kind::Directory && core.has_ancestor(to.0, |dir| dir.number() == old.inode()) {
            return Err(ErrorKind::Loop);
        }
        let target = self.lookup_shared(to.0, &core.qstr(to.0, to.1), &self.sb.group)?;
        let target = self.dentry_ref(target);
        if Arc::ptr_eq(&old.dentry, &target.dentry) {
            return Ok(());
        }
        let there = target.dentry.kind();
        match (old.kind() == Kind::Directory, there) {
            (true, Some(Kind::File | Kind::Other)) => return Err(ErrorKind::NotADirectory),
            (false, Some(Kind::Directory)) => return Err(ErrorKind::IsADirectory),
            _ => {}
        }
        if there == Some(old.kind()) && target.inode() == old.inode() {
            // Both are names of one file: POSIX demands that the rename does nothing.
            return Ok(());
        }
        if there == Some(Kind::Directory) && core.is_below(&target.dentry, from.0) {
            return Err(ErrorKind::DirectoryNotEmpty);
        }
        let replaced = target.dentry.dir().filter(|_| there == Some(Kind::Directory));
        let _replaced = replaced.map(|dir| dir.rwsem.write());
        let (from_number, to_number) = (from.0.directory()?, to.0.directory()?);
        let directory = there == Some(Kind::Directory);
        let renamed = self.backend.rename((from_number, from.1), (to_number, to.1));
        renamed.map_err(|error| not_empty(error, directory))?;
        if there.is_some() {
            core.mark_removed(&self.sb, &target.dentry, directory);
        }
        core.d_move(&self.sb, &old.dentry, to.0, &core.qstr(to.0, to.1), &target.dentry);
        Ok(())
    }
}

/// A frozen, unlinked dentry, while the policy of negatives runs. It is dropped only if the policy
/// panics: the dentry is then unfrozen and unhashed.
struct FrozenDentry<'a> {
    core: &'a DcacheCore,
    dentry: &'a Arc<Dentry>,
}

impl Drop for FrozenDentry<'_> {
    fn drop(&mut self) {
        self.core.unfreeze(self.dentry);
        self.core.unhash(self.dentry);
    }
}

/// Returns the entry, unless it is a directory.
fn not_directory(entry: DentryRef<'_>) -> Result<DentryRef<'_>, ErrorKind> {
    if entry.kind() == Kind::Directory {
        return Err(ErrorKind::IsADirectory);
    }
    Ok(entry)
}

/// Converts an error of the backend. Some systems report a non-empty directory as `AlreadyExists`.
fn not_empty(error: io::Error, directory: bool) -> ErrorKind {
    match ErrorKind::from(error) {
        ErrorKind::AlreadyExists if directory => ErrorKind::DirectoryNotEmpty,
        other => other,
    }
}

impl DcacheCore {
    /// Marks a removed directory as dead, and the inode as unlinked, though it may have other names
    /// that are not cached: the next lookup of another name makes a new inode.
    pub(crate) fn mark_removed(&self, sb: &crate::superblock::SuperBlock, dentry: &Arc<Dentry>, directory: bool) {
        if directory {
            let mut locked = dentry.lock();
            dentry.update_flags(&mut locked, 0, flag::DEADDIR, &self.counters);
            drop(locked);
            // Frees the negatives that are cached below the directory.
            self.shrink_tree(sb, dentry);
        }
        if let Some(inode) = &dentry.lock().inode {
            sb.inodes.unlink(inode);
        }
    }

    /// Ends the freeze of a dentry, and wakes up each `shrink_tree` that waits for the dentry's
    /// directory: to `shrink_tree`, a frozen dentry looks like one that is being killed.
    fn unfreeze(&self, dentry: &Dentry) {
        dentry.count.unfreeze();
        let parent = dentry.lock().parent.clone();
        if let Some(dir) = parent.as_ref().and_then(|parent| parent.dir()) {
            dir.wake_at_unfrozen();
        }
    }

    /// Returns two directories in the order in which their `rwsem`s are locked: ancestors first,
    /// unrelated ones by address. The second is `None` if both are the same. Otherwise the caller
    /// holds `rename_mutex`, so that the ancestor relations do not change.
    fn lock_order<'d>(&self, a: &'d Arc<Dentry>, b: &'d Arc<Dentry>) -> (&'d Arc<Dentry>, Option<&'d Arc<Dentry>>) {
        if Arc::ptr_eq(a, b) {
            return (a, None);
        }
        let (above, below) = (self.is_below(a, b), self.is_below(b, a));
        let first_is_a = above || !below && a.addr() <= b.addr();
        if first_is_a {
            (a, Some(b))
        } else {
            (b, Some(a))
        }
    }

    /// Returns whether `dentry` is the directory `top`, or below it. The caller holds
    /// `rename_mutex`.
    fn is_below(&self, top: &Arc<Dentry>, dentry: &Arc<Dentry>) -> bool {
        self.has_ancestor(dentry, |dir| Arc::ptr_eq(dir, top))
    }

    /// Returns whether `is_wanted` is true for the directory `dentry` or one above it. The caller
    /// holds `rename_mutex`, and uses the dentry.
    fn has_ancestor(&self, dentry: &Arc<Dentry>, is_wanted: impl Fn(&Arc<Dentry>) -> bool) -> bool {
        let mut here = Arc::clone(dentry);
        loop {
            if is_wanted(&here) {
                return true;
            }
            let above = here.lock().parent.clone();
            match above {
                Some(parent) => here = parent,
                None => return false,
            }
        }
    }

    /// Moves a dentry to another name, and unhashes `target`, the dentry that has the name now. A
    /// concurrent lookup sees the moved dentry under the old or the new name.
    #[doc(alias = "__d_move")]
    fn d_move(
        &self,
        sb: &crate::superblock::SuperBlock,
        dentry: &Arc<Dentry>,
        to: &Arc<Dentry>,
        qstr: &QStr<'_>,
        target: &Arc<Dentry>,
    ) {
        let entered = to.count.get();
        debug_assert!(entered, "the caller is a user of the directory");
        let before = dentry.bytes();
        let from = self.rename_lock.write(|| {
            let (mut locked, mut other) = lock_two(dentry, target);
            self.chains.remove(dentry.hash(), dentry);
            let hashed = !target.has(flag::UNHASHED);
            let from = target.seq.write(|| {
                if hashed {
                    self.chains.remove(target.hash(), target);
                    target.update_flags(&mut other, 0, flag::UNHASHED, &self.counters);
                }
                dentry.seq.write(|| {
                    dentry.set_name(&mut locked, qstr);
                    let from = locked.parent.replace(Arc::clone(to));
                    self.move_child(dentry, &mut locked, from.as_deref(), to.make_dir());
                    from
                })
            });
            let inserted = self.chains.insert(dentry.hash(), Arc::clone(dentry));
            debug_assert!(inserted.is_ok(), "the dentry was removed from its chain above");
            from
        });
        if let Some(from) = from {
            self.put(sb, &from);
        }
        // Last: it may panic.
        self.recharge(sb, dentry, before);
    }

    /// Moves a positive from the children of one directory to those of another. Within one
    /// directory it keeps its index (D14).
    fn move_child(
        &self,
        dentry: &Arc<Dentry>,
        locked: &mut crate::dentry::LockedFields,
        from: Option<&Dentry>,
        to: &Dir,
    ) {
        let from = from.and_then(Dentry::dir);
        let stays = from.is_some_and(|from| std::ptr::eq(from, to));
        if let Some(dir) = from.filter(|_| !stays) {
            // Relaxed: the children lock, which is held, protects it.
            let moved = dir.children.lock().remove(dentry.child_index.load(Ordering::Relaxed));
            dir.child_changed.notify_all();
            drop(moved);
        }
        let mut children = to.children.lock();
        if !stays {
            let index = children.insert(Arc::clone(dentry));
            children.set_positive(index, true);
            // Relaxed: the children lock, which is held, protects it.
            dentry.child_index.store(index, Ordering::Relaxed);
        }
        let watched = if children.watchers > 0 { flag::PARENT_WATCHED } else { 0 };
        dentry.update_flags(locked, flag::PARENT_WATCHED, watched, &self.counters);
    }
}

/// Locks two dentries, the lower address first.
fn lock_two<'a>(a: &'a Dentry, b: &'a Dentry) -> (DentryGuard<'a>, DentryGuard<'a>) {
    if a.addr() < b.addr() {
        let first = a.lock();
        (first, b.lock())
    } else {
        let first = b.lock();
        (a.lock(), first)
    }
}
