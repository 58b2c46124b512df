//! A list whose lock is held: all that changes it. See [`list_lru_one`](super::list_lru_one) for the invariants.

use super::key::Key;
use super::list_lru_one::ListLruOne;
use super::list_state::ListState;
use super::shards::shard::Shard;
use crate::list::{Hook, LinkLayout, LinkNode, LinkRef, ListHome, RawList};
use crate::rcu::Guard;
use crate::sync::atomic::Ordering;
use crate::Memcg;
use core::ptr::{self, NonNull};

/// More items than this on one list are refused: two full lists can still be joined without the count overflowing.
pub(super) const ITEMS_MAX: u32 = u32::MAX / 2;

impl ListLruOne {
    /// Waits for the lock.
    #[inline]
    pub(super) fn lock<'a>(&'a self, guard: &'a Guard) -> LockedList<'a> {
        #[cfg(lowwater_loom)]
        self.owner(); // So that a model checker knows that it is read from here on.
        self.lock.lock();
        LockedList { one: self, released: ptr::null(), guard }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock<'a>(&'a self, guard: &'a Guard) -> Option<LockedList<'a>> {
        #[cfg(lowwater_loom)]
        self.owner(); // As in `lock`.
        self.lock.try_lock().then(|| LockedList { one: self, released: ptr::null(), guard })
    }
}

/// A list whose lock is held; given back on drop. What the last item of a dead list released is retired after that.
pub(crate) struct LockedList<'a> {
    one: &'a ListLruOne,
    /// Dead lists whose `refs` came to 0, joined by `chain.prev`.
    released: *const ListLruOne,
    guard: &'a Guard,
}

impl<'a> LockedList<'a> {
    #[inline]
    pub(super) fn one(&self) -> &'a ListLruOne {
        self.one
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.state() >= ListState::DEAD
    }

    /// Are there parts beside it?
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.state() == ListState::SPLIT
    }

    /// Counts that an add had to wait for the lock; says whether the list is to be split now.
    pub(super) fn count_miss(&mut self) -> bool {
        let state = self.state();
        if state >= ListState::CONTENDED {
            return false;
        }
        let state = ListState(state.0 + 1);
        let is_due = state == ListState::CONTENDED;
        // Whether that comes off or not, the next try is as many waits away.
        self.set_state(if is_due { ListState::LIVE } else { state });
        is_due
    }

    /// Begins to count anew how many had to wait.
    pub(super) fn forget_misses(&mut self) {
        if self.state() < ListState::CONTENDED {
            self.set_state(ListState::LIVE);
        }
    }

    /// From here on there are so many parts beside it, each of which counts on it. Not for dead ones.
    pub(super) fn begin_parts(&mut self, parts: usize) {
        if !crate::mutated!("parts_uncounted") {
            (0..parts).for_each(|_| self.get());
        }
        self.set_state(ListState::SPLIT);
    }

    /// Its last part was taken over.
    pub(super) fn end_parts(&mut self) {
        self.set_state(ListState::LIVE);
    }

    #[inline]
    fn state(&self) -> ListState {
        // SAFETY: the lock is held.
        self.one.state.with(|s| unsafe { *s })
    }

    #[inline]
    fn set_state(&mut self, state: ListState) {
        // SAFETY: the lock is held.
        self.one.state.with_mut(|s| unsafe { *s = state });
    }

    /// The group whose list it is.
    ///
    /// # Panics
    ///
    /// If the list is dead.
    pub(super) fn memcg(&self) -> &Memcg {
        assert!(!self.is_dead(), "a dead list's group may be gone");
        // SAFETY: it is not dead, nor will it be while the lock is held, so the handle is not given
        // up (invariant 4).
        unsafe { self.one.memcg.get() }
    }

    /// Under which it is in the table; of a part, the list it is a part of.
    ///
    /// # Panics
    ///
    /// If the list is dead.
    pub(super) fn key(&self) -> Key {
        Key::new(self.memcg(), self.one.node)
    }

    /// The list that took the items over. Only for dead ones; null when the whole list was dropped.
    pub(super) fn forward(&self) -> *const ListLruOne {
        debug_assert!(self.is_dead(), "only a dead list forwards");
        // SAFETY: a dead list is on no chain, so its `next` is its `forward`, written under this lock.
        self.one.chain.next.with(|next| unsafe { (*next).cast_const() })
    }

    /// The shape of the links on it.
    #[inline]
    pub(super) fn shape(&self) -> &'static LinkLayout {
        // SAFETY: whoever has the lock of a list has its owner, or the chain of its group, which the owner waits for before it ends.
        unsafe { &*self.one.owner() }.layout
    }

    #[inline]
    pub(super) fn with_list<R>(&mut self, f: impl FnOnce(&mut RawList, &'static LinkLayout) -> R) -> R {
        let shape = self.shape();
        // SAFETY: the lock is held, and `self` is borrowed for as long as the reference lives.
        self.one.list.with_mut(|l| f(unsafe { &mut *l }, shape))
    }

    #[inline]
    fn set_nr_items(&mut self, n: u32) {
        // Relaxed: readers without the lock bring their own fence (see `Occupancy`); those with it have the lock.
        self.one.nr_items.store(n, Ordering::Relaxed);
    }

    /// Counts one more item; `None` when there are too many already.
    #[inline]
    pub(super) fn count_in(&mut self) -> Option<FirstItem> {
        let n = self.one.nr_items();
        if n >= ITEMS_MAX {
            return None;
        }
        self.set_nr_items(n + 1);
        self.get();
        // Not always: the key beside it would have to wait for the store.
        if n == 0 && self.state() == ListState::IDLE {
            self.set_state(ListState::LIVE);
        }
        Some(FirstItem(n == 0))
    }

    /// Counts one more reference. Not for dead ones.
    #[inline]
    pub(super) fn get(&mut self) {
        debug_assert!(!self.is_dead(), "a dead list's references only go");
        // SAFETY: this is not dead, so its lock guards its `refs` (invariant 3).
        self.one.refs.with_mut(|r| unsafe { *r += 1 });
    }

    /// As if so many more had been prepared and forgotten.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn forget_refs(&mut self, n: u64) {
        // SAFETY: this is not dead, so its lock guards its `refs` (invariant 3).
        self.one.refs.with_mut(|r| unsafe { *r += n });
    }

    /// What a sweep makes of it. What is empty for the first time is marked. The owner's writer lock is held, so that no
    /// child's list comes to count on it.
    pub(super) fn idleness(&mut self) -> Idleness {
        if self.state() > ListState::IDLE || self.one.nr_items() != 0 {
            return Idleness::Busy;
        }
        if self.state() != ListState::IDLE {
            self.set_state(ListState::IDLE);
            return Idleness::Marked;
        }
        // SAFETY: this is not dead, so its lock guards its `refs` (invariant 3).
        if self.one.refs.with(|r| unsafe { *r }) == 1 {
            Idleness::Idle
        } else {
            Idleness::Busy
        }
    }

    /// Takes an item off, to `to`: null or [`Hook::PRIVATE`]. Returns what it was added as.
    ///
    /// # Safety
    ///
    /// The item is on this list.
    #[inline]
    pub(super) unsafe fn unlink(&mut self, links: NonNull<Hook>, to: *mut ListHome) -> LinkRef {
        // SAFETY: the item is on this list, says the caller, so it is live.
        let hook = unsafe { links.as_ref() };
        let home = hook.home();
        // SAFETY: as above, and the lock is held.
        let pushed = self.with_list(|l, shape| unsafe { l.remove(shape, links) });
        hook.set_home(to);
        // The object may be gone from here on, unless the caller takes it over by what it gets.
        self.set_nr_items(self.one.nr_items().wrapping_sub(1));
        // SAFETY: `home` counted the item until now, and this is its effective list (invariant 2).
        unsafe { self.put(home.cast_const().cast()) };
        pushed
    }

    /// Makes an item the youngest.
    ///
    /// # Safety
    ///
    /// The item is on this list.
    #[inline]
    pub(super) unsafe fn rotate(&mut self, links: NonNull<Hook>) {
        self.with_list(|l, shape| {
            // SAFETY: the item is on this list, says the caller, and the lock is held.
            let by = unsafe { l.remove(shape, links) };
            // SAFETY: it was just removed, and is as live as it was.
            let at = unsafe { shape.get(by) };
            // SAFETY: as above.
            unsafe { l.push_back(shape, LinkNode { at, by }) };
        });
    }

    /// Puts an object in an item's place, and counts it where that one was counted. Returns what that one was added as;
    /// `None` if the object is on a list already.
    ///
    /// # Safety
    ///
    /// The item is on this list, which owns the object from now on, by this pointer. `unique`: the caller alone can reach it.
    pub(super) unsafe fn replace(&mut self, links: NonNull<Hook>, by: LinkNode, unique: bool) -> Option<LinkRef> {
        // SAFETY: the object is the caller's.
        let object = unsafe { by.at.as_ref() };
        // SAFETY: the item is on this list, says the caller, so it is live.
        let item = unsafe { links.as_ref() };
        // INVARIANT 3: its home, this or one that forwards here, has one item less and one more.
        if !object.claim(item.home(), unique) {
            return None;
        }
        // SAFETY: the lock is held; the item is on this list, says the caller, and by the claim the object on none.
        let pushed = self.with_list(|l, shape| unsafe { l.replace(shape, links, by) });
        item.set_home(ptr::null_mut());
        Some(pushed)
    }

    /// Takes one reference off `one`, and off what it forwards to if that was its last.
    ///
    /// # Safety
    ///
    /// `one` counts a reference that is given up here, and this is its effective list.
    #[inline]
    pub(super) unsafe fn put(&mut self, one: *const ListLruOne) {
        // SAFETY: it counts our reference, so it is not retired.
        let this = unsafe { &*one };
        // SAFETY: we hold the lock of its effective list (invariant 3).
        let left = this.refs.with(|r| unsafe { *r }) - 1;
        // SAFETY: as above.
        this.refs.with_mut(|r| unsafe { *r = left });
        if left == 0 {
            // SAFETY: the last reference was given up, and this is its effective list.
            self.released = unsafe { Self::release(one, self.released) };
        }
    }

    /// Joins `one` to what is retired when the lock is given back, and gives up what it counts on. Takes and gives what is joined
    /// as a value: borrowed, the right to the lock would live in memory on every way, not only on this one.
    ///
    /// # Safety
    ///
    /// The `refs` of `one` are 0, and the lock of its effective list is held.
    #[cold]
    #[inline(never)]
    unsafe fn release(mut one: *const ListLruOne, mut released: *const ListLruOne) -> *const ListLruOne {
        loop {
            // SAFETY: it is retired only by who releases it, and that is us.
            let this = unsafe { &*one };
            // A model check shall end here, not in memory that was freed under the table.
            #[cfg(lowwater_loom)]
            // SAFETY: its state is final if it is dead; else it is the effective list, whose lock is held.
            assert!(
                this.state.with(|s| unsafe { *s }) >= ListState::DEAD,
                "the last reference to a live list is the table's"
            );
            // SAFETY: it is dead (else the table's reference were left), and its `forward` does not change any more.
            let forward = this.chain.next.with(|next| unsafe { *next });
            // SAFETY: `refs` is 0, so it is ours (invariant 3).
            this.chain.prev.with_mut(|prev| unsafe { *prev = released.cast_mut() });
            released = one;
            if forward.is_null() {
                return released;
            }
            // SAFETY: it counts the reference of what forwards to it, which is given up here.
            let next = unsafe { &*forward };
            // SAFETY: its effective list is this one, too.
            let left = next.refs.with(|r| unsafe { *r }) - 1;
            // SAFETY: as above.
            next.refs.with_mut(|r| unsafe { *r = left });
            if left != 0 {
                return released;
            }
            one = forward;
        }
    }

    /// Moves everything from `child` here, in order: a group's to the cold end (L9), a part's to the other. Marks `child` dead.
    ///
    /// The child's group must be dying, or its part be out of the table; it is on no chain any more, and counts as one of our
    /// `refs` since it was published.
    pub(super) fn take_over(&mut self, child: &mut LockedList<'_>) -> FirstItem {
        let moved = child.one.nr_items();
        let had = self.one.nr_items();
        let is_part = child.state() == ListState::PART;
        child.with_list(|from, shape| {
            self.with_list(|to, _| {
                if is_part {
                    // SAFETY: both locks are held.
                    unsafe { to.splice_back(shape, from) };
                } else {
                    // SAFETY: as above.
                    unsafe { to.splice_front(shape, from) };
                }
            });
        });
        // Three lists of `ITEMS_MAX` items that are joined are too many for the count, which is too
        // low from then on. Memory hangs on `refs`, which has room for them.
        self.set_nr_items(had.saturating_add(moved));
        if moved != 0 {
            // SAFETY: the owner waits for the chain of the group that ends, or takes part itself,
            // before it ends.
            unsafe { &*self.one.owner() }.note_move();
        }
        child.set_nr_items(0);
        if moved != 0 && self.state() == ListState::IDLE {
            self.set_state(ListState::LIVE);
        }
        // INVARIANT 3: it counted as a child's list, and counts as a forward from here on.
        child.kill(self.one);
        FirstItem(had == 0 && moved != 0)
    }

    /// For a fault: what is counted off here next is counted off there.
    #[cfg(lowwater_loom)]
    pub(super) fn move_count_to(&mut self, parent: &ListLruOne) {
        self.set_nr_items(self.one.nr_items().wrapping_add(1));
        parent.nr_items.store(parent.nr_items().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Marks this dead; it must be empty, and on no chain any more.
    pub(super) fn kill(&mut self, forward: *const ListLruOne) {
        self.set_state(if self.state() == ListState::PART { ListState::DEAD_PART } else { ListState::DEAD });
        // SAFETY: this is on no chain, so from here on `next` is `forward`, guarded by the lock that we hold.
        self.one.chain.next.with_mut(|next| unsafe { *next = forward.cast_mut() });
    }

    /// Panics unless invariant 1 holds, and `parts` is whether there are parts beside it.
    pub(super) fn assert_valid_with(&mut self, parts: bool) {
        assert_eq!(self.is_split(), parts, "a list's state must say whether the table knows parts of it");
        self.assert_valid();
    }

    /// Panics unless invariant 1 holds.
    pub(super) fn assert_valid(&mut self) {
        let n = self.one.nr_items() as usize;
        // SAFETY: the lock is held.
        self.with_list(|list, shape| unsafe { list.assert_valid(shape, n) });
        if self.is_dead() {
            assert_eq!(n, 0, "a dead list must be empty");
        }
    }
}

/// How a sweep finds a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idleness {
    /// It holds something, or a child's list or somebody's `Prepared` counts on it.
    Busy,
    /// It is empty, and was not at the last sweep; now it is marked.
    Marked,
    /// It was empty at the last sweep and ever since, and nothing counts on it.
    Idle,
}

/// Did the list go from empty to not empty?
#[must_use]
pub(super) struct FirstItem(pub(super) bool);

impl Drop for LockedList<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the lock is held.
        unsafe { self.one.lock.unlock() };
        if !self.released.is_null() {
            Self::retire_released(self.released, self.guard);
        }
    }
}

impl LockedList<'_> {
    #[cold]
    #[inline(never)]
    fn retire_released(mut released: *const ListLruOne, guard: &Guard) {
        while !released.is_null() {
            // SAFETY: `refs` is 0, so we alone own it (invariant 3).
            let one = unsafe { &*released };
            // SAFETY: as above.
            let next = one.chain.prev.with(|prev| unsafe { *prev });
            // The group's handle goes now, not a grace period later, so that its id can return at
            // once.
            // SAFETY: a list is released and retired once; readers that still see it dead only
            // compare the address.
            unsafe { one.memcg.release() };
            // SAFETY: `refs` is 0, so we alone own it (invariant 3).
            if one.state.with(|s| unsafe { *s }) == ListState::DEAD_PART {
                // SAFETY: as below; by its state it is a part.
                unsafe { guard.retire(Shard::of(released)) };
            } else {
                // As the box gave it: homes and forwards are made from references, through which nothing may be freed.
                let one = ptr::with_exposed_provenance_mut::<ListLruOne>(released.addr());
                // SAFETY: it left the table and no item names it as home, so no new reader finds it; it came from a box.
                unsafe { guard.retire(one) };
            }
            released = next;
        }
    }
}
