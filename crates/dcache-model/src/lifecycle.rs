//! The life cycle of a dentry: allocation, instantiation, the last put, the lists, the kill.
//!
//! # The last put and the walk
//!
//! The last put of a dentry that is on a list leaves the dentry there, and does not take `d_lock`
//! if the dentry is marked as referenced already. A walk removes dentries in use from their list.
//! So each side writes its own state, issues a fence, and then reads the state of the other:
//!
//! ```text
//!     last put                          dispose_one (dentry isolated, `d_lock` held)
//!       count = 0                         clear LRU_LIST
//!       fence(SeqCst)                     fence(SeqCst)
//!       LRU_LIST clear? slow path         count == 0? try to kill the dentry again
//! ```
//!
//! - If the fence of the put comes first, the walk reads a count of 0, and kills the dentry.
//! - If the fence of the walk comes first, the put reads `LRU_LIST` clear, and adds the dentry to a
//!   list.
//!
//! Numbers such as D12 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each side stores its own word, fences, and then reads the other's; and
//! that a dentry is killed once; and that the slot and the user of a killed child end together.

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use crate::dcache_core::DcacheCore;
use crate::dentry::{Dentry, DentryGuard, LockedFields};
use crate::error::ErrorKind;
use crate::flag;
use crate::inode::Inode;
use crate::kind::type_of;
use crate::qstr::QStr;
use crate::stats::CounterDelta;
use crate::superblock::SuperBlock;
use lowwater_base::mutated;
use lowwater_base::sync::atomic::{fence, Ordering};
use lowwater_base::sync::Arc;
use lowwater_lru_core::Memcg;

impl DcacheCore {
    /// Allocates a negative dentry below `parent`, unhashed and with one user. The caller is a user
    /// of `parent`.
    #[doc(alias = "d_alloc")]
    pub(crate) fn alloc(
        &self,
        sb: &SuperBlock,
        parent: &Arc<Dentry>,
        qstr: &QStr<'_>,
        memcg: &Memcg,
        flags: u32,
    ) -> Arc<Dentry> {
        // D12: a child is a user of its parent. The get cannot fail, because the caller is a user
        // of `parent`, too.
        let entered = parent.count.get();
        debug_assert!(entered, "a directory in use is not dead");
        let dentry =
            Arc::new(Dentry::new(qstr, Some(Arc::clone(parent)), sb.id, memcg.clone(), self.current_node(sb), flags));
        let index = parent.make_dir().children.lock().insert(Arc::clone(&dentry));
        // Relaxed: read under the children lock that was just held, by threads that found the
        // dentry.
        dentry.child_index.store(index, Ordering::Relaxed);
        self.counters.dentry_allocated(dentry.addr());
        if flags & flag::DONTCACHE != 0 {
            self.counters.refused(dentry.addr());
        }
        dentry
    }

    /// Inserts the dentry into the hash table (D1).
    #[doc(alias = "d_rehash")]
    pub(crate) fn rehash(&self, dentry: &Arc<Dentry>) {
        let mut locked = dentry.lock();
        dentry.update_flags(&mut locked, flag::UNHASHED, 0, &self.counters);
        let inserted = self.chains.insert(dentry.hash(), Arc::clone(dentry));
        debug_assert!(inserted.is_ok(), "an unhashed dentry is on no chain");
    }

    /// Turns a negative dentry into a positive one with this inode. The caller has already added
    /// the dentry to the users of `inode`.
    #[doc(alias = "d_instantiate")]
    pub(crate) fn instantiate(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, inode: Arc<Inode>) {
        let kind = inode.kind;
        if kind == crate::kind::Kind::Directory {
            dentry.make_dir();
        }
        let mut locked = dentry.lock();
        let listed = self.unlist(sb, dentry, &mut locked);
        let mut set = type_of(kind);
        if let Some(parent) = &locked.parent {
            // D15: the bit in `children` is set before the dentry turns positive. D17: a watch that
            // began earlier has not visited this child, because it was negative, so its mark is set
            // here.
            let mut children = parent.make_dir().children.lock();
            children.set_positive(dentry.child_index.load(Ordering::Relaxed), true);
            children.protected -= usize::from(dentry.has(flag::PROTECTED));
            if children.watchers > 0 {
                set |= flag::PARENT_WATCHED;
            }
        }
        dentry.seq.write(|| {
            dentry.set_inode(&mut locked, inode);
            let clear = flag::TYPE | flag::PROTECTED | flag::USAGE_COUNT | flag::POLICY_SEEN | flag::DEADDIR;
            dentry.update_flags(&mut locked, clear, set, &self.counters);
        });
        drop(locked);
        drop(listed);
    }

    /// Turns a positive dentry negative, because its name does not exist any more. The caller is
    /// the only user, and has frozen the dentry.
    #[doc(alias = "dentry_unlink_inode")]
    pub(crate) fn turn_negative(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        let mut locked = dentry.lock();
        let listed = self.unlist(sb, dentry, &mut locked);
        let inode = dentry.seq.write(|| {
            dentry.update_flags(&mut locked, flag::TYPE | flag::PARENT_WATCHED | flag::REFERENCED, 0, &self.counters);
            locked.inode.take()
        });
        if let Some(parent) = &locked.parent {
            parent.make_dir().children.lock().set_positive(dentry.child_index.load(Ordering::Relaxed), false);
        }
        drop(locked);
        drop(listed);
        if let Some(inode) = inode {
            sb.inodes.put(inode);
        }
    }

    /// Removes the dentry from the hash table.
    #[doc(alias = "d_drop")]
    pub(crate) fn unhash(&self, dentry: &Arc<Dentry>) {
        let mut locked = dentry.lock();
        if !dentry.has(flag::UNHASHED) {
            dentry.seq.write(|| dentry.update_flags(&mut locked, 0, flag::UNHASHED, &self.counters));
            self.chains.remove(dentry.hash(), dentry);
        }
    }

    /// Removes a user. The last put of an unhashed dentry kills it, and puts its parent (D13).
    #[inline]
    #[doc(alias = "dput")]
    pub(crate) fn put(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        if dentry.count.put() {
            self.last_put(sb, dentry);
        }
    }

    /// Completes the last put of a dentry, after its count was lowered to 0. If this kills the
    /// dentry, and the dentry was the last user of its parent, the parent follows.
    fn last_put(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        let mut next = self.last_put_one(sb, dentry);
        while let Some(parent) = next {
            next = self.last_put_one(sb, &parent);
        }
    }

    #[inline]
    #[doc(alias = "fast_dput")]
    fn last_put_one(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        // SeqCst: pairs with the fence in `dispose_one`; see the module documentation.
        fence(Ordering::SeqCst);
        const RETAINED: u32 = flag::LRU_LIST | flag::REFERENCED;
        if dentry.flags() & (RETAINED | flag::UNHASHED | flag::DONTCACHE) == RETAINED {
            return None;
        }
        self.put_slow(sb, dentry)
    }

    /// The last put of a dentry that is not simply retained on its list: kills it, or adds it to a
    /// list. Returns the parent if the dentry was killed, and was its last user.
    #[cold]
    #[doc(alias = "retain_dentry")]
    fn put_slow(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        let mut locked = dentry.lock();
        if dentry.count.users() != Some(0) {
            return None;
        }
        let mut keep = !dentry.has(flag::UNHASHED | flag::DONTCACHE);
        let mut is_new_negative = false;
        if keep && dentry.has(flag::LRU_LIST) {
            dentry.mark_referenced();
        } else if keep {
            is_new_negative = dentry.is_negative() && !dentry.has(flag::POLICY_SEEN);
            let set = flag::LRU_LIST | if is_new_negative { flag::POLICY_SEEN } else { 0 };
            dentry.update_flags(&mut locked, 0, set, &self.counters);
            let list = sb.list(dentry.flags());
            // Without memory for the list the dentry is killed.
            if let Err(error) = list.add(Arc::clone(dentry), &dentry.memcg, dentry.node) {
                dentry.update_flags(&mut locked, flag::LRU_LIST, 0, &self.counters);
                drop(error);
                keep = false;
            }
        }
        if keep {
            drop(locked);
            if is_new_negative {
                self.negatives.negative_added(self, sb, dentry);
            }
            return None;
        }
        // Under the lock, as in `kill_unused`.
        if !dentry.count.kill() {
            return None;
        }
        let mut delta = CounterDelta::default();
        let parent = self.kill(sb, dentry, locked, &mut delta);
        self.counters.add(dentry.addr(), delta);
        parent
    }

    /// Removes a dentry from its list, unless it is on a private list. The caller drops the
    /// returned handle after it has released its locks.
    #[doc(alias = "d_lru_del")]
    pub(crate) fn unlist(&self, sb: &SuperBlock, dentry: &Dentry, locked: &mut LockedFields) -> Option<Arc<Dentry>> {
        let mut delta = CounterDelta::default();
        let listed = self.unlist_batched(sb, dentry, locked, &mut delta);
        self.counters.add(dentry.addr(), delta);
        listed
    }

    fn unlist_batched(
        &self,
        sb: &SuperBlock,
        dentry: &Dentry,
        locked: &mut LockedFields,
        delta: &mut CounterDelta,
    ) -> Option<Arc<Dentry>> {
        if dentry.flags() & (flag::LRU_LIST | flag::SHRINK_LIST) != flag::LRU_LIST {
            return None;
        }
        let listed = sb.list(dentry.flags()).del(dentry);
        dentry.update_flags_batched(locked, flag::LRU_LIST, 0, delta);
        listed
    }

    /// Kills a dentry if it is an unused negative on a list. Spares a referenced one, unless
    /// `even_if_referenced` (D19). Returns whether the dentry was killed.
    #[doc(alias = "trim_negative")]
    pub(crate) fn kill_negative(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, even_if_referenced: bool) -> bool {
        let locked = dentry.lock();
        let flags = dentry.flags();
        let listed = flags & (flag::LRU_LIST | flag::SHRINK_LIST) == flag::LRU_LIST;
        let spared = flags & flag::REFERENCED != 0 && !even_if_referenced;
        if flags & (flag::TYPE | flag::IN_LOOKUP) != 0 || !listed || spared || !dentry.count.kill() {
            return false;
        }
        self.counters.trimmed(1);
        self.kill_and_put_parent(sb, dentry, locked);
        true
    }

    /// Kills `dentry`, as [`kill`](Self::kill) does, and puts its parent.
    pub(crate) fn kill_and_put_parent(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, locked: DentryGuard<'_>) {
        let mut delta = CounterDelta::default();
        self.kill_batched(sb, dentry, locked, &mut delta);
        self.counters.add(dentry.addr(), delta);
    }

    /// As [`kill_and_put_parent`](Self::kill_and_put_parent), for many dentries: the caller adds
    /// the sum of their changes to the counters at once.
    pub(crate) fn kill_batched(
        &self,
        sb: &SuperBlock,
        dentry: &Arc<Dentry>,
        locked: DentryGuard<'_>,
        delta: &mut CounterDelta,
    ) {
        if let Some(parent) = self.kill(sb, dentry, locked, delta) {
            self.last_put(sb, &parent);
        }
    }

    /// Kills `dentry`: the caller has marked its count dead and holds its `d_lock`. Returns the
    /// parent if `dentry` was its last user: the caller must complete that [last
    /// put](Self::last_put).
    #[doc(alias = "__dentry_kill")]
    fn kill(
        &self,
        sb: &SuperBlock,
        dentry: &Arc<Dentry>,
        mut locked: DentryGuard<'_>,
        delta: &mut CounterDelta,
    ) -> Option<Arc<Dentry>> {
        let listed = self.unlist_batched(sb, dentry, &mut locked, delta);
        let hashed = !dentry.has(flag::UNHASHED);
        // A reclaimer with the dentry on its private list finds it dead, and only drops its handle.
        let lists = flag::LRU_LIST | flag::SHRINK_LIST;
        dentry.seq.write(|| dentry.update_flags_batched(&mut locked, lists, flag::UNHASHED | flag::KILLED, delta));
        if hashed {
            self.chains.remove(dentry.hash(), dentry);
        }
        let (inode, parent) = (locked.inode.take(), locked.parent.take());
        drop(locked);
        drop(listed);
        if let Some(inode) = inode {
            sb.inodes.put(inode);
        }
        // Before the slot is empty, so that the bytes are uncharged when `shrink_tree` or the drop
        // of the mount returns.
        dentry.uncharge();
        delta.dentry_freed();
        let parent = parent?;
        let dir = parent.make_dir();
        let mut children = dir.children.lock();
        let child = children.remove(dentry.child_index.load(Ordering::Relaxed));
        children.protected -= usize::from(dentry.has(flag::PROTECTED));
        // D12, D22: the slot and the user end together. If the user ended later, a `shrink_tree` in
        // between would take the parent for a directory in use, and the late put would list it.
        let late = mutated!("put_parent_without_lock");
        let is_last = !late && parent.count.put();
        drop(children);
        dir.child_changed.notify_all();
        drop(child);
        (is_last || late && parent.count.put()).then_some(parent)
    }

    /// Returns the parent directory, with one more user; for the root, the root itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the parent takes no more users.
    #[doc(alias = "dget_parent")]
    pub(crate) fn parent(&self, dentry: &Arc<Dentry>) -> Result<Arc<Dentry>, ErrorKind> {
        let locked = dentry.lock();
        let parent = locked.parent.as_ref().unwrap_or(dentry);
        parent.count.get().then(|| Arc::clone(parent)).ok_or(ErrorKind::NotFound)
    }
}
