//! The life of a dentry: made, given a meaning, let go of, kept, killed.
//!
//! # The last user and the walk
//!
//! A dentry whose last user goes stays on its list if it is there, and the user should not take the lock only to see that. A walk
//! takes dentries in use off their list. So each does one thing and then looks at the other's:
//!
//! ```text
//!     put (last user)                   dispose (had taken it off, lock held)
//!       count = 0                         clear LRU_LIST
//!       fence(SeqCst)                     fence(SeqCst)
//!       LRU_LIST clear? take the slow way count == 0? it is ours again
//! ```
//!
//! - If our fence comes first, the walk sees the count at 0, and does not forget the dentry.
//! - If theirs comes first, we see the flag clear, and list it.

use crate::dcache_core::Core;
use crate::dentry::{Dentry, Locked, State};
use crate::error::ErrorKind;
use crate::flag;
use crate::inode::Inode;
use crate::kind::type_of;
use crate::qstr::QStr;
use crate::stats::Delta;
use crate::superblock::SuperBlock;
use lowwater_lru_core::sync::atomic::{fence, Ordering};
use lowwater_lru_core::sync::Arc;
use lowwater_lru_core::Memcg;

impl Core {
    /// A negative dentry below `parent` that cannot be found yet, with one user. The caller uses `parent`.
    #[doc(alias = "d_alloc")]
    pub(crate) fn alloc(
        &self,
        sb: &SuperBlock,
        parent: &Arc<Dentry>,
        qstr: &QStr<'_>,
        memcg: &Memcg,
        flags: u32,
    ) -> Arc<Dentry> {
        // D12: a child is a user of its parent. It does not fail: the caller uses it, too.
        let entered = parent.count.get();
        debug_assert!(entered, "a directory in use is not dead");
        let dentry =
            Arc::new(Dentry::new(qstr, Some(Arc::clone(parent)), sb.id, memcg.clone(), self.topology.current(), flags));
        let place = parent.make_dir().children.lock().insert(Arc::clone(&dentry));
        // Relaxed: read under the same lock by who found the dentry.
        dentry.place.store(place, Ordering::Relaxed);
        self.counters.born(dentry.addr());
        dentry
    }

    /// Lets it be found (D1).
    #[doc(alias = "d_rehash")]
    pub(crate) fn hash(&self, dentry: &Arc<Dentry>) {
        let mut state = dentry.lock();
        dentry.change(&mut state, flag::UNHASHED, 0, &self.counters);
        let inserted = self.chains.insert(dentry.hash(), Arc::clone(dentry));
        debug_assert!(inserted.is_ok(), "an unhashed dentry is on no chain");
    }

    /// Gives a negative its inode; `inode` is already counted for it.
    #[doc(alias = "d_instantiate")]
    pub(crate) fn instantiate(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, inode: Arc<Inode>) {
        let kind = inode.kind;
        if kind == crate::kind::Kind::Directory {
            dentry.make_dir();
        }
        let mut state = dentry.lock();
        let listed = self.unlist(sb, dentry, &mut state);
        let mut set = type_of(kind);
        if let Some(parent) = &state.parent {
            // D15: marked as positive before it is. D17: who watches since before this, marked nothing here.
            let mut children = parent.make_dir().children.lock();
            children.set_positive(dentry.place.load(Ordering::Relaxed), true);
            children.kept -= usize::from(dentry.has(flag::KEPT));
            if children.watchers > 0 {
                set |= flag::PARENT_WATCHED;
            }
        }
        dentry.seq.write(|| {
            dentry.set_inode(&mut state, inode);
            let clear = flag::TYPE | flag::KEPT | flag::MERIT | flag::SETTLED | flag::REMOVED;
            dentry.change(&mut state, clear, set, &self.counters);
        });
        drop(state);
        drop(listed);
    }

    /// Takes its meaning from a dentry that only the caller uses, and has frozen: the name is known not to exist.
    #[doc(alias = "dentry_unlink_inode")]
    pub(crate) fn turn_negative(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        let mut state = dentry.lock();
        let listed = self.unlist(sb, dentry, &mut state);
        let inode = dentry.seq.write(|| {
            dentry.change(&mut state, flag::TYPE | flag::PARENT_WATCHED | flag::REFERENCED, 0, &self.counters);
            state.inode.take()
        });
        if let Some(parent) = &state.parent {
            parent.make_dir().children.lock().set_positive(dentry.place.load(Ordering::Relaxed), false);
        }
        drop(state);
        drop(listed);
        if let Some(inode) = inode {
            sb.inodes.put(inode);
        }
    }

    /// Makes it impossible to find.
    #[doc(alias = "d_drop")]
    pub(crate) fn unhash(&self, dentry: &Arc<Dentry>) {
        let mut state = dentry.lock();
        if !dentry.has(flag::UNHASHED) {
            dentry.seq.write(|| dentry.change(&mut state, 0, flag::UNHASHED, &self.counters));
            self.chains.remove(dentry.hash(), dentry);
        }
    }

    /// One user less, and what follows from that, up the tree (D13).
    #[doc(alias = "dput")]
    pub(crate) fn put(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) {
        let mut next = self.put_one(sb, dentry);
        while let Some(parent) = next {
            next = self.put_one(sb, &parent);
        }
    }

    #[inline]
    #[doc(alias = "fast_dput")]
    fn put_one(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        if !dentry.count.put() {
            return None;
        }
        // SeqCst: meets the fence in `dispose`; see the module.
        fence(Ordering::SeqCst);
        const RETAINED: u32 = flag::LRU_LIST | flag::REFERENCED;
        if dentry.flags() & (RETAINED | flag::UNHASHED | flag::DONT_KEEP) == RETAINED {
            return None;
        }
        self.put_slow(sb, dentry)
    }

    #[cold]
    #[doc(alias = "retain_dentry")]
    fn put_slow(&self, sb: &SuperBlock, dentry: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        let mut state = dentry.lock();
        if dentry.count.users() != Some(0) {
            return None;
        }
        let mut keep = !dentry.has(flag::UNHASHED | flag::DONT_KEEP);
        let mut settled = false;
        if keep && dentry.has(flag::LRU_LIST) {
            dentry.touch();
        } else if keep {
            settled = dentry.is_negative() && !dentry.has(flag::SETTLED);
            let set = flag::LRU_LIST | if settled { flag::SETTLED } else { 0 };
            dentry.change(&mut state, 0, set, &self.counters);
            let list = sb.list(dentry.flags());
            if let Err(error) = list.add(Arc::clone(dentry), &dentry.memcg, dentry.node) {
                dentry.change(&mut state, flag::LRU_LIST, 0, &self.counters);
                drop(error);
                (keep, settled) = (false, false);
            }
        }
        drop(state);
        if settled {
            self.negatives.negative_added(self, sb, dentry);
        }
        if keep || !dentry.count.kill() {
            return None;
        }
        let mut delta = Delta::default();
        let parent = self.kill(sb, dentry, dentry.lock(), &mut delta);
        self.counters.add(dentry.addr(), delta);
        parent
    }

    /// Takes a dentry off its list, unless it is on somebody's private one. The list's handle is to be dropped without locks.
    #[doc(alias = "d_lru_del")]
    pub(crate) fn unlist(&self, sb: &SuperBlock, dentry: &Dentry, state: &mut State) -> Option<Arc<Dentry>> {
        let mut delta = Delta::default();
        let listed = self.unlist_in(sb, dentry, state, &mut delta);
        self.counters.add(dentry.addr(), delta);
        listed
    }

    fn unlist_in(&self, sb: &SuperBlock, dentry: &Dentry, state: &mut State, delta: &mut Delta) -> Option<Arc<Dentry>> {
        if dentry.flags() & (flag::LRU_LIST | flag::SHRINK_LIST) != flag::LRU_LIST {
            return None;
        }
        let listed = sb.list(dentry.flags()).del(dentry);
        dentry.change_in(state, flag::LRU_LIST, 0, delta);
        listed
    }

    /// Kills a dentry if it is a negative that nobody uses and nobody asked for again (D19).
    #[doc(alias = "trim_negative")]
    pub(crate) fn kill_negative(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, even_if_referenced: bool) -> bool {
        let state = dentry.lock();
        let flags = dentry.flags();
        let listed = flags & (flag::LRU_LIST | flag::SHRINK_LIST) == flag::LRU_LIST;
        let spared = flags & flag::REFERENCED != 0 && !even_if_referenced;
        if flags & (flag::TYPE | flag::IN_LOOKUP) != 0 || !listed || spared || !dentry.count.kill() {
            return false;
        }
        self.counters.trimmed(1);
        self.kill_and_put_parent(sb, dentry, state);
        true
    }

    pub(crate) fn kill_and_put_parent(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, state: Locked<'_>) {
        let mut delta = Delta::default();
        self.kill_in(sb, dentry, state, &mut delta);
        self.counters.add(dentry.addr(), delta);
    }

    /// As [`kill_and_put_parent`](Self::kill_and_put_parent), for who kills many before telling the counters.
    pub(crate) fn kill_in(&self, sb: &SuperBlock, dentry: &Arc<Dentry>, state: Locked<'_>, delta: &mut Delta) {
        if let Some(parent) = self.kill(sb, dentry, state, delta) {
            self.put(sb, &parent);
        }
    }

    /// Ends a dentry whose count the caller took to dead, and whose lock it holds. The parent comes back, of which it was a user.
    #[doc(alias = "__dentry_kill")]
    fn kill(
        &self,
        sb: &SuperBlock,
        dentry: &Arc<Dentry>,
        mut state: Locked<'_>,
        delta: &mut Delta,
    ) -> Option<Arc<Dentry>> {
        let listed = self.unlist_in(sb, dentry, &mut state, delta);
        let hashed = !dentry.has(flag::UNHASHED);
        // Whoever has it on a private list sees that it is dead, and only drops it.
        let lists = flag::LRU_LIST | flag::SHRINK_LIST;
        dentry.seq.write(|| dentry.change_in(&mut state, lists, flag::UNHASHED | flag::KILLED, delta));
        if hashed {
            self.chains.remove(dentry.hash(), dentry);
        }
        let (inode, parent) = (state.inode.take(), state.parent.take());
        drop(state);
        drop(listed);
        if let Some(inode) = inode {
            sb.inodes.put(inode);
        }
        if let Some(dir) = parent.as_ref().and_then(|parent| parent.dir()) {
            let mut children = dir.children.lock();
            let child = children.remove(dentry.place.load(Ordering::Relaxed));
            children.kept -= usize::from(dentry.has(flag::KEPT));
            drop(children);
            dir.gone.notify_all();
            drop(child);
        }
        dentry.uncharge();
        delta.died();
        parent
    }

    /// The directory above, with one more user; the root itself for the root.
    #[doc(alias = "dget_parent")]
    pub(crate) fn parent(&self, dentry: &Arc<Dentry>) -> Result<Arc<Dentry>, ErrorKind> {
        let state = dentry.lock();
        let parent = state.parent.as_ref().unwrap_or(dentry);
        parent.count.get().then(|| Arc::clone(parent)).ok_or(ErrorKind::NotFound)
    }
}
