//! A list whose lock is held, and all operations that change a list. See
//! [`list_lru_one`](super::list_lru_one) for the invariants.
//!
//! Numbers such as L9 are those of docs/INVARIANTS.md.
//!
//! All changes of a list's items, count, references and state are methods of [`LockedList`], so
//! that none of them compiles without the lock. A change must ensure that every method leaves the
//! invariants true when it returns, also when it returns early. `mutated!("name")` leaves one step
//! out in a model check (docs/ORDERINGS.md).

use super::key::Key;
use super::list_lru_one::ListLruOne;
use super::list_state::ListState;
use super::shards::shard::Shard;
use crate::list::{Hook, LinkLayout, LinkNode, LinkRef, ListHome, RawList};
use crate::rcu::Guard;
use crate::sync::atomic::Ordering;
use crate::Memcg;
use core::ptr::{self, NonNull};

/// The maximum number of items on one list. Half of the count's range, so that joining two full
/// lists does not overflow the count. [`AddError::Full`](super::AddError::Full) states the number.
pub(super) const ITEMS_MAX: u32 = u32::MAX / 2;

impl ListLruOne {
    /// Locks the list, waiting if necessary.
    #[inline]
    pub(super) fn lock<'a>(&'a self, guard: &'a Guard) -> LockedList<'a> {
        #[cfg(lowwater_loom)]
        self.owner(); // Makes loom record a read of `owner` here.
        self.lock.lock();
        LockedList { one: self, released: ptr::null(), guard }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock<'a>(&'a self, guard: &'a Guard) -> Option<LockedList<'a>> {
        #[cfg(lowwater_loom)]
        self.owner(); // Makes loom record a read of `owner` here.
        self.lock.try_lock().then(|| LockedList { one: self, released: ptr::null(), guard })
    }
}

/// A list whose lock is held; dropping it unlocks. Dead lists whose last reference was given up
/// under the lock are retired after the unlock.
pub(crate) struct LockedList<'a> {
    one: &'a ListLruOne,
    /// Dead lists whose `refs` fell to 0, linked by `chain.prev`.
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

    /// Returns whether the list has shards beside it.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.state() == ListState::SPLIT
    }

    /// Counts an add that found the lock taken. Returns whether the list is now due to be split.
    /// Does nothing if the list is idle, split, a shard or dead.
    pub(super) fn count_miss(&mut self) -> bool {
        let state = self.state();
        if state >= ListState::CONTENDED {
            return false;
        }
        let state = ListState(state.0 + 1);
        let is_due = state == ListState::CONTENDED;
        // Restart the count whether or not the split succeeds, so that a failed split is retried
        // only after as many contended adds.
        self.set_state(if is_due { ListState::LIVE } else { state });
        is_due
    }

    /// Resets the count of contended adds.
    pub(super) fn forget_misses(&mut self) {
        if self.state() < ListState::CONTENDED {
            self.set_state(ListState::LIVE);
        }
    }

    /// Marks the list as split, and counts a reference for each of its `shards`. The list must not
    /// be dead.
    pub(super) fn begin_shards(&mut self, shards: usize) {
        if !crate::mutated!("parts_uncounted") {
            (0..shards).for_each(|_| self.get());
        }
        self.set_state(ListState::SPLIT);
    }

    /// Marks the list as no longer split, after the last shard was taken over.
    pub(super) fn join_shards(&mut self) {
        self.set_state(ListState::LIVE);
    }

    #[inline]
    fn state(&self) -> ListState {
        // SAFETY: the cell is guarded by the list's lock, which `self` holds.
        self.one.state.with(|s| unsafe { *s })
    }

    #[inline]
    fn set_state(&mut self, state: ListState) {
        // SAFETY: the cell is guarded by the list's lock, which `self` holds.
        self.one.state.with_mut(|s| unsafe { *s = state });
    }

    /// Returns the group of this list.
    ///
    /// # Panics
    ///
    /// If the list is dead.
    pub(super) fn memcg(&self) -> &Memcg {
        assert!(!self.is_dead(), "a dead list's group may be gone");
        // SAFETY: the list is not dead, and cannot die while we hold its lock, so the handle is not
        // released (invariant 4).
        unsafe { self.one.memcg.get() }
    }

    /// Returns the key under which the list is in the table; for a shard, that of the list it
    /// belongs to.
    ///
    /// # Panics
    ///
    /// If the list is dead.
    pub(super) fn key(&self) -> Key {
        Key::new(self.memcg(), self.one.node)
    }

    /// Returns the list that took the items over; null if the whole `ListLru` was dropped. Only for
    /// dead lists.
    pub(super) fn forward(&self) -> *const ListLruOne {
        debug_assert!(self.is_dead(), "only a dead list forwards");
        // SAFETY: a dead list is on no chain, so `next` is its `forward`, which was written under
        // the lock that we hold.
        self.one.chain.next.with(|next| unsafe { (*next).cast_const() })
    }

    /// Returns the layout of the links in this list's items.
    #[inline]
    pub(super) fn layout(&self) -> &'static LinkLayout {
        // SAFETY: the caller reached this list through a live `ListLru`, or through the chain of
        // its group, and a `ListLru` that drops waits for that chain and for the group's
        // `reparenting` lock. So the head is live.
        unsafe { &*self.one.owner() }.layout
    }

    #[inline]
    pub(super) fn with_list<R>(&mut self, f: impl FnOnce(&mut RawList, &'static LinkLayout) -> R) -> R {
        let layout = self.layout();
        // SAFETY: the cell is guarded by the list's lock, which `self` holds, and `self` is
        // borrowed mutably for as long as the reference lives.
        self.one.list.with_mut(|l| f(unsafe { &mut *l }, layout))
    }

    #[inline]
    fn set_nr_items(&mut self, n: u32) {
        // Relaxed: readers without the lock execute their own fence (see `Occupancy`); readers with
        // the lock are ordered by it.
        self.one.nr_items.store(n, Ordering::Relaxed);
    }

    /// Counts one more item and its reference. `None` if the list is full.
    #[inline]
    pub(super) fn count_in(&mut self) -> Option<FirstItem> {
        let n = self.one.nr_items();
        if n >= ITEMS_MAX {
            return None;
        }
        self.set_nr_items(n + 1);
        self.get();
        // Stored only when the state changes: an unconditional store would delay the load of the
        // key next to it.
        if n == 0 && self.state() == ListState::IDLE {
            self.set_state(ListState::LIVE);
        }
        Some(FirstItem(n == 0))
    }

    /// Counts one more reference. The list must not be dead.
    #[inline]
    pub(super) fn get(&mut self) {
        debug_assert!(!self.is_dead(), "a dead list's references only go");
        // SAFETY: the list is not dead, so its own lock, which `self` holds, guards its `refs`
        // (invariant 3).
        self.one.refs.with_mut(|r| unsafe { *r += 1 });
    }

    /// Adds `n` references, as if as many `Prepared` had been leaked.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn forget_refs(&mut self, n: u64) {
        // SAFETY: the list is not dead, so its own lock, which `self` holds, guards its `refs`
        // (invariant 3).
        self.one.refs.with_mut(|r| unsafe { *r += n });
    }

    /// Returns how idle the list is, for a sweep; marks it if it is empty and not marked yet. The
    /// caller holds the owner's writer lock, so that no child's list can count a reference on this
    /// one meanwhile.
    pub(super) fn idleness(&mut self) -> Idleness {
        if self.state() > ListState::IDLE || self.one.nr_items() != 0 {
            return Idleness::Busy;
        }
        if self.state() != ListState::IDLE {
            self.set_state(ListState::IDLE);
            return Idleness::Marked;
        }
        // SAFETY: the list is not dead, so its own lock, which `self` holds, guards its `refs`
        // (invariant 3).
        if self.one.refs.with(|r| unsafe { *r }) == 1 {
            Idleness::Idle
        } else {
            Idleness::Busy
        }
    }

    /// Unlinks an item and sets its home to `to`: null or [`Hook::PRIVATE`]. Returns the reference
    /// by which it was pushed.
    ///
    /// # Safety
    ///
    /// The item is on this list.
    #[inline]
    pub(super) unsafe fn unlink(&mut self, links: NonNull<Hook>, to: *mut ListHome) -> LinkRef {
        // SAFETY: the item is on this list (this function's clause), which owns it, so it is live.
        let hook = unsafe { links.as_ref() };
        let home = hook.home();
        // SAFETY: the item is on this list (this function's clause), and the list's lock is held.
        let pushed = self.with_list(|l, layout| unsafe { l.remove(layout, links) });
        hook.set_home(to);
        // From here on another thread may free the object, unless the caller takes ownership by the
        // returned reference.
        self.set_nr_items(self.one.nr_items().wrapping_sub(1));
        // SAFETY: `home` counted the item until now, and this is its effective list (invariant 2).
        unsafe { self.put(home.cast_const().cast()) };
        pushed
    }

    /// Unlinks the first item, and sets its home to `to`: null or [`Hook::PRIVATE`]. Returns the
    /// item that is first then: its reference and its links. `layout` is a constant, as the caller
    /// knows the type of the item.
    ///
    /// # Safety
    ///
    /// The item is the first on this list, and `layout` is that of the list.
    #[inline]
    pub(super) unsafe fn unlink_first(
        &mut self,
        layout: &'static LinkLayout,
        links: NonNull<Hook>,
        to: *mut ListHome,
    ) -> (LinkRef, Option<NonNull<Hook>>) {
        // SAFETY: the item is on this list (this function's clause), which owns it, so it is live.
        let hook = unsafe { links.as_ref() };
        let home = hook.home();
        // SAFETY: the item is the first and `layout` that of the list (this function's clause), and
        // the list's lock is held.
        let next = self.with_list(|l, _| unsafe { l.remove_first(layout, links) });
        hook.set_home(to);
        // From here on another thread may free the object, unless the caller takes ownership by the
        // item's reference, which it has as the first of the list.
        self.set_nr_items(self.one.nr_items().wrapping_sub(1));
        // SAFETY: `home` counted the item until now, and this is its effective list (invariant 2).
        unsafe { self.put(home.cast_const().cast()) };
        next
    }

    /// Moves an item to the young end.
    ///
    /// # Safety
    ///
    /// The item is on this list.
    #[inline]
    pub(super) unsafe fn rotate(&mut self, links: NonNull<Hook>) {
        self.with_list(|l, layout| {
            // SAFETY: the item is on this list (this function's clause), and the list's lock is
            // held.
            let by = unsafe { l.remove(layout, links) };
            // SAFETY: `by` refers to the links just removed; the list still owns the object, so it
            // is live.
            let at = unsafe { layout.get(by) };
            // SAFETY: the links were just removed, so they are on no list, and the lock is held.
            unsafe { l.push_back(layout, LinkNode { at, by }) };
        });
    }

    /// Puts an object in an item's place, with the item's age and home. Returns the reference by
    /// which the item was pushed; `None` if the object is on a list already. `layout` is as for
    /// [`unlink_first`](Self::unlink_first).
    ///
    /// # Safety
    ///
    /// 1. The item is on this list.
    /// 2. The caller gives the object to this list, by the pointer in `by`.
    /// 3. If `unique`, no other thread can reach the object.
    /// 4. `layout` is that of the list.
    #[inline]
    pub(super) unsafe fn replace(
        &mut self,
        layout: &'static LinkLayout,
        links: NonNull<Hook>,
        by: LinkNode,
        unique: bool,
    ) -> Option<LinkRef> {
        // SAFETY: the caller owned the object until now (clause 2), so it is live.
        let object = unsafe { by.at.as_ref() };
        // SAFETY: the item is on this list (clause 1), which owns it, so it is live.
        let item = unsafe { links.as_ref() };
        // INVARIANT 3: the item's home (this list or one that forwards here) counts one item less
        // and one more.
        if !object.claim(item.home(), unique) {
            return None;
        }
        // SAFETY: the lock is held, the item is on this list (clause 1), by the claim the object is
        // on no list, and `layout` is that of the list (clause 4).
        let pushed = self.with_list(|l, _| unsafe { l.replace(layout, links, by) });
        item.set_home(ptr::null_mut());
        Some(pushed)
    }

    /// Gives up one reference on `one`, and if it was the last one, also the reference that `one`
    /// counts on its `forward`.
    ///
    /// # Safety
    ///
    /// `one` counts a reference that the caller gives up, and this is the effective list of `one`.
    #[inline]
    pub(super) unsafe fn put(&mut self, one: *const ListLruOne) {
        // SAFETY: `one` still counts the reference that is given up (this function's clause), so it
        // is not retired.
        let this = unsafe { &*one };
        // SAFETY: `refs` is guarded by the lock of the effective list (invariant 3), which `self`
        // holds (this function's clause).
        let left = this.refs.with(|r| unsafe { *r }) - 1;
        // SAFETY: `refs` is guarded by the lock of the effective list (invariant 3), which `self`
        // holds (this function's clause).
        this.refs.with_mut(|r| unsafe { *r = left });
        if left == 0 {
            // SAFETY: `refs` is 0 now, and `self` holds the lock of the effective list of `one`
            // (this function's clause).
            self.released = unsafe { Self::release(one, self.released) };
        }
    }

    /// Prepends `one` to `released`, gives up the reference that it counts on its `forward`, and
    /// repeats this for each `forward` whose last reference that was. Returns the new head.
    /// `released` is passed and returned by value: a `&mut` to it would force the whole lock guard
    /// into memory, also on the paths that release nothing.
    ///
    /// # Safety
    ///
    /// The `refs` of `one` are 0, and the lock of its effective list is held.
    #[cold]
    #[inline(never)]
    unsafe fn release(mut one: *const ListLruOne, mut released: *const ListLruOne) -> *const ListLruOne {
        loop {
            // SAFETY: only the thread that releases a list retires it, and this thread does so
            // later, on unlock.
            let this = unsafe { &*one };
            // A model check must fail here, not by an access to memory that is freed while the
            // table holds it.
            #[cfg(lowwater_loom)]
            // SAFETY: the state of a dead list is final; if it is not dead, it is the effective
            // list itself, whose lock is held (this function's clause).
            assert!(
                this.state.with(|s| unsafe { *s }) >= ListState::DEAD,
                "the last reference to a live list is the table's"
            );
            // SAFETY: the list is dead, since otherwise the table's reference would be left; the
            // `forward` of a dead list never changes.
            let forward = this.chain.next.with(|next| unsafe { *next });
            // SAFETY: `refs` is 0, so this thread owns the list alone (invariant 3).
            this.chain.prev.with_mut(|prev| unsafe { *prev = released.cast_mut() });
            released = one;
            if forward.is_null() {
                return released;
            }
            // SAFETY: it counts a reference for the list that forwards to it, which is given up
            // only below, so it is not retired.
            let next = unsafe { &*forward };
            // SAFETY: the effective list of `forward` is that of `one`, whose lock is held (this
            // function's clause).
            let left = next.refs.with(|r| unsafe { *r }) - 1;
            // SAFETY: the effective list of `forward` is that of `one`, whose lock is held (this
            // function's clause).
            next.refs.with_mut(|r| unsafe { *r = left });
            if left != 0 {
                return released;
            }
            one = forward;
        }
    }

    /// Moves all items of `child` here, in order, and marks `child` dead. The items of a child
    /// group's list go to the cold end (L9), those of a shard to the young end.
    ///
    /// The child's group must be dying, or the shard be out of the table. `child` is on no chain
    /// any more, and has counted as one of this list's `refs` since it was published.
    pub(super) fn take_over(&mut self, child: &mut LockedList<'_>) -> FirstItem {
        let moved = child.one.nr_items();
        let had = self.one.nr_items();
        let is_shard = child.state() == ListState::SHARD;
        child.with_list(|from, layout| {
            self.with_list(|to, _| {
                if is_shard {
                    // SAFETY: the locks of both lists are held, and both have the same layout.
                    unsafe { to.splice_back(layout, from) };
                } else {
                    // SAFETY: the locks of both lists are held, and both have the same layout.
                    unsafe { to.splice_front(layout, from) };
                }
            });
        });
        // Joining three lists of `ITEMS_MAX` items exceeds the range of the count, which is too low
        // from then on. Memory safety depends on `refs` only, which has 64 bits.
        self.set_nr_items(had.saturating_add(moved));
        if moved != 0 {
            // SAFETY: a `ListLru` that drops waits for the `reparenting` lock of a group that goes
            // offline, or is itself the caller, so the head is live.
            unsafe { &*self.one.owner() }.note_move();
        }
        child.set_nr_items(0);
        if moved != 0 && self.state() == ListState::IDLE {
            self.set_state(ListState::LIVE);
        }
        // INVARIANT 3: until now `child` counted as a child's list; from here on it counts as a
        // list that forwards here.
        child.kill(self.one);
        FirstItem(had == 0 && moved != 0)
    }

    /// Injects a fault for a model check: the next decrement of this list's count has its effect on
    /// `parent`'s count.
    #[cfg(lowwater_loom)]
    pub(super) fn move_count_to(&mut self, parent: &ListLruOne) {
        self.set_nr_items(self.one.nr_items().wrapping_add(1));
        parent.nr_items.store(parent.nr_items().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Marks the list dead, with `forward` as its successor. The list must be empty and on no
    /// chain.
    pub(super) fn kill(&mut self, forward: *const ListLruOne) {
        self.set_state(if self.state() == ListState::SHARD { ListState::DEAD_SHARD } else { ListState::DEAD });
        // SAFETY: the list is on no chain, so from here on `next` is `forward`, guarded by the lock
        // that `self` holds.
        self.one.chain.next.with_mut(|next| unsafe { *next = forward.cast_mut() });
    }

    /// Panics unless invariant 1 holds and the list is split exactly if `shards` is true.
    pub(super) fn assert_valid_with(&mut self, shards: bool) {
        assert_eq!(self.is_split(), shards, "a list's state must be `SPLIT` if and only if the table has shards of it");
        self.assert_valid();
    }

    /// Panics unless invariant 1 holds.
    pub(super) fn assert_valid(&mut self) {
        let n = self.one.nr_items() as usize;
        // SAFETY: the list's lock is held.
        self.with_list(|list, layout| unsafe { list.assert_valid(layout, n) });
        if self.is_dead() {
            assert_eq!(n, 0, "a dead list must be empty");
        }
    }
}

/// The state in which a sweep finds a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idleness {
    /// The list has items, is split, a shard or dead; or it was marked, and a child's list or a
    /// `Prepared` has a reference on it.
    Busy,
    /// The list is empty, and was not marked yet; the sweep has marked it now.
    Marked,
    /// The list was marked by an earlier sweep, is still empty, and only the table has a reference
    /// on it.
    Idle,
}

/// Whether the list went from empty to non-empty.
#[must_use]
pub(super) struct FirstItem(pub(super) bool);

impl Drop for LockedList<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` holds the lock.
        unsafe { self.one.lock.unlock() };
        if !self.released.is_null() {
            Self::retire_released(self.released, self.guard);
        }
    }
}

impl LockedList<'_> {
    /// Retires the lists on the chain `released`, whose last reference was given up under a lock
    /// that is released by now, and releases their groups' handles.
    #[cold]
    #[inline(never)]
    fn retire_released(mut released: *const ListLruOne, guard: &Guard) {
        while !released.is_null() {
            // SAFETY: `refs` is 0, so this thread owns the list alone (invariant 3).
            let one = unsafe { &*released };
            // SAFETY: `refs` is 0, so this thread owns the list alone (invariant 3).
            let next = one.chain.prev.with(|prev| unsafe { *prev });
            // Release the group's handle now and not a grace period later, so that the group's id
            // can be reused at once.
            // SAFETY: a list is released and retired once; readers that still find it, dead,
            // compare only the group's address.
            unsafe { one.memcg.release() };
            // SAFETY: `refs` is 0, so this thread owns the list alone (invariant 3).
            if one.state.with(|s| unsafe { *s }) == ListState::DEAD_SHARD {
                // SAFETY: the shard left the table with its set, and no item names it as home, so
                // no new reader finds it; its state says that it is a shard, so it came from the
                // box of a `Shard`.
                unsafe { guard.retire(Shard::of(released)) };
            } else {
                // Use the pointer with the box's provenance: homes and forwards derive from
                // references, through which the allocation must not be freed.
                let one = ptr::with_exposed_provenance_mut::<ListLruOne>(released.addr());
                // SAFETY: the list left the table, and no item names it as home, so no new reader
                // finds it; it came from a box.
                unsafe { guard.retire(one) };
            }
            released = next;
        }
    }
}
