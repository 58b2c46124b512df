//! Changing names: create, mkdir, link, unlink, rmdir, rename.
//!
//! Each holds its directory's `rwsem` alone, so no lookup of it asks the backend meanwhile, and two
//! changes of one name do not
//! meet (D2). Lookups that find everything cached go on.

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
    /// Makes a file. Where a negative is cached for the name, it becomes the file's entry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`], [`ErrorKind::NotFound`] without its directory, [`ErrorKind::NotADirectory`]; errors of paths; what
    /// the backend says.
    #[doc(alias = "vfs_create")]
    pub fn create(&self, path: &[u8]) -> Result<DentryRef<'_>, Error> {
        self.create_kind(path, Kind::File).map_err(|kind| kind.at(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    #[doc(alias = "vfs_mkdir")]
    pub fn mkdir(&self, path: &[u8]) -> Result<DentryRef<'_>, Error> {
        self.create_kind(path, Kind::Directory).map_err(|kind| kind.at(path))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), with `new` as the path; [`ErrorKind::NotFound`] and [`ErrorKind::IsADirectory`] for `old`.
    #[doc(alias = "vfs_link")]
    pub fn link(&self, old: &[u8], new: &[u8]) -> Result<DentryRef<'_>, Error> {
        let file = self.resolve(old, &self.sb.group).and_then(|file| file.ok_or(ErrorKind::NotFound));
        let file = file.map_err(|kind| kind.at(old))?;
        if file.kind() == Kind::Directory {
            return Err(ErrorKind::IsADirectory.at(old));
        }
        self.link_at(&file, new).map_err(|kind| kind.at(new))
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::IsADirectory`]; errors of paths; what the backend says.
    #[doc(alias = "vfs_unlink")]
    pub fn unlink(&self, path: &[u8]) -> Result<(), Error> {
        self.remove(path, false).map_err(|kind| kind.at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotADirectory`], [`ErrorKind::DirectoryNotEmpty`]; errors of paths; what the backend says.
    #[doc(alias = "vfs_rmdir")]
    pub fn rmdir(&self, path: &[u8]) -> Result<(), Error> {
        self.remove(path, true).map_err(|kind| kind.at(path))
    }

    /// Moves a name. What `new` stood for is gone then; nobody ever finds both or neither (D5).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Loop`] for a directory below itself, [`ErrorKind::DirectoryNotEmpty`],
    /// [`ErrorKind::IsADirectory`] and [`ErrorKind::NotADirectory`] when one is a directory and the other is not; errors of paths; what
    /// the backend says.
    #[doc(alias = "vfs_rename")]
    pub fn rename(&self, old: &[u8], new: &[u8]) -> Result<(), Error> {
        let (from, old_name) = self.lookup_parent(old).map_err(|kind| kind.at(old))?;
        let (to, new_name) = self.lookup_parent(new).map_err(|kind| kind.at(new))?;
        self.rename_at((&from.dentry, old_name), (&to.dentry, new_name)).map_err(|kind| kind.at(old))
    }

    /// Looks up the directory of a path. Returns it, and the last name.
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
        let _exclusive = dir.dentry.make_dir().rwsem.write();
        let (number, cached) = self.lookup_vacant(&dir.dentry, name)?;
        let node = self.sb.backend.create(number, name, kind)?;
        let inode = self.sb.inodes.get(node.inode, node.kind, &self.sb.group, self.core.topology.current());
        Ok(self.instantiate_at(&dir.dentry, name, cached, inode))
    }

    fn link_at(&self, file: &DentryRef<'_>, new: &[u8]) -> Result<DentryRef<'_>, ErrorKind> {
        let (dir, name) = self.lookup_parent(new)?;
        let _exclusive = dir.dentry.make_dir().rwsem.write();
        let (number, cached) = self.lookup_vacant(&dir.dentry, name)?;
        self.sb.backend.link(file.inode(), number, name)?;
        let inode = self.sb.inodes.get(file.inode(), file.kind(), &self.sb.group, self.core.topology.current());
        Ok(self.instantiate_at(&dir.dentry, name, cached, inode))
    }

    /// The directory's number, and the negative that is cached for a name in it, in use until it is
    /// dropped. The directory's `rwsem` are
    /// held.
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

    /// Looks up a name that must exist. The directory's `rwsem` are held.
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
            _ => {}
        }
        let number = dir.dentry.directory()?;
        {
            let victim = entry.dentry.dir().filter(|_| directory);
            // A directory's own names do not change while it goes.
            let _victim = victim.map(|victim| victim.rwsem.write());
            self.sb.backend.remove(number, name).map_err(|error| not_empty(error, directory))?;
            self.core.mark_removed(&self.sb, &entry.dentry, directory);
        }
        self.d_delete(entry);
        Ok(())
    }

    /// Turns a dentry whose name was removed into a negative, kills it, or unhashes it if it has
    /// other users (D21).
    fn d_delete(&self, entry: DentryRef<'_>) {
        let (core, sb) = (&*self.core, &*self.sb);
        if !entry.dentry.count.freeze() {
            // Somebody else uses it, and finds what it was.
            return core.unhash(&entry.dentry);
        }
        let frozen = FrozenDentry { core, dentry: &entry.dentry };
        let stays =
            core.on_unlink == OnUnlink::KeepNegative && core.negatives.can_keep_removed(core, sb, &entry.dentry);
        std::mem::forget(frozen);
        if stays {
            core.turn_negative(sb, &entry.dentry);
            entry.dentry.count.unfreeze();
        } else {
            // What is frozen is as good as dead, and nobody saw it so.
            let dentry = entry.into_dead();
            core.kill_and_put_parent(sb, &dentry, dentry.lock());
        }
    }

    fn rename_at(&self, from: (&Arc<Dentry>, Name<'_>), to: (&Arc<Dentry>, Name<'_>)) -> Result<(), ErrorKind> {
        let core = &*self.core;
        // One rename between directories at a time, so that who is above whom stands still (the kernel's s_vfs_rename_mutex).
        let _rename_mutex = core.rename_mutex.lock();
        let (above, below) = (core.is_below(from.0, to.0), core.is_below(to.0, from.0));
        let same = Arc::ptr_eq(from.0, to.0);
        // Ancestors first; strangers by address.
        let first_is_from = above || !below && from.0.addr() <= to.0.addr();
        let (first, second) = if first_is_from { (from.0, to.0) } else { (to.0, from.0) };
        let _first = first.make_dir().rwsem.write();
        let _second = (!same).then(|| second.make_dir().rwsem.write());

        let old = self.lookup_positive(from.0, from.1)?;
        if old.kind() == Kind::Directory && core.is_below(&old.dentry, to.0) {
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
        if there.is_some() && target.inode() == old.inode() {
            // Two names of one file: nothing is to be done, says POSIX.
            return Ok(());
        }
        if there == Some(Kind::Directory) && core.is_below(&target.dentry, from.0) {
            return Err(ErrorKind::DirectoryNotEmpty);
        }
        let replaced = target.dentry.dir().filter(|_| there == Some(Kind::Directory));
        let _replaced = replaced.map(|dir| dir.rwsem.write());
        let (from_number, to_number) = (from.0.directory()?, to.0.directory()?);
        let directory = there == Some(Kind::Directory);
        let renamed = self.sb.backend.rename((from_number, from.1), (to_number, to.1));
        renamed.map_err(|error| not_empty(error, directory))?;
        if there.is_some() {
            core.mark_removed(&self.sb, &target.dentry, directory);
        }
        core.d_move(&self.sb, &old.dentry, to.0, &core.qstr(to.0, to.1), &target.dentry);
        Ok(())
    }
}

/// A frozen dentry whose name was removed, while the policy runs. A drop means that the policy
/// panicked: the dentry is unfrozen and unhashed.
struct FrozenDentry<'a> {
    core: &'a DcacheCore,
    dentry: &'a Arc<Dentry>,
}

impl Drop for FrozenDentry<'_> {
    fn drop(&mut self) {
        self.dentry.count.unfreeze();
        self.core.unhash(self.dentry);
    }
}

/// Some systems call a directory that is not empty one that exists.
fn not_empty(error: io::Error, directory: bool) -> ErrorKind {
    match ErrorKind::from(error) {
        ErrorKind::AlreadyExists if directory => ErrorKind::DirectoryNotEmpty,
        other => other,
    }
}

impl DcacheCore {
    /// Marks a directory as removed, and the inode as without a name as far as this cache knows.
    fn mark_removed(&self, sb: &crate::superblock::SuperBlock, dentry: &Arc<Dentry>, directory: bool) {
        if directory {
            let mut locked = dentry.lock();
            dentry.update_flags(&mut locked, 0, flag::DEADDIR, &self.counters);
            drop(locked);
            // The names that were known not to be in it.
            self.shrink_tree(sb, dentry);
        }
        if let Some(inode) = &dentry.lock().inode {
            sb.inodes.unlink(inode);
        }
    }

    /// Is `dentry` the directory `top`, or below it? Renames between directories are kept out by the caller.
    fn is_below(&self, top: &Arc<Dentry>, dentry: &Arc<Dentry>) -> bool {
        let mut here = Arc::clone(dentry);
        loop {
            if Arc::ptr_eq(&here, top) {
                return true;
            }
            let above = here.lock().parent.clone();
            match above {
                Some(parent) => here = parent,
                None => return false,
            }
        }
    }

    /// Moves a dentry to another name. Readers see it at the one or the other; `target` cannot be found any more.
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
        debug_assert!(entered, "the caller uses the directory");
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
            debug_assert!(inserted.is_ok(), "it was taken off its chain above");
            from
        });
        self.recharge(sb, dentry, before);
        if let Some(from) = from {
            self.put(sb, &from);
        }
    }

    /// Moves a positive from one directory's children to another's.
    fn move_child(
        &self,
        dentry: &Arc<Dentry>,
        locked: &mut crate::dentry::LockedFields,
        from: Option<&Dentry>,
        to: &Dir,
    ) {
        if let Some(dir) = from.and_then(Dentry::dir) {
            // Relaxed: under the lock that guards it.
            let moved = dir.children.lock().remove(dentry.child_index.load(Ordering::Relaxed));
            dir.child_removed.notify_all();
            drop(moved);
        }
        let mut children = to.children.lock();
        let index = children.insert(Arc::clone(dentry));
        children.set_positive(index, true);
        // Relaxed: as above.
        dentry.child_index.store(index, Ordering::Relaxed);
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
