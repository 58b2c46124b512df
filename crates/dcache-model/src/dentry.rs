//! Dentries: a name below a directory, with the inode it refers to, or without one if it is
//! negative.
//!
//! A lookup from the cache takes no lock, except `d_lock` to compare the end of a name of more than
//! 32 bytes: it reads the fields of a dentry as atomics, and validates them with the dentry's
//! sequence count. Therefore the fields that a lookup reads are apart from those that only `d_lock`
//! protects.
//!
//! A change must ensure that each field is written as the table says, and that locks are taken in
//! the order below it. `check.rs` checks the invariants; a new one belongs there, too.
//!
//! # Locking
//!
//! | field | written under | read |
//! |---|---|---|
//! | `lru` | the list's lock | |
//! | `link` | the bucket's lock | by lookups, inside a `Reader` |
//! | `words`, `hash`, `parent` (the address), `number`, the type, the name's length and the setting of `UNHASHED` in `flags` | `d_lock`, between `seq` odd and even | by lookups, validated with `seq` |
//! | all other bits of `flags` | `d_lock`; `REFERENCED` without a lock | by any thread |
//! | `LockedFields`: `parent` (the handle), `inode`, `tail` | `d_lock` | under `d_lock` |
//! | `count` | no lock | by any thread |
//! | `child_index` | the parent's children lock; once without it, by the thread that allocates the dentry | under the same lock |
//! | `dir` | no lock, once | by any thread |
//! | `Dir`: `children`, `in_lookup` | their own locks | under the same lock |
//! | `sb`, `node`, `memcg` | never, after the allocation | by any thread |
//!
//! Lock order: the rename mutex, a directory's `rwsem` (ancestors first), its `in_lookup`, the
//! rename lock, `d_lock` (by address for two dentries), the parent's `children`, a bucket's lock, a
//! list's lock. A walk of a list holds that list's lock, so it only *tries* `d_lock`.
//!
//! # Invariants
//!
//! 1. `LRU_LIST` is set exactly while the dentry is on an LRU list or on the private list of a
//!    reclaimer; in the second case `SHRINK_LIST` is set, too (D8).
//! 2. The counters hold the number of dentries with `LRU_LIST`, and the number of negatives with
//!    `LRU_LIST` and without `SHRINK_LIST` (D9).
//! 3. Each child is counted as a user of its parent (D12). The slot and the user of a killed child
//!    end in one critical section of `children`.
//! 4. A dentry that is hashed, not dead and not in use is on a list; or its last user is about to
//!    add it to one, or to kill it, if `DONTCACHE` is set or the list cannot take it.
//! 5. `CHARGED` is set exactly while the bytes of the dentry, with its current name, are charged to
//!    its memcg; a rename adjusts the charge.
//!
//! Numbers such as D8 are those of docs/INVARIANTS.md.

use crate::children::Children;
use crate::error::ErrorKind;
use crate::flag;
use crate::inode::Inode;
use crate::kind::{kind_of, Kind};
use crate::lockref::LockRef;
use crate::qstr::{unpack, QStr, INLINE_MAX, WORDS};
use crate::seqcount::SeqCount;
use crate::stats::{CounterDelta, Counters};
use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lowwater_base::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use lowwater_lru_core::{linked, Links, Memcg, NodeId};
use lowwater_store::hash_chains::HashLink;
use lowwater_store::hash_node;
use once_cell::race::OnceBox;

/// A dentry; the module's table lists the locks of the fields that change.
#[doc(alias = "struct dentry")]
pub(crate) struct Dentry {
    link: HashLink<Dentry>,
    pub(crate) seq: SeqCount,
    /// The high half of the name's hash.
    hash: AtomicU32,
    /// The address of the parent, as part of the name that lookups compare.
    parent: AtomicUsize,
    /// The first [`INLINE_MAX`] bytes of the name, padded with zeros.
    words: [AtomicU64; WORDS],
    /// The inode number, valid while the dentry is positive.
    number: AtomicU64,
    flags: AtomicU32,
    pub(crate) count: LockRef,
    /// The index among the children of the parent.
    #[doc(alias = "d_sib")]
    pub(crate) child_index: AtomicU32,
    /// The id of the superblock.
    pub(crate) sb: u16,
    /// The NUMA node, which chooses the list.
    pub(crate) node: NodeId,
    /// Set when the dentry first becomes a directory; stays when it turns negative.
    dir: OnceBox<Dir>,
    d_lock: Mutex<LockedFields>,
    lru: Links,
    pub(crate) memcg: Memcg,
}

linked!(impl[] for Dentry { lru, handle: Arc<Dentry> });
hash_node!(impl[] for Dentry { link });

/// The fields of a dentry that `d_lock` protects.
#[doc(alias = "d_lock")]
pub(crate) struct LockedFields {
    /// A handle of the parent. `None` for the root and for a dead dentry.
    pub(crate) parent: Option<Arc<Dentry>>,
    pub(crate) inode: Option<Arc<Inode>>,
    /// The bytes of a long name after the first 32. Boxed twice, so that the field takes 8 bytes:
    /// few names are long.
    tail: Option<Box<Box<[u8]>>>,
}

/// The guard of a held `d_lock`.
pub(crate) type DentryGuard<'a> = MutexGuard<'a, LockedFields>;

/// The fields that only a directory has, allocated when a dentry becomes one.
pub(crate) struct Dir {
    /// Held exclusively by changes of names in the directory, shared by `readdir`, and by lookups
    /// that call the backend.
    #[doc(alias = "i_rwsem")]
    pub(crate) rwsem: RwLock<()>,
    pub(crate) children: Mutex<Children<Arc<Dentry>>>,
    /// Notified when a child was removed, or is no longer frozen.
    pub(crate) child_changed: Condvar,
    pub(crate) in_lookup: Mutex<InLookup>,
    /// Notified when a lookup has ended.
    pub(crate) lookup_done: Condvar,
}

/// The names that threads are looking up in the backend: at most one per thread.
#[derive(Default)]
#[doc(alias = "in_lookup_hashtable")]
pub(crate) struct InLookup {
    pub(crate) dentries: Vec<Arc<Dentry>>,
    /// Threads that wait at `lookup_done`.
    pub(crate) waiters: usize,
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () =
    assert!(size_of::<Dentry>() <= 152, "a dentry with both counts of its Arc is 168 bytes (DESIGN: cost table)");

impl Dentry {
    /// Creates a negative dentry that is not hashed and has one user. `flags` are set in addition.
    #[doc(alias = "d_alloc")]
    pub(crate) fn new(
        qstr: &QStr<'_>,
        parent: Option<Arc<Dentry>>,
        sb: u16,
        memcg: Memcg,
        node: NodeId,
        flags: u32,
    ) -> Self {
        Self {
            link: HashLink::new(),
            seq: SeqCount::new(),
            hash: AtomicU32::new((qstr.hash >> 32) as u32),
            parent: AtomicUsize::new(qstr.parent),
            words: qstr.words.map(AtomicU64::new),
            number: AtomicU64::new(0),
            flags: AtomicU32::new(flags | flag::UNHASHED | (qstr.len() as u32) << flag::LEN_SHIFT),
            count: LockRef::new(1),
            child_index: AtomicU32::new(0),
            sb,
            node,
            dir: OnceBox::new(),
            d_lock: Mutex::new(LockedFields { parent, inode: None, tail: boxed_tail(qstr) }),
            lru: Links::new(),
            memcg,
        }
    }

    /// Returns the address of the dentry, which identifies it as a directory in hashes and names.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        // Relaxed: the caller validates with `seq`, holds `d_lock`, issues a fence, or holds the
        // `rwsem` under which the flag is set, or reads a hint.
        self.flags.load(Ordering::Relaxed)
    }

    /// Returns whether any of these flags is set.
    #[inline]
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    #[inline]
    pub(crate) fn is_negative(&self) -> bool {
        !self.has(flag::TYPE)
    }

    #[inline]
    pub(crate) fn kind(&self) -> Option<Kind> {
        kind_of(self.flags())
    }

    /// Returns the inode number, valid while the dentry is positive.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: the caller validates with `seq` or holds `d_lock`, or is a user of the dentry: a
        // dentry in use is not turned negative, so its number does not change.
        self.number.load(Ordering::Relaxed)
    }

    /// Returns the inode number of a directory, or an error for any other dentry.
    pub(crate) fn directory(&self) -> Result<u64, ErrorKind> {
        match self.kind() {
            None => Err(ErrorKind::NotFound),
            Some(Kind::Directory) => Ok(self.number()),
            Some(_) => Err(ErrorKind::NotADirectory),
        }
    }

    /// Sets the inode; the caller sets the type by [`update_flags`](Self::update_flags). The caller
    /// holds `d_lock`, and `seq` is odd.
    #[doc(alias = "__d_set_inode_and_type")]
    pub(crate) fn set_inode(&self, locked: &mut LockedFields, inode: Arc<Inode>) {
        // Relaxed: the sequence count orders the store.
        self.number.store(inode.number, Ordering::Relaxed);
        locked.inode = Some(inode);
    }

    /// Returns the hash that chooses the bucket. Only its high half is stored; the low half is 0.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        // Relaxed: the caller validates with `seq` or holds `d_lock`.
        u64::from(self.hash.load(Ordering::Relaxed)) << 32
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LockedFields> {
        self.d_lock.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, LockedFields>> {
        self.d_lock.try_lock()
    }

    /// Returns the fields of a directory, if the dentry ever was one.
    #[inline]
    pub(crate) fn dir(&self) -> Option<&Dir> {
        self.dir.get()
    }

    pub(crate) fn make_dir(&self) -> &Dir {
        self.dir.get_or_init(|| Box::new(Dir::new()))
    }

    /// Compares with `qstr` without `d_lock`, except for the tail of a long name. Returns the
    /// sequence count with which the caller validates a match.
    #[doc(alias = "dentry_cmp")]
    #[inline]
    pub(crate) fn matches(&self, qstr: &QStr<'_>) -> Option<u32> {
        // Relaxed: most candidates of a long chain are rejected here. A concurrent rename can cause
        // a false miss, and callers do not rely on a miss.
        if self.hash.load(Ordering::Relaxed) != (qstr.hash >> 32) as u32 {
            return None;
        }
        let seq = self.seq.begin();
        self.is_same_name(qstr).then_some(seq)
    }

    /// Returns whether the dentry is hashed under this name. The caller validates with `seq`, and
    /// does not hold `d_lock`: the tail of a name of more than [`INLINE_MAX`] bytes is compared
    /// under it. With `d_lock` held, call [`is_same_name_locked`](Self::is_same_name_locked).
    #[doc(alias = "d_same_name")]
    #[inline]
    pub(crate) fn is_same_name(&self, qstr: &QStr<'_>) -> bool {
        let flags = self.flags();
        // Relaxed: `seq`, or `d_lock`, tells whether these values belong together.
        self.parent.load(Ordering::Relaxed) == qstr.parent
            && (flags >> flag::LEN_SHIFT) as usize == qstr.len()
            && self.words.iter().zip(qstr.words).all(|(mine, word)| mine.load(Ordering::Relaxed) == word)
            && flags & flag::UNHASHED == 0
            && (qstr.len() <= INLINE_MAX || self.has_tail(qstr))
    }

    #[cold]
    fn has_tail(&self, qstr: &QStr<'_>) -> bool {
        self.lock().is_tail(qstr)
    }

    /// As [`is_same_name`](Self::is_same_name), for a caller that holds `d_lock`.
    pub(crate) fn is_same_name_locked(&self, locked: &LockedFields, qstr: &QStr<'_>) -> bool {
        if qstr.len() <= INLINE_MAX {
            return self.is_same_name(qstr);
        }
        let flags = self.flags();
        // Relaxed: the lock is held.
        self.parent.load(Ordering::Relaxed) == qstr.parent
            && (flags >> flag::LEN_SHIFT) as usize == qstr.len()
            && self.words.iter().zip(qstr.words).all(|(mine, word)| mine.load(Ordering::Relaxed) == word)
            && flags & flag::UNHASHED == 0
            && locked.is_tail(qstr)
    }

    /// Returns the name. Takes `d_lock`.
    pub(crate) fn name(&self) -> Box<[u8]> {
        let locked = self.lock();
        self.name_locked(&locked)
    }

    pub(crate) fn name_locked(&self, locked: &LockedFields) -> Box<[u8]> {
        // Relaxed: the lock is held.
        let words = std::array::from_fn(|n| self.words[n].load(Ordering::Relaxed));
        let len = (self.flags() >> flag::LEN_SHIFT) as usize;
        unpack(words, len, locked.tail.as_ref().map_or(&[], |tail| tail))
    }

    /// Replaces the name, its hash and the parent's address; the caller replaces `locked.parent`.
    /// The caller holds `d_lock`, `seq` is odd, and the dentry is on no chain.
    pub(crate) fn set_name(&self, locked: &mut LockedFields, qstr: &QStr<'_>) {
        // Relaxed: the sequence count orders these stores.
        self.parent.store(qstr.parent, Ordering::Relaxed);
        self.hash.store((qstr.hash >> 32) as u32, Ordering::Relaxed);
        for (mine, word) in self.words.iter().zip(qstr.words) {
            mine.store(word, Ordering::Relaxed);
        }
        locked.tail = boxed_tail(qstr);
        self.flags.fetch_and((1 << flag::LEN_SHIFT) - 1, Ordering::Relaxed);
        self.flags.fetch_or((qstr.len() as u32) << flag::LEN_SHIFT, Ordering::Relaxed);
    }

    /// Clears and sets flags, and keeps the counters exact (invariant 2). The caller holds
    /// `d_lock`.
    #[doc(alias = "D_FLAG_VERIFY")]
    pub(crate) fn update_flags(&self, locked: &mut LockedFields, clear: u32, set: u32, counters: &Counters) {
        let mut delta = CounterDelta::default();
        self.update_flags_batched(locked, clear, set, &mut delta);
        counters.add(self.addr(), delta);
    }

    /// As [`update_flags`](Self::update_flags), for many dentries: the caller adds the sum of their
    /// changes to the counters at once.
    #[inline]
    pub(crate) fn update_flags_batched(
        &self,
        _locked: &mut LockedFields,
        clear: u32,
        set: u32,
        delta: &mut CounterDelta,
    ) {
        // Relaxed: written under `d_lock`; a reader without the lock validates with `seq` or issues
        // a fence. A compare-exchange, because `mark_referenced` sets REFERENCED without the lock.
        let mut before = self.flags.load(Ordering::Relaxed);
        loop {
            let after = before & !clear | set;
            // Relaxed: for the reasons given at the load.
            match self.flags.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break delta.flags_changed(before, after),
                Err(now) => before = now,
            }
        }
        debug_assert!(
            !self.has(flag::SHRINK_LIST) || self.has(flag::LRU_LIST),
            "a dentry on a private list counts as listed (D8)"
        );
    }

    /// Marks the dentry as used since the last walk.
    #[doc(alias = "mark_page_accessed")]
    #[inline]
    pub(crate) fn mark_referenced(&self) {
        if !self.has(flag::REFERENCED) {
            // Relaxed: a hint for the next walk, which orders no other access.
            self.flags.fetch_or(flag::REFERENCED, Ordering::Relaxed);
        }
    }
}

impl LockedFields {
    fn is_tail(&self, qstr: &QStr<'_>) -> bool {
        self.tail.as_ref().map_or(&[][..], |tail| tail) == qstr.tail()
    }
}

impl Dir {
    fn new() -> Self {
        Self {
            rwsem: RwLock::new(()),
            children: Mutex::new(Children::new()),
            child_changed: Condvar::new(),
            in_lookup: Mutex::new(InLookup::default()),
            lookup_done: Condvar::new(),
        }
    }

    /// Waits while `is_busy`: another thread is killing a child, or has frozen it. The caller holds
    /// the children lock, which the wait releases.
    pub(crate) fn wait_while(
        &self,
        children: &mut MutexGuard<'_, Children<Arc<Dentry>>>,
        is_busy: impl Fn(&Children<Arc<Dentry>>) -> bool,
    ) {
        while is_busy(children) {
            self.child_changed.wait(children);
        }
    }

    /// Wakes up the threads that wait for a child that is no longer frozen. The caller does not
    /// hold the children lock.
    pub(crate) fn wake_at_unfrozen(&self) {
        // A thread that saw the child frozen holds the children lock until it waits. So after this
        // acquisition the thread waits, and is notified.
        if !mutated!("unfreeze_without_lock") {
            drop(self.children.lock());
        }
        self.child_changed.notify_all();
    }
}

fn boxed_tail(qstr: &QStr<'_>) -> Option<Box<Box<[u8]>>> {
    let tail = qstr.tail();
    (!tail.is_empty()).then(|| Box::new(tail.into()))
}

#[cfg(all(test, lowwater_loom))]
mod loom {
    use super::*;
    use lowwater_base::sync::{model, thread, with_mutant};

    /// A child is unfrozen while a thread that holds the children lock waits at it: loom finds a
    /// thread that waits for ever. Two threads, all executions. docs/ORDERINGS.md names the test
    /// and the fault.
    fn a_wait_beside_unfreeze() {
        model(|| {
            let shared = Arc::new((Dir::new(), LockRef::new(1)));
            assert!(shared.1.freeze(), "it has one user");
            let other = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.unfreeze();
                    shared.0.wake_at_unfrozen();
                })
            };
            let (dir, count) = &*shared;
            dir.wait_while(&mut dir.children.lock(), |_| count.users().is_none());
            other.join().unwrap();
        });
    }

    #[test]
    fn d22_a_wait_ends_with_unfreeze() {
        a_wait_beside_unfreeze();
    }

    #[test]
    #[should_panic]
    fn fails_with_unfreeze_without_lock() {
        with_mutant("unfreeze_without_lock", a_wait_beside_unfreeze);
    }
}
