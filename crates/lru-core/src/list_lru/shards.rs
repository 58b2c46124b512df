//! A list for which threads contend: parts beside it, of which each thread uses the one of its processor.
//!
//! ```text
//!     one list  --adds waited for its lock 64 times between two sweeps-->  the list, and a part for each processor
//!               <--few adds between two sweeps; offline; drop------------
//! ```
//!
//! A part is a [`ListLruOne`] of the same key on cache lines of its own, and to the list what a child group's list is to its parent's: it
//! counts as a reference, and when it ends, it forwards there. So an item knows its part as it knows any list, and removing
//! is what it always is. What was on the list stays there; what is added goes to the parts.
//!
//! The parts stand in a [`ShardSet`], to which the slot of the table leads in place of the list. Nothing but that slot, which is only
//! read, is shared by threads that add and remove.
//!
//! # Invariants
//!
//! 1. The slot leads to the split if and only if the list's state says so. Both change under the lock of the group's chain, the
//!    writer lock and the lock of the list: that of the list first, then the parts', one after the other.
//! 2. When the parts end, the list's lock is held from before the slot leads back to it until the last part is empty. So whoever
//!    finds a dead part finds its items on the list, as soon as that one's lock is had; and whoever does not find the split any more
//!    finds all items on the list.
//! 3. While a walk goes round, no sweep ends the parts: an item does not change places under it, unless its group dies.

mod cpu_hint;
pub(super) mod shard;

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

/// More parts are not made, however many processors there are.
pub(super) const PARTS_MAX: usize = 32;

/// See the module.
pub(crate) struct ShardSet {
    key: Key,
    whole: *const ListLruOne,
    /// As many as a power of two.
    parts: Vec<NonNull<Shard>>,
    /// Guarded by the lock of the list.
    rounds: UnsafeCell<Rounds>,
    /// For who frees it.
    retired: UnsafeCell<*mut ShardSet>,
}

/// What walks and the end of the parts need to know of each other.
#[derive(Default)]
struct Rounds {
    /// Walks that go round now.
    walks: u32,
    /// Where the next one begins: 0 is the list itself.
    next: u16,
    /// The parts have ended.
    ended: bool,
}

// SAFETY: what it points to may be used from any thread; `rounds` is guarded by a lock, `retired` used by who frees it alone.
unsafe impl Send for ShardSet {}
// SAFETY: as for Send.
unsafe impl Sync for ShardSet {}

// SAFETY: one static; nobody uses the link of a retired Split.
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
        // SAFETY: it is live, says the caller.
        unsafe { &(*this).rounds }.with_mut(|_| ());
    }
}

impl ShardSet {
    /// So many parts for the list of a group on a node; `None` without memory.
    pub(super) fn try_new(memcg: &Memcg, whole: &ListLruOne, parts: usize) -> Option<Box<Self>> {
        debug_assert!(parts.is_power_of_two(), "a part is chosen by a mask");
        let mut split = try_box(Self {
            key: Key::new(memcg, whole.node()),
            whole,
            parts: Vec::new(),
            rounds: UnsafeCell::new(Rounds::default()),
            retired: UnsafeCell::new(ptr::null_mut()),
        })?;
        split.parts = try_vec(parts)?;
        for _ in 0..parts {
            let Some(part) = Shard::try_new(memcg, whole.node(), whole.owner()) else {
                split.discard();
                return None;
            };
            split.parts.push(part);
        }
        Some(split)
    }

    /// Frees one that was not published, and its parts.
    pub(super) fn discard(self) {
        for part in &self.parts {
            // SAFETY: it came from a box, and nobody saw it.
            drop(unsafe { Box::from_raw(part.as_ptr()) });
        }
    }

    #[inline]
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The list that was split.
    #[inline]
    pub(super) fn whole(&self) -> &ListLruOne {
        // SAFETY: a split is retired before its list, and whoever has a reference is in the read side.
        unsafe { &*self.whole }
    }

    /// The parts' lists.
    pub(super) fn parts(&self) -> impl Iterator<Item = &ListLruOne> {
        (0..self.parts.len()).map(|n| self.part(n).one())
    }

    /// The list itself and its parts, by number.
    pub(super) fn list(&self, index: usize) -> &ListLruOne {
        match index.checked_sub(1) {
            None => self.whole(),
            Some(part) => self.part(part).one(),
        }
    }

    #[inline]
    fn part(&self, n: usize) -> &Shard {
        // SAFETY: its parts are retired after the split, and whoever has a reference to that is in the read side.
        unsafe { self.parts[n & (self.parts.len() - 1)].as_ref() }
    }

    /// This thread's part, for an add. It may be dead.
    #[inline]
    pub(super) fn here(&self) -> &ListLruOne {
        self.part(cpu_hint::get()).count_add()
    }

    /// As [`here`](Self::here), after somebody was found there: from now on the thread's part is another.
    pub(super) fn elsewhere(&self) -> &ListLruOne {
        self.part(cpu_hint::next(cpu_hint::get())).count_add()
    }

    /// How many items are on the list and its parts, without a lock. Not while the parts end: see `RawListLru::count_one`.
    pub(super) fn nr_items(&self) -> u64 {
        self.parts().map(|part| u64::from(part.nr_items())).sum::<u64>() + u64::from(self.whole().nr_items())
    }

    /// Bytes of the parts and of what joins them.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.parts.capacity() * size_of::<NonNull<Shard>>() + self.parts.len() * size_of::<Shard>()
    }

    /// Shall the parts end? They were little used since the last time this was asked, and no walk goes round. `whole` is its list.
    pub(super) fn is_quiet(&self, whole: &mut LockedList<'_>) -> bool {
        let (mut all, mut most) = (0_u64, 0);
        for n in 0..self.parts.len() {
            let adds = self.part(n).take_adds();
            all += u64::from(adds);
            most = most.max(adds);
        }
        let walks = self.with_rounds(whole, |rounds| rounds.walks);
        (walks == 0 || crate::mutated!("end_parts_under_a_walk")) && all - u64::from(most) < u64::from(QUIET)
    }

    /// Counts a walk in: where it is to begin, which is not where another is that goes round, and how many lists there are. `None`: the
    /// parts have ended. `whole` is its list.
    pub(super) fn begin_round(&self, whole: &mut LockedList<'_>) -> Option<(usize, usize)> {
        let lists = 1 + self.parts.len();
        self.with_rounds(whole, |rounds| {
            let begin = usize::from(rounds.next) + rounds.walks as usize;
            rounds.walks += u32::from(!rounds.ended);
            (!rounds.ended).then_some((begin % lists, lists))
        })
    }

    /// Counts a walk out, and says where the next one begins. `whole` is its list.
    pub(super) fn end_round(&self, whole: &mut LockedList<'_>, next: usize) {
        self.with_rounds(whole, |rounds| {
            rounds.walks -= 1;
            rounds.next = next as u16; // No more than `PARTS_MAX`.
        });
    }

    /// The parts have ended. `whole` is its list.
    pub(super) fn set_ended(&self, whole: &mut LockedList<'_>) {
        self.with_rounds(whole, |rounds| rounds.ended = true);
    }

    fn with_rounds<R>(&self, whole: &mut LockedList<'_>, f: impl FnOnce(&mut Rounds) -> R) -> R {
        debug_assert!(
            ptr::eq(whole.one(), self.whole),
            "the rounds are guarded by the lock of the list that was split"
        );
        // SAFETY: the lock is held, and `whole` is borrowed for as long as the reference lives.
        self.rounds.with_mut(|rounds| f(unsafe { &mut *rounds }))
    }
}

/// How many parts are worth having.
pub(super) fn parts_wanted() -> usize {
    lowwater_base::cpu::allowed().next_power_of_two().clamp(2, PARTS_MAX)
}

/// From here on this thread uses this part.
#[cfg(test)]
pub(super) fn set_place(place: usize) {
    cpu_hint::set(place);
}
