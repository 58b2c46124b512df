//! The list of one group on one node: its lock, its items, its count. 64 bytes.
//!
//! ```text
//!     published --(reparent, sweep or list drop: drained, Dead)--> dead --(unpublished, last reference gone)--> retired
//! ```
//!
//! A list for which threads contend gets [parts](super::split) beside it, which are lists of the same kind. For what is said
//! here a part is a child's list, and the list that was split its parent's.
//!
//! # Invariants
//!
//! 1. While not dead, `nr_items` is the number of items on `list`. Dead: `list` is empty, `nr_items` is 0, and
//!    `forward` leads to the parent group's list, or from a part to the list it is a part of, which took the items over (and
//!    may be dead by now, too). (L1)
//! 2. An item whose home this is lies on [`effective`](super::RawListLru::lock_effective_of) of this: on this while it is not
//!    dead, else on what the chain of forwards ends in. So the lock of the effective list guards such an item's links.
//! 3. `refs` (64 bits, so that no number of handles that are forgotten makes it wrap) is 1 while
//!    the table holds this (a part: while its [`Split`](super::Split) is in the table), plus the
//!    items whose home this is, plus the lists of child groups and the parts that are in the table
//!    or forward to this and are not retired, plus the [`Prepared`](super::Prepared) for it. It is
//!    guarded by the lock of the effective list.
//! 4. `memcg` is not given up while `refs` is not 0. A list that is not dead has one, as the table
//!    holds it or it was not published.
//! 5. `node` and the address of the group, by which it is found, never change. They name this group
//!    alone for as long as this is in the table, which counts in `refs`; ids do not, as groups of
//!    another tree have the same.

use super::pairs::ChainLinks;
use super::split::Part;
use super::RawListLru;
use crate::list::{Hook, Node, RawList, Ref, Shape};
use crate::memcg::{HeldMemcg, MemcgId};
use crate::rcu::{Guard, Queue, Queues, Retired};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::raw::RawLock;
use crate::sync::UnsafeCell;
use crate::{Memcg, NodeId};
use core::ptr::{self, NonNull};

/// Whose list, and on which node. The group's address tells it from all others, those of other
/// trees too; where a table looks first is computed from its id, as addresses would make the order
/// of a table another one in each run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) node: NodeId,
    /// The id's hash.
    pub(crate) spread: u16,
    pub(crate) id: MemcgId,
    /// See [`Memcg::addr`].
    pub(crate) group: usize,
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.group) == (other.node, other.group)
    }
}

impl Key {
    #[inline]
    pub(crate) fn new(memcg: &Memcg, node: NodeId) -> Self {
        Self { node, spread: memcg.spread(), id: memcg.id(), group: memcg.addr() }
    }
}

/// See the module.
pub(crate) struct One {
    lock: RawLock,
    state: UnsafeCell<State>,
    node: NodeId,
    nr_items: AtomicU32,
    refs: UnsafeCell<u64>,
    list: UnsafeCell<RawList>,
    memcg: HeldMemcg,
    /// Never changes; a cell only so that model checks see who reads it before it is published.
    owner: UnsafeCell<*const RawListLru>,
    /// Guarded by the group's [`Pairs`](super::Pairs) lock until dead. Afterwards `next` is `forward`, guarded by `lock`, and
    /// `prev` joins what was released, owned by who released it, and then what is retired.
    pub(super) chain: ChainLinks,
}

/// Where a list stands in its life, in one byte. Guarded by its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
struct State(u8);

impl State {
    /// In use, and no add had to wait for its lock since the last sweep.
    const LIVE: Self = Self(0);
    /// In use, and so many adds had to wait since the last sweep that it is to be split. What is between the two counts them.
    const CONTENDED: Self = Self(64);
    /// A sweep found it empty, and since then nothing was added: the next sweep gives it back.
    const IDLE: Self = Self(65);
    /// In use, with parts beside it.
    const SPLIT: Self = Self(66);
    /// A part, in use.
    const PART: Self = Self(67);
    /// Its items are the parent's, for good.
    const DEAD: Self = Self(68);
    /// A part, whose items are for good on the list it is a part of.
    const DEAD_PART: Self = Self(69);
}

// SAFETY: every cell is guarded by a lock that its invariant names; `owner` is a list that outlives
// its published parts; `memcg` is a handle, which may be sent, and whose address never changes.
unsafe impl Send for One {}
// SAFETY: as for Send.
unsafe impl Sync for One {}

impl Retired for One {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.chain.prev
    }

    fn queue(queues: &mut Queues) -> &mut Queue<Self> {
        &mut queues.ones
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: it is live, says the caller.
        unsafe { &(*this).owner }.with_mut(|_| ());
    }
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom), feature = "std"))]
const _: () = assert!(size_of::<One>() == 64, "a list of one group on one node costs 64 bytes (DESIGN: cost table)");

/// More items than this on one list are refused: two full lists can still be joined without the count overflowing.
pub(super) const ITEMS_MAX: u32 = u32::MAX / 2;

impl One {
    pub(super) fn new(memcg: &Memcg, node: NodeId, owner: *const RawListLru) -> Self {
        Self {
            lock: RawLock::new(),
            state: UnsafeCell::new(State::LIVE),
            node,
            nr_items: AtomicU32::new(0),
            refs: UnsafeCell::new(1),
            list: UnsafeCell::new(RawList::new()),
            memcg: HeldMemcg::new(memcg.clone()),
            owner: UnsafeCell::new(owner),
            chain: ChainLinks::new(),
        }
    }

    /// A part of the list of this group on this node.
    pub(super) fn new_part(memcg: &Memcg, node: NodeId, owner: *const RawListLru) -> Self {
        let mut part = Self::new(memcg, node, owner);
        part.state = UnsafeCell::new(State::PART);
        part
    }

    #[inline]
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Is this the list, or a part of the list, that the key names? For what is found in a table.
    #[inline]
    pub(super) fn is_of(&self, key: Key) -> bool {
        (self.node, self.memcg.addr()) == (key.node, key.group)
    }

    /// Under which it is in the table.
    ///
    /// # Safety
    ///
    /// As for [`memcg_of_published`](Self::memcg_of_published).
    pub(super) unsafe fn key_of_published(&self) -> Key {
        // SAFETY: the clause is the same.
        Key::new(unsafe { self.memcg_of_published() }, self.node)
    }

    /// The list this is a part of.
    #[inline]
    pub(super) fn owner(&self) -> *const RawListLru {
        // SAFETY: nobody writes it after `new`.
        self.owner.with(|owner| unsafe { *owner })
    }

    /// How many items are on it, without the lock.
    #[inline]
    pub(super) fn nr_items(&self) -> u32 {
        // Relaxed: a count is old when it arrives. A caller that must not miss an item brings the fence (see `Occupancy`).
        self.nr_items.load(Ordering::Relaxed)
    }

    /// Waits for the lock.
    #[inline]
    pub(super) fn lock<'a>(&'a self, guard: &'a Guard) -> Locked<'a> {
        #[cfg(lowwater_loom)]
        self.owner(); // So that a model checker knows that it is read from here on.
        self.lock.lock();
        Locked { one: self, released: ptr::null(), guard }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock<'a>(&'a self, guard: &'a Guard) -> Option<Locked<'a>> {
        #[cfg(lowwater_loom)]
        self.owner(); // As in `lock`.
        self.lock.try_lock().then(|| Locked { one: self, released: ptr::null(), guard })
    }

    /// The group, for who knows that this is published.
    ///
    /// # Safety
    ///
    /// For as long as the answer is used this is in its owner's table, because the caller holds the
    /// writer lock of the owner; or a part of what is there.
    #[inline]
    pub(super) unsafe fn memcg_of_published(&self) -> &Memcg {
        // SAFETY: the table counts in `refs` (invariant 3), so the handle is not given up
        // (invariant 4).
        unsafe { self.memcg.get() }
    }
}

impl Drop for One {
    /// Of one that was not published. Else it is dead by now, and the handle was given up when it
    /// was released.
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        if self.state.with(|s| unsafe { *s }) < State::DEAD {
            // SAFETY: only `retire_released` gives it up, of dead ones.
            unsafe { self.memcg.release() };
        }
    }
}

/// A list whose lock is held; given back on drop. What the last item of a dead list released is retired after that.
pub(crate) struct Locked<'a> {
    one: &'a One,
    /// Dead lists whose `refs` came to 0, joined by `chain.prev`.
    released: *const One,
    guard: &'a Guard,
}

impl<'a> Locked<'a> {
    #[inline]
    pub(super) fn one(&self) -> &'a One {
        self.one
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.state() >= State::DEAD
    }

    /// Are there parts beside it?
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.state() == State::SPLIT
    }

    /// Counts that an add had to wait for the lock; says whether the list is to be split now.
    pub(super) fn count_miss(&mut self) -> bool {
        let state = self.state();
        if state >= State::CONTENDED {
            return false;
        }
        let state = State(state.0 + 1);
        let is_due = state == State::CONTENDED;
        // Whether that comes off or not, the next try is as many waits away.
        self.set_state(if is_due { State::LIVE } else { state });
        is_due
    }

    /// Begins to count anew how many had to wait.
    pub(super) fn forget_misses(&mut self) {
        if self.state() < State::CONTENDED {
            self.set_state(State::LIVE);
        }
    }

    /// From here on there are so many parts beside it, each of which counts on it. Not for dead ones.
    pub(super) fn begin_parts(&mut self, parts: usize) {
        if !crate::mutated!("parts_uncounted") {
            (0..parts).for_each(|_| self.get());
        }
        self.set_state(State::SPLIT);
    }

    /// Its last part was taken over.
    pub(super) fn end_parts(&mut self) {
        self.set_state(State::LIVE);
    }

    #[inline]
    fn state(&self) -> State {
        // SAFETY: the lock is held.
        self.one.state.with(|s| unsafe { *s })
    }

    #[inline]
    fn set_state(&mut self, state: State) {
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
    pub(super) fn forward(&self) -> *const One {
        debug_assert!(self.is_dead(), "only a dead list forwards");
        // SAFETY: a dead list is on no chain, so its `next` is its `forward`, written under this lock.
        self.one.chain.next.with(|next| unsafe { (*next).cast_const() })
    }

    /// The shape of the links on it.
    #[inline]
    pub(super) fn shape(&self) -> &'static Shape {
        // SAFETY: whoever has the lock of a list has its owner, or the chain of its group, which the owner waits for before it ends.
        unsafe { &*self.one.owner() }.shape()
    }

    #[inline]
    pub(super) fn with_list<R>(&mut self, f: impl FnOnce(&mut RawList, &'static Shape) -> R) -> R {
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
        if n == 0 && self.state() == State::IDLE {
            self.set_state(State::LIVE);
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
        if self.state() > State::IDLE || self.one.nr_items() != 0 {
            return Idleness::Busy;
        }
        if self.state() != State::IDLE {
            self.set_state(State::IDLE);
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
    pub(super) unsafe fn unlink(&mut self, links: NonNull<Hook>, to: *mut One) -> Ref {
        // SAFETY: the item is on this list, says the caller, so it is live.
        let hook = unsafe { links.as_ref() };
        let home = hook.home();
        // SAFETY: as above, and the lock is held.
        let pushed = self.with_list(|l, shape| unsafe { l.remove(shape, links) });
        hook.set_home(to);
        // The object may be gone from here on, unless the caller takes it over by what it gets.
        self.set_nr_items(self.one.nr_items().wrapping_sub(1));
        // SAFETY: `home` counted the item until now, and this is its effective list (invariant 2).
        unsafe { self.put(home) };
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
            unsafe { l.push_back(shape, Node { at, by }) };
        });
    }

    /// Puts an object in an item's place, and counts it where that one was counted. Returns what that one was added as;
    /// `None` if the object is on a list already.
    ///
    /// # Safety
    ///
    /// The item is on this list, which owns the object from now on, by this pointer. `unique`: the caller alone can reach it.
    pub(super) unsafe fn replace(&mut self, links: NonNull<Hook>, by: Node, unique: bool) -> Option<Ref> {
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
    pub(super) unsafe fn put(&mut self, one: *const One) {
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
    unsafe fn release(mut one: *const One, mut released: *const One) -> *const One {
        loop {
            // SAFETY: it is retired only by who releases it, and that is us.
            let this = unsafe { &*one };
            // A model check shall end here, not in memory that was freed under the table.
            #[cfg(lowwater_loom)]
            // SAFETY: its state is final if it is dead; else it is the effective list, whose lock is held.
            assert!(
                this.state.with(|s| unsafe { *s }) >= State::DEAD,
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
    pub(super) fn take_over(&mut self, child: &mut Locked<'_>) -> FirstItem {
        let moved = child.one.nr_items();
        let had = self.one.nr_items();
        let is_part = child.state() == State::PART;
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
        if moved != 0 && self.state() == State::IDLE {
            self.set_state(State::LIVE);
        }
        // INVARIANT 3: it counted as a child's list, and counts as a forward from here on.
        child.kill(self.one);
        FirstItem(had == 0 && moved != 0)
    }

    /// For a fault: what is counted off here next is counted off there.
    #[cfg(lowwater_loom)]
    pub(super) fn move_count_to(&mut self, parent: &One) {
        self.set_nr_items(self.one.nr_items().wrapping_add(1));
        parent.nr_items.store(parent.nr_items().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Marks this dead; it must be empty, and on no chain any more.
    pub(super) fn kill(&mut self, forward: *const One) {
        self.set_state(if self.state() == State::PART { State::DEAD_PART } else { State::DEAD });
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

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the lock is held.
        unsafe { self.one.lock.unlock() };
        if !self.released.is_null() {
            Self::retire_released(self.released, self.guard);
        }
    }
}

impl Locked<'_> {
    #[cold]
    #[inline(never)]
    fn retire_released(mut released: *const One, guard: &Guard) {
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
            if one.state.with(|s| unsafe { *s }) == State::DEAD_PART {
                // SAFETY: as below; by its state it is a part.
                unsafe { guard.retire(Part::of(released)) };
            } else {
                // As the box gave it: homes and forwards are made from references, through which nothing may be freed.
                let one = ptr::with_exposed_provenance_mut::<One>(released.addr());
                // SAFETY: it left the table and no item names it as home, so no new reader finds it; it came from a box.
                unsafe { guard.retire(one) };
            }
            released = next;
        }
    }
}
