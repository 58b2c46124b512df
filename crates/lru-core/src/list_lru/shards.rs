//! Shards of a contended list: further lists beside it, of which each thread uses one that its
//! processor's number selects (`shards/cpu_hint.rs`).
//!
//! ```text
//!     one list  --adds found its lock taken 64 times between two sweeps-->  the list, and a shard for each processor
//!               <--few adds between two sweeps; offline; drop------------
//! ```
//!
//! A shard is a [`ListLruOne`] of the same key on cache lines of its own. Its relation to the split
//! list is that of a child group's list to its parent's: it counts as a reference, and when it
//! ends, it forwards to the list. So an item's home may be a shard as well as any list, and removal
//! has no special case. The items that were on the list at the split stay there; new ones go to the
//! shards.
//!
//! The shards are in a [`ShardSet`], to which the table's slot points instead of the list. That
//! slot, which is only read, is the only memory that all adding and removing threads share.
//!
//! # Invariants
//!
//! 1. The slot points to the set if and only if the list's state is `SPLIT`. Both change under
//!    the lock of the group's chain (if that is closed, its `reparenting` lock), the writer lock
//!    and the lock of the list. The shards' locks are taken after the list's, one at a time.
//! 2. When the shards end, the list's lock is held from before the slot points to the list again
//!    until the last shard is empty. So a thread that finds a dead shard finds its items on the
//!    list once it gets the list's lock; and a thread that no longer finds the set finds all
//!    items on the list.
//! 3. While a walk over the shards is in progress, no sweep joins them: an item does not change
//!    lists during the walk unless its group dies.
//!
//! To split is to create the shards; to join is to move their items to the list and retire them.
//!
//! A change must ensure that adding and removing threads write no memory that all of them share.
//! `mutated!("name")` leaves one step out in a model check (docs/ORDERINGS.md).

mod cpu_hint;
pub(super) mod shard;
pub(super) mod shares;

use super::key::Key;
use super::list_lru_one::ListLruOne;
use super::locked::LockedList;
use super::refusable::{try_box, try_vec};
use crate::rcu::{Retired, RetiredKind};
use crate::sync::UnsafeCell;
use crate::Memcg;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use shard::{Shard, QUIET};
use shares::{divide, Part, Shares, LISTS_MAX, SHARDS_MAX};

/// The shards of one list; see the module.
pub(crate) struct ShardSet {
    key: Key,
    /// The list that was split.
    whole: *const ListLruOne,
    /// Their number is a power of two: see [`shards_wanted`].
    shards: Vec<NonNull<Shard>>,
    /// Guarded by the lock of the split list.
    walks: UnsafeCell<WalkState>,
    /// The link of the queue of retired objects.
    retired: UnsafeCell<*mut ShardSet>,
}

/// The state of the walks, by which they also keep the shards from being joined. On cache lines of
/// its own: walks write it, and adds read the rest of the set.
#[repr(align(64))]
struct WalkState {
    /// The credit of each list, by its number (`shards/shares.rs`).
    credits: [i32; LISTS_MAX],
    /// The number of walks in progress.
    in_progress: u32,
    /// The number of the list with which the next walk begins; 0 is the split list itself.
    next: u16,
    /// Whether the shards were joined.
    ended: bool,
}

// SAFETY: the lists it points to may be used from any thread; `walks` is guarded by the split
// list's lock; `retired` is used only by the thread that frees it.
unsafe impl Send for ShardSet {}
// SAFETY: shared access to `walks` is synchronized by the split list's lock, and the other fields
// do not change until the set is retired.
unsafe impl Sync for ShardSet {}

// SAFETY: `kind` returns one static, and no code but the retire queue uses the link of a retired
// `ShardSet`.
unsafe impl Retired for ShardSet {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<ShardSet>();
        &KIND
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: the object is live (clause of `assert_unread`).
        unsafe { &(*this).walks }.with_mut(|_| ());
    }
}

impl ShardSet {
    /// Creates `shards` shards for the list of a group on a node; `None` if there is no memory.
    pub(super) fn try_new(memcg: &Memcg, whole: &ListLruOne, shards: usize) -> Option<Box<Self>> {
        debug_assert!(shards.is_power_of_two(), "a shard is chosen by a mask");
        let walks = WalkState { credits: [0; LISTS_MAX], in_progress: 0, next: 0, ended: false };
        let mut split = try_box(Self {
            key: Key::new(memcg, whole.node()),
            whole,
            shards: Vec::new(),
            walks: UnsafeCell::new(walks),
            retired: UnsafeCell::new(ptr::null_mut()),
        })?;
        split.shards = try_vec(shards)?;
        for _ in 0..shards {
            let Some(shard) = Shard::try_new(memcg, whole.node(), whole.owner()) else {
                split.discard();
                return None;
            };
            split.shards.push(shard);
        }
        Some(split)
    }

    /// Frees a set that was not published, and its shards.
    pub(super) fn discard(self) {
        for shard in &self.shards {
            // SAFETY: the shard came from a box and was never published, so no other thread has a
            // pointer to it.
            drop(unsafe { Box::from_raw(shard.as_ptr()) });
        }
    }

    #[inline]
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Returns the list that was split.
    #[inline]
    pub(super) fn whole(&self) -> &ListLruOne {
        // SAFETY: the split list outlives its set, which is retired first, and a caller with a
        // reference to the set is in the read side.
        unsafe { &*self.whole }
    }

    /// Iterates over the shards' lists.
    pub(super) fn shards(&self) -> impl Iterator<Item = &ListLruOne> {
        (0..self.shards.len()).map(|n| self.shard(n).one())
    }

    /// Returns a list by number: 0 is the split list itself, the others are the shards.
    pub(super) fn list(&self, index: usize) -> &ListLruOne {
        match index.checked_sub(1) {
            None => self.whole(),
            Some(shard) => self.shard(shard).one(),
        }
    }

    #[inline]
    fn shard(&self, n: usize) -> &Shard {
        // SAFETY: the shards are retired no earlier than the set, and a caller with a reference to
        // the set is in the read side. The mask keeps the index in bounds.
        unsafe { self.shards[n & (self.shards.len() - 1)].as_ref() }
    }

    /// Returns the list of the shard that this thread uses, for an add, and counts the add. The
    /// list may be dead.
    #[inline]
    pub(super) fn own_shard(&self) -> &ListLruOne {
        self.shard(cpu_hint::get()).count_add()
    }

    /// As [`own_shard`](Self::own_shard), after this thread's shard was found locked: assigns
    /// another number to the thread, which mostly selects another shard (`shards/cpu_hint.rs`).
    pub(super) fn other_shard(&self) -> &ListLruOne {
        self.shard(cpu_hint::next(cpu_hint::get())).count_add()
    }

    /// Returns the number of items on the list and its shards, without a lock. The sum is wrong
    /// while the shards are being joined: see `RawListLru::count_one`.
    pub(super) fn nr_items(&self) -> u64 {
        self.shards().map(|shard| u64::from(shard.nr_items())).sum::<u64>() + u64::from(self.whole().nr_items())
    }

    /// Returns the bytes of the shards and of this set.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.shards.capacity() * size_of::<NonNull<Shard>>()
            + self.shards.len() * size_of::<Shard>()
    }

    /// Returns whether the shards should be joined: all but the busiest were little used since the
    /// last sweep, and no walk is in progress. If not, resets their counts of adds. `whole` is the
    /// split list.
    pub(super) fn take_quiet(&self, whole: &mut LockedList<'_>) -> bool {
        let (mut all, mut most) = (0_u64, 0);
        for n in 0..self.shards.len() {
            let adds = self.shard(n).adds();
            all += u64::from(adds);
            most = most.max(adds);
        }
        let in_progress = self.with_walks(whole, |walks| walks.in_progress);
        let is_free = in_progress == 0 || crate::mutated!("end_parts_under_a_walk");
        let is_quiet = is_free && all - u64::from(most) < u64::from(QUIET);
        if !is_quiet {
            (0..self.shards.len()).for_each(|n| self.shard(n).reset_adds());
        }
        is_quiet
    }

    /// Iterates over the shards' lists in the order in which they are joined. The busiest since the
    /// last sweep is last: more of its items are young.
    pub(super) fn shards_to_join(&self) -> impl Iterator<Item = &ListLruOne> {
        let busiest = (0..self.shards.len()).max_by_key(|&n| self.shard(n).adds()).unwrap_or(0);
        (1..=self.shards.len()).map(move |n| self.shard(busiest + n).one())
    }

    /// Returns the lists by number, with their lengths, for a walk. Takes no lock: most reads wait
    /// for a cache line that an add wrote.
    pub(super) fn parts(&self) -> [Part; LISTS_MAX] {
        let mut parts = [Part::default(); LISTS_MAX];
        let lists = core::iter::once(self.whole()).chain(self.shards());
        parts.iter_mut().zip(lists).for_each(|(part, list)| part.len = list.nr_items());
        parts
    }

    /// Registers a walk of `nr` items over the [`parts`](Self::parts). Returns the number of the
    /// list to begin with, which differs between concurrent walks, the number of lists, and the
    /// share of each. `None`: the shards were joined. `whole` is the split list.
    pub(super) fn begin_walk(
        &self,
        whole: &mut LockedList<'_>,
        nr: u64,
        parts: &mut [Part; LISTS_MAX],
    ) -> Option<(usize, usize, Shares)> {
        let lists = 1 + self.shards.len();
        let parts = parts.get_mut(..lists).unwrap_or_default();
        let mut shares = [u32::MAX; LISTS_MAX];
        self.with_walks(whole, |walks| {
            if walks.ended {
                return None;
            }
            let begin = usize::from(walks.next) + walks.in_progress as usize;
            walks.in_progress += 1;
            parts.iter_mut().zip(&walks.credits).for_each(|(part, &credit)| part.credit = credit.into());
            if divide(nr, parts) {
                for ((part, share), credit) in parts.iter().zip(&mut shares).zip(&mut walks.credits) {
                    // A credit is one item at most.
                    (*share, *credit) = (part.share, part.credit as i32);
                }
            }
            Some((begin % lists, lists, shares))
        })
    }

    /// Unregisters a walk, and stores the number of the list with which the next one begins.
    /// `whole` is the split list.
    pub(super) fn end_walk(&self, whole: &mut LockedList<'_>, next: usize) {
        self.with_walks(whole, |walks| {
            walks.in_progress -= 1;
            walks.next = next as u16; // At most `SHARDS_MAX`.
        });
    }

    /// Marks the shards as joined. `whole` is the split list.
    pub(super) fn set_ended(&self, whole: &mut LockedList<'_>) {
        self.with_walks(whole, |walks| walks.ended = true);
    }

    fn with_walks<R>(&self, whole: &mut LockedList<'_>, f: impl FnOnce(&mut WalkState) -> R) -> R {
        debug_assert!(ptr::eq(whole.one(), self.whole), "the walks are guarded by the lock of the list that was split");
        // SAFETY: `walks` is guarded by the lock that `whole` holds, and `whole` is borrowed
        // mutably for as long as the reference lives.
        self.walks.with_mut(|walks| f(unsafe { &mut *walks }))
    }
}

/// Returns the number of shards to create for a list: the number of processors on which the process
/// may run, rounded up to a power of two, 2 at least and [`SHARDS_MAX`] at most. Without `std` that
/// number is the embedder's, or 1.
pub(super) fn shards_wanted() -> usize {
    lowwater_base::cpu::allowed().clamp(2, SHARDS_MAX).next_power_of_two()
}

/// Assigns shard number `hint` to the calling thread.
#[cfg(test)]
pub(super) fn set_cpu_hint(hint: usize) {
    cpu_hint::set(hint);
}
