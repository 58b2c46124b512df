//! A dentry: a name below a directory, and what it stands for; nothing, if it is negative.
//!
//! # Who guards what
//!
//! | field | written under | read |
//! |---|---|---|
//! | `lru` | the list's lock | |
//! | `link` | the bucket's lock | by lookups, inside a `Reader` |
//! | `words`, `len`, `hash`, `parent`, `number`, the type in `flags` | `state`, between `seq` odd and even | by lookups, checked with `seq` |
//! | `flags`, the rest | `state`, but for `REFERENCED`, which anyone sets | by anyone |
//! | `count` | anyone | by anyone |
//! | `place` | the parent's children lock | under it |
//! | `dir` | once | by anyone |
//!
//! Lock order: renames, a directory's `changes` (ancestors first), `state` (by address when two), the parent's `children`, a
//! bucket's, a list's. A walk of a list holds that list's lock, so it only *tries* `state`.
//!
//! # Invariants
//!
//! 1. `LRU_LIST` is set exactly while the dentry is on a list or on somebody's private list; then `SHRINK_LIST` is set, too (D8).
//! 2. The counters say how many dentries have `LRU_LIST`, and how many negatives have it without `SHRINK_LIST` (D9).
//! 3. A child is one of its parent's users (D12).
//! 4. Not in use, not dead, hashed: then it is on a list, or its last user is just putting it there, or, with `DONT_KEEP`, killing it.
//! 5. `CHARGED` is set exactly while its bytes, for the name that it has, are charged to its group; a rename changes both.

use crate::children::Children;
use crate::error::ErrorKind;
use crate::flag;
use crate::inode::Inode;
use crate::kind::{kind_of, Kind};
use crate::lockref::LockRef;
use crate::qstr::{unpack, Name, QStr, INLINE_MAX, WORDS};
use crate::seqcount::SeqCount;
use crate::stats::{Counters, Delta};
use lowwater_lru_core::chains::Link;
use lowwater_lru_core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lowwater_lru_core::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use lowwater_lru_core::{chained, linked, Links, Memcg, NodeId};
use once_cell::race::OnceBox;

/// See the module.
#[doc(alias = "struct dentry")]
pub(crate) struct Dentry {
    link: Link<Dentry>,
    pub(crate) seq: SeqCount,
    hash: AtomicU32,
    parent: AtomicUsize,
    words: [AtomicU64; WORDS],
    /// The inode's, while it is positive.
    number: AtomicU64,
    flags: AtomicU32,
    pub(crate) count: LockRef,
    /// Where the parent keeps it.
    pub(crate) place: AtomicU32,
    pub(crate) sb: u16,
    pub(crate) node: NodeId,
    dir: OnceBox<Dir>,
    state: Mutex<State>,
    lru: Links,
    pub(crate) memcg: Memcg,
}

linked!(impl[] for Dentry { lru, handle: Arc<Dentry> });
chained!(impl[] for Dentry { link });

/// What is under a dentry's lock.
pub(crate) struct State {
    pub(crate) parent: Option<Arc<Dentry>>,
    pub(crate) inode: Option<Arc<Inode>>,
    /// The bytes of a long name behind the first 32. Boxed twice: few names are long, and this is 8 bytes.
    tail: Option<Box<Box<[u8]>>>,
}

/// A dentry's lock, held.
pub(crate) type Locked<'a> = MutexGuard<'a, State>;

/// The directory's part: made when a dentry becomes one.
pub(crate) struct Dir {
    /// Held by who changes names here, shared by who asks the backend for one.
    #[doc(alias = "i_rwsem")]
    pub(crate) changes: RwLock<()>,
    pub(crate) children: Mutex<Children<Arc<Dentry>>>,
    /// A child went: for who waits until all have.
    pub(crate) gone: Condvar,
    pub(crate) in_lookup: Mutex<InLookup>,
    /// A lookup ended.
    pub(crate) answered: Condvar,
}

/// Names whose backend is being asked. As many as there are threads in it, at most.
#[derive(Default)]
#[doc(alias = "in_lookup_hashtable")]
pub(crate) struct InLookup {
    pub(crate) asked: Vec<Arc<Dentry>>,
    pub(crate) waiters: usize,
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () =
    assert!(size_of::<Dentry>() <= 152, "a dentry with both counts of its Arc is 168 bytes (DESIGN: cost table)");

impl Dentry {
    /// A negative dentry that cannot be found yet, with one user.
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
            link: Link::new(),
            seq: SeqCount::new(),
            hash: AtomicU32::new((qstr.hash >> 32) as u32),
            parent: AtomicUsize::new(qstr.parent),
            words: qstr.words.map(AtomicU64::new),
            number: AtomicU64::new(0),
            flags: AtomicU32::new(flags | flag::UNHASHED | (qstr.len() as u32) << flag::LEN_SHIFT),
            count: LockRef::new(1),
            place: AtomicU32::new(0),
            sb,
            node,
            dir: OnceBox::new(),
            state: Mutex::new(State { parent, inode: None, tail: boxed_tail(qstr) }),
            lru: Links::new(),
            memcg,
        }
    }

    /// The address: its name among directories.
    #[inline]
    pub(crate) fn addr(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        // Relaxed: checked with `seq`, read under `state`, or ordered by a fence that the reader brings.
        self.flags.load(Ordering::Relaxed)
    }

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

    /// The number of what it stands for, while it is positive.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: as for `flags`. One in use is not turned negative, so for its user the number stands still.
        self.number.load(Ordering::Relaxed)
    }

    /// The number of the directory it stands for.
    pub(crate) fn directory(&self) -> Result<u64, ErrorKind> {
        match self.kind() {
            None => Err(ErrorKind::NotFound),
            Some(Kind::Directory) => Ok(self.number()),
            Some(_) => Err(ErrorKind::NotADirectory),
        }
    }

    /// Says what it stands for. Under `state`, between `seq` odd and even.
    pub(crate) fn set_inode(&self, state: &mut State, inode: Arc<Inode>) {
        // Relaxed: the sequence count orders it.
        self.number.store(inode.number, Ordering::Relaxed);
        state.inode = Some(inode);
    }

    /// The hash that chooses the bucket: its high half is all that is kept.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        // Relaxed: as for `flags`.
        u64::from(self.hash.load(Ordering::Relaxed)) << 32
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock()
    }

    /// The directory's part, if it ever was one.
    #[inline]
    pub(crate) fn dir(&self) -> Option<&Dir> {
        self.dir.get()
    }

    pub(crate) fn make_dir(&self) -> &Dir {
        self.dir.get_or_init(|| Box::new(Dir::new()))
    }

    /// Is this `qstr`, as far as a reader without the lock can tell? The sequence count to check it with.
    #[inline]
    pub(crate) fn matches(&self, qstr: &QStr<'_>) -> Option<u32> {
        // Relaxed: most candidates of a long chain end here; a rename under way makes a miss, and a miss proves nothing.
        if self.hash.load(Ordering::Relaxed) != (qstr.hash >> 32) as u32 {
            return None;
        }
        let seq = self.seq.begin();
        self.is_same_name(qstr).then_some(seq)
    }

    /// Compares; under `state`, or with `seq` around it.
    #[inline]
    pub(crate) fn is_same_name(&self, qstr: &QStr<'_>) -> bool {
        let flags = self.flags();
        // Relaxed: `seq`, or the lock, says whether these belong together.
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

    /// As [`is_same_name`](Self::is_same_name), for who holds the lock.
    pub(crate) fn is_same_name_locked(&self, state: &State, qstr: &QStr<'_>) -> bool {
        let short = QStr { name: Name::checked(&qstr.name.bytes()[..qstr.len().min(INLINE_MAX)]), ..*qstr };
        if qstr.len() <= INLINE_MAX {
            return self.is_same_name(&short);
        }
        let flags = self.flags();
        // Relaxed: the lock is held.
        self.parent.load(Ordering::Relaxed) == qstr.parent
            && (flags >> flag::LEN_SHIFT) as usize == qstr.len()
            && self.words.iter().zip(qstr.words).all(|(mine, word)| mine.load(Ordering::Relaxed) == word)
            && flags & flag::UNHASHED == 0
            && state.is_tail(qstr)
    }

    /// The name. Takes the lock.
    pub(crate) fn name(&self) -> Box<[u8]> {
        let state = self.lock();
        self.name_locked(&state)
    }

    pub(crate) fn name_locked(&self, state: &State) -> Box<[u8]> {
        // Relaxed: the lock is held.
        let words = std::array::from_fn(|n| self.words[n].load(Ordering::Relaxed));
        let len = (self.flags() >> flag::LEN_SHIFT) as usize;
        unpack(words, len, state.tail.as_ref().map_or(&[], |tail| tail))
    }

    /// Gives it another name and parent. Under `state`, between `seq` odd and even, and not on a chain.
    pub(crate) fn set_name(&self, state: &mut State, qstr: &QStr<'_>) {
        // Relaxed: the sequence count orders all of these.
        self.parent.store(qstr.parent, Ordering::Relaxed);
        self.hash.store((qstr.hash >> 32) as u32, Ordering::Relaxed);
        for (mine, word) in self.words.iter().zip(qstr.words) {
            mine.store(word, Ordering::Relaxed);
        }
        state.tail = boxed_tail(qstr);
        self.flags.fetch_and((1 << flag::LEN_SHIFT) - 1, Ordering::Relaxed);
        self.flags.fetch_or((qstr.len() as u32) << flag::LEN_SHIFT, Ordering::Relaxed);
    }

    /// Clears and sets flags, and keeps the counters exact (invariant 2). Under `state`.
    #[doc(alias = "D_FLAG_VERIFY")]
    pub(crate) fn change(&self, state: &mut State, clear: u32, set: u32, counters: &Counters) {
        let mut delta = Delta::default();
        self.change_in(state, clear, set, &mut delta);
        counters.add(self.addr(), delta);
    }

    /// As [`change`](Self::change), for who counts many before telling the counters.
    #[inline]
    pub(crate) fn change_in(&self, _state: &mut State, clear: u32, set: u32, delta: &mut Delta) {
        // Relaxed: written under the lock; who reads without it checks `seq` or brings a fence. An exchange, because anyone may
        // set REFERENCED meanwhile.
        let mut before = self.flags.load(Ordering::Relaxed);
        loop {
            let after = before & !clear | set;
            // Relaxed: as above.
            match self.flags.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break delta.moved(before, after),
                Err(now) => before = now,
            }
        }
        debug_assert!(
            !self.has(flag::SHRINK_LIST) || self.has(flag::LRU_LIST),
            "what is on a private list counts as listed (D8)"
        );
    }

    /// Says that it was used.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.has(flag::REFERENCED) {
            // Relaxed: a mark for the next walk.
            self.flags.fetch_or(flag::REFERENCED, Ordering::Relaxed);
        }
    }
}

impl State {
    fn is_tail(&self, qstr: &QStr<'_>) -> bool {
        self.tail.as_ref().map_or(&[][..], |tail| tail) == qstr.tail()
    }
}

impl Dir {
    fn new() -> Self {
        Self {
            changes: RwLock::new(()),
            children: Mutex::new(Children::new()),
            gone: Condvar::new(),
            in_lookup: Mutex::new(InLookup::default()),
            answered: Condvar::new(),
        }
    }
}

fn boxed_tail(qstr: &QStr<'_>) -> Option<Box<Box<[u8]>>> {
    let tail = qstr.tail();
    (!tail.is_empty()).then(|| Box::new(tail.into()))
}
