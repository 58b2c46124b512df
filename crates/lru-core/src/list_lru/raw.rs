//! The machine behind [`ListLru`](super::ListLru): everything that does not know the type of the items.
//!
//! ```text
//!     Table: (group, node) -> One      read without a lock; published and unpublished under `writer`
//!     Memcg::pairs: group -> its Ones  the same Ones, for the group's end
//! ```
//!
//! Lock order: the caller's own locks, a group's `pairs`, `writer`, a list's lock, its parts' (one at a time), an ancestor's list's
//! lock. Whoever listens ([`Occupancy`]) is called under a list's lock, so its locks come last.
//!
//! # A group dies while somebody adds to it (R1, R2)
//!
//! ```text
//!     offline                              add, del, walk
//!       close the group's chain              find the One, or publish one if the chain is open
//!       lock the One and its parent's        lock it
//!       move the items, mark it dead         dead? go on with the parent's (add), or with `forward` (del)
//!       unpublish it                         not found? go on with the parent's
//! ```
//!
//! It is drained and marked dead before it is unpublished. So whoever finds it locks it and either comes before the drain, or
//! sees the mark; and whoever does not find it any more finds everything at the parent's already.
//!
//! Where a list has [parts](super::split), its lock is held until they are empty, too.
//!
//! # A sweep gives an empty list back while somebody adds to it
//!
//! ```text
//!     sweep                                add
//!       lock the writer, and the One         find the One, lock it
//!       empty, and counted on by nobody?
//!       mark it dead, take it out            dead, and the group is online? look again: it is out by now
//!       unlock both                          not found? publish one, with the writer locked
//! ```
//!
//! A dead list means "its group died" or "it was idle". The group's own state tells which: it is dying before its first list
//! is drained. A child's list counts as a reference on its parent's from the moment it is published, under the writer lock;
//! so what a sweep takes out has no child, and ancestors are there for as long as they are needed (L6).

mod making;
mod splitting;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub(crate) use making::reparent_group;
pub(super) use splitting::Round;

use super::one::{FirstItem, Key, Locked};
use super::table::{Pair, Table, TableRef};
use super::{Occupancy, One, Split};
use crate::list::{Hook, Node, Ref, Shape};
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{fence, AtomicPtr, AtomicU32, Ordering};
use crate::sync::{Arc, Mutex};
use crate::{Memcg, NodeId};
use alloc::vec::Vec;
use core::ptr::{self, NonNull};

/// See the module.
pub(crate) struct RawListLru {
    table: AtomicPtr<Table>,
    writer: Mutex<Writer>,
    /// How often items went from one of the lists to another, all at once: for `count_node`.
    moves: AtomicU32,
    /// The split whose parts are emptied now, when the slot leads to its list already; or null.
    /// Changes under the writer lock.
    ending: AtomicPtr<Split>,
    occupancy: Option<Arc<dyn Occupancy>>,
    /// Of the links of all items.
    shape: &'static Shape,
}

/// What only writers of the table need to know.
struct Writer {
    /// Lists in the table.
    live: u32,
    /// Slots that are not null: lists, and marks of lists that went.
    used: u32,
    /// Lists that have parts.
    split: u32,
}

impl Writer {
    /// The capacity of a table with room for one more; `None` when there are more lists than can be counted.
    fn capacity_needed(&self) -> Option<usize> {
        (self.live < PAIRS_MAX).then(|| Table::capacity_for(self.live as usize + 1))
    }

    fn has_room(&self, table: TableRef<'_>) -> bool {
        (self.used as usize) < Table::used_max(table.capacity())
    }
}

/// More (group, node) lists than this are refused as memory would be. Their table alone would take 8 GiB.
const PAIRS_MAX: u32 = 1 << 29;

/// Why there is no list of a group on a node.
#[derive(Debug)]
enum Unpopulated {
    /// The group is dying.
    Closed,
    /// There is no memory.
    NoMemory,
}

/// Why an item was not added.
pub(super) enum Refused {
    /// It is on a list already.
    Linked,
    /// There is no memory for the list, nor a populated ancestor.
    NoMemory,
    /// The list holds as many items as can be counted.
    Full,
}

impl RawListLru {
    pub(super) fn new(occupancy: Option<Arc<dyn Occupancy>>, shape: &'static Shape) -> Self {
        Self {
            table: AtomicPtr::new(ptr::null_mut()),
            writer: Mutex::new(Writer { live: 0, used: 0, split: 0 }),
            moves: AtomicU32::new(0),
            ending: AtomicPtr::new(ptr::null_mut()),
            occupancy,
            shape,
        }
    }

    #[inline]
    pub(super) fn shape(&self) -> &'static Shape {
        self.shape
    }

    /// Links an object at the end of its group's list.
    #[inline]
    pub(super) fn add<const UNIQUE: bool>(&self, object: Node, memcg: &Memcg, node: NodeId) -> Result<(), Refused> {
        let guard = pin();
        let one = match self.lookup(Key::new(memcg, node), &guard) {
            Some(Pair::One(one)) => Some(one),
            Some(Pair::Split(split)) => Some(split.here()),
            None => None,
        };
        let mut missed = false;
        if let Some(one) = one {
            match one.try_lock(&guard) {
                Some(list) if !list.is_dead() => return self.add_to::<UNIQUE>(list, object),
                Some(_dead) => {}
                None => missed = true,
            }
        }
        self.add_slow::<UNIQUE>(object, memcg, node, missed, &guard)
    }

    /// The list is not there, or not any more; or somebody has it.
    #[cold]
    #[inline(never)]
    fn add_slow<const UNIQUE: bool>(
        &self,
        object: Node,
        memcg: &Memcg,
        node: NodeId,
        missed: bool,
        guard: &Guard,
    ) -> Result<(), Refused> {
        // SAFETY: the caller owns the object.
        let list = self.lock_to_add(unsafe { object.at.as_ref() }, memcg, node, missed, guard)?;
        #[cfg(lowwater_loom)]
        if crate::mutated!("bit_of_the_passed") && *list.memcg() != *memcg {
            return self.add_and_announce_for(memcg, list, object);
        }
        self.add_to::<UNIQUE>(list, object)
    }

    // Always: handed over in memory, the lock would be read again before it is written, which costs more than all the rest.
    #[inline(always)]
    fn add_to<const UNIQUE: bool>(&self, mut list: Locked<'_>, object: Node) -> Result<(), Refused> {
        // SAFETY: the caller owns the object.
        let hook = unsafe { object.at.as_ref() };
        if !hook.claim(ptr::from_ref(list.one()).cast_mut(), UNIQUE) {
            return Err(Refused::Linked);
        }
        let Some(first) = list.count_in() else {
            hook.set_home(ptr::null_mut());
            return Err(Refused::Full);
        };
        // SAFETY: the lock is held, and by the claim the links are on no other list; the list owns the object from now on.
        list.with_list(|l, shape| unsafe { l.push_back(shape, object) });
        self.announce(first, &list);
        Ok(())
    }

    /// R3, as Linux had it from 4.19 to 7.1: tells of the group that was named, not of the one whose list it is.
    #[cfg(lowwater_loom)]
    fn add_and_announce_for(&self, passed: &Memcg, mut list: Locked<'_>, object: Node) -> Result<(), Refused> {
        // SAFETY: as in `add_to`.
        assert!(unsafe { object.at.as_ref() }.claim(ptr::from_ref(list.one()).cast_mut(), false));
        let _first = list.count_in();
        // SAFETY: as in `add_to`.
        list.with_list(|l, shape| unsafe { l.push_back(shape, object) });
        self.occupancy.iter().for_each(|occupancy| occupancy.occupied(passed, list.one().node()));
        Ok(())
    }

    /// Links an object that is private to the caller, and which `take` takes off its private list. `false`: it is full.
    pub(super) fn add_private(&self, list: &mut Locked<'_>, object: Node, take: impl FnOnce() -> Option<Node>) -> bool {
        let Some(first) = list.count_in() else { return false };
        let taken = take();
        debug_assert!(taken.is_some_and(|taken| taken.by == object.by), "the first is taken");
        // SAFETY: the caller owned the object, which this list owns from now on.
        unsafe { object.at.as_ref() }.set_home(ptr::from_ref(list.one()).cast_mut());
        // SAFETY: the lock is held, and the links were taken off the list they were on.
        list.with_list(|l, shape| unsafe { l.push_back(shape, object) });
        self.announce(first, list);
        true
    }

    /// The list on which an object is, if that is one of these: `held` if it is that one, or else locked now.
    pub(super) fn lock_home<'a>(
        &self,
        links: &Hook,
        mut held: Option<Locked<'a>>,
        guard: &'a Guard,
    ) -> Option<Locked<'a>> {
        loop {
            if let Some(list) = held.take() {
                if ptr::eq(list.one(), links.home()) {
                    return Some(list);
                }
            }
            let home = self.home_of(links)?;
            // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
            let one = unsafe { &*home };
            let list = match crate::mutated!("home_without_forward") {
                true => one.lock(guard),
                false => Self::lock_effective_of(one, guard),
            };
            if ptr::eq(links.home(), home) {
                return Some(list);
            }
            // Ask again: each turn somebody else got something done.
        }
    }

    /// Unlinks an object, if it is on one of these lists: what it was added as.
    ///
    /// # Safety
    ///
    /// The links are those of an object that is live.
    #[inline]
    pub(super) unsafe fn del(&self, links: NonNull<Hook>) -> Option<Ref> {
        let guard = pin();
        // SAFETY: live, says the caller.
        let hook = unsafe { links.as_ref() };
        let home = self.home_of(hook)?;
        // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
        let list = unsafe { &*home }.lock(&guard);
        if !list.is_dead() && ptr::eq(hook.home(), home) {
            return Some(self.take_off(list, links, &guard));
        }
        drop(list);
        self.del_slow(links, &guard)
    }

    /// It left, its list is dead, or it was added elsewhere before we had the lock.
    #[cold]
    #[inline(never)]
    fn del_slow(&self, links: NonNull<Hook>, guard: &Guard) -> Option<Ref> {
        // SAFETY: live, as in `del`.
        let list = self.lock_home(unsafe { links.as_ref() }, None, guard)?;
        Some(self.take_off(list, links, guard))
    }

    /// The home of an object, if that is one of these lists.
    #[inline]
    fn home_of(&self, links: &Hook) -> Option<*const One> {
        let home = links.home();
        if home.is_null() || home == Hook::PRIVATE {
            return None;
        }
        // SAFETY: an item's home is not retired while the item is on a list, and the caller is in the read side.
        let owner = unsafe { &*home }.owner();
        ptr::eq(owner, self).then_some(home.cast_const())
    }

    /// Unlinks an object that is on this list.
    #[inline(always)] // As `add_to`.
    fn take_off(&self, mut list: Locked<'_>, links: NonNull<Hook>, _guard: &Guard) -> Ref {
        #[cfg(lowwater_loom)]
        if crate::mutated!("count_of_the_parent") && !list.memcg().is_online() {
            // R6, as Linux had it until 5.16: the id is the parent's already, and so is the count that falls.
            if let Some(parent) = self.parent_of(&list.memcg(), list.one().node(), _guard) {
                list.move_count_to(parent);
            }
        }
        // SAFETY: by One's invariant 2 the item is on this list, whose lock we hold.
        unsafe { list.unlink(links, ptr::null_mut()) }
    }

    /// How many items the group's own list holds.
    pub(super) fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let guard = pin();
        let key = Key::new(memcg, node);
        loop {
            match self.lookup(key, &guard) {
                None => return 0,
                Some(Pair::One(one)) => return one.nr_items().into(),
                Some(Pair::Split(split)) => {
                    let n = split.nr_items();
                    if !self.has_ended(split, &guard) {
                        return n;
                    }
                }
            }
        }
    }

    /// How many items there are on a node. Items that go from one list to another meanwhile may be
    /// counted more than once, and are not missed (R11).
    ///
    /// ```text
    ///     items go over              a count
    ///       to: count up               moves
    ///       moves + 1                  each list, each part
    ///       from: count down           moves: another? again
    /// ```
    ///
    /// If a count misses items that left a list, they left it after the first load of `moves`: else
    /// that load would have made their new list's count visible. Then the second load sees the
    /// move.
    pub(super) fn count_node(&self, node: NodeId) -> u64 {
        let guard = pin();
        // Lock-free: a repetition means that a group's end, or the end of parts, got on.
        loop {
            // Acquire: meets the Release in `note_move`, so that the lists are seen with the items
            // of all moves up to this one.
            let moves = self.moves.load(Ordering::Acquire);
            let n = self.sum_of_node(node, &guard);
            // Acquire: between the counts and `moves`; meets the Release fence in `note_move`.
            fence(Ordering::Acquire);
            // Relaxed: ordered by the fence.
            if self.moves.load(Ordering::Relaxed) == moves || crate::mutated!("count_node_once") {
                return n;
            }
        }
    }

    fn sum_of_node(&self, node: NodeId, guard: &Guard) -> u64 {
        let Some(table) = self.table(guard) else { return 0 };
        // SAFETY: we are in the read side.
        let pairs = table.iter().map(|slot| unsafe { slot.pair() });
        let sum: u64 = pairs.filter(|pair| pair.whole().node() == node).map(Pair::nr_items).sum();
        // Acquire: meets the Release in `end_parts` either way: the split is seen as it was made;
        // or null, and the moves of its end.
        let ending = self.ending.load(Ordering::Acquire);
        // SAFETY: `end_parts` stores null before it retires the split, and we are in the read side.
        match unsafe { ending.as_ref() } {
            Some(split) if split.key().node == node && !crate::mutated!("ending_parts_uncounted") => {
                sum + split.parts().map(|part| u64::from(part.nr_items())).sum::<u64>()
            }
            _ => sum,
        }
    }

    /// Between the counts of a list that gets items and of the one they come from, whose lock is
    /// held.
    pub(super) fn note_move(&self) {
        let without = crate::mutated!("move_without_fence");
        // Release: meets the Acquire in `count_node`.
        self.moves.fetch_add(1, if without { Ordering::Relaxed } else { Ordering::Release });
        if !without {
            // Release: between `moves` and the count that falls; meets the Acquire fence in
            // `count_node`.
            fence(Ordering::Release);
        }
    }

    /// Makes the list to which `add` would add, and counts a reference on it. `None` without memory.
    pub(super) fn prepare(&self, memcg: &Memcg, node: NodeId) -> Option<NonNull<One>> {
        let guard = pin();
        let mut group = memcg;
        loop {
            match self.whole(Key::new(group, node), &guard) {
                Some(one) => {
                    let mut list = one.lock(&guard);
                    if !list.is_dead() {
                        list.get();
                        return Some(NonNull::from(one));
                    }
                    if group.is_online() && !crate::mutated!("swept_means_dying") {
                        continue; // It was idle, and is out of the table by now.
                    }
                }
                None => match self.populate(group, node, &guard) {
                    Ok(()) => continue,
                    Err(Unpopulated::NoMemory) => return None,
                    Err(Unpopulated::Closed) => {}
                },
            }
            group = group.parent().expect("the root is not dying");
        }
    }

    /// Gives up a reference that [`prepare`](Self::prepare) counted.
    pub(super) fn unprepare(&self, one: NonNull<One>) {
        let guard = pin();
        // SAFETY: it counts our reference, so it is not retired.
        let one = unsafe { one.as_ref() };
        let mut list = Self::lock_effective_of(one, &guard);
        // SAFETY: the reference is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    /// The groups that have a list on a node; as far as there is memory for them, which is asked for without the lock.
    pub(super) fn groups_on(&self, node: NodeId) -> Vec<Memcg> {
        let mut groups = Vec::new();
        loop {
            let all = self.pairs();
            let mut room = all;
            while groups.try_reserve_exact(room).is_err() {
                room /= 2;
            }
            // Before the lock: values that waited for their readers may be dropped where the guard
            // ends.
            let guard = pin();
            let writer = self.writer.lock();
            if room == all && groups.capacity() < writer.live as usize {
                continue; // Some have come meanwhile.
            }
            let on_node = self.wholes(&guard).filter(|one| one.node() == node).take(groups.capacity());
            // SAFETY: the writer lock is held, and `one` is in the table.
            groups.extend(on_node.map(|one| unsafe { one.memcg_of_published() }.clone()));
            return groups;
        }
    }

    /// Bytes of what this keeps beyond itself: lists and table.
    pub(super) fn bytes(&self) -> usize {
        let guard = pin();
        let writer = self.writer.lock();
        let parts = match writer.split {
            0 => 0,
            _ => self.splits(&guard).map(Split::bytes).sum(),
        };
        writer.live as usize * size_of::<One>() + self.table(&guard).map_or(0, TableRef::bytes) + parts
    }

    /// How many (group, node) lists exist.
    pub(super) fn pairs(&self) -> usize {
        self.writer.lock().live as usize
    }

    // === finding and locking ===

    #[inline]
    fn table<'a>(&self, _guard: &'a Guard) -> Option<TableRef<'a>> {
        // Acquire: meets the Release in `replace_table`, so that the array is seen filled.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: a published table is live in the read side.
        NonNull::new(table).map(|table| unsafe { TableRef::of(table) })
    }

    #[inline]
    fn lookup<'a>(&self, key: Key, guard: &'a Guard) -> Option<Pair<'a>> {
        // SAFETY: what the table holds is live in the read side.
        self.table(guard)?.get(key).map(|slot| unsafe { slot.pair() })
    }

    /// The list itself, with or without parts beside it.
    fn whole<'a>(&self, key: Key, guard: &'a Guard) -> Option<&'a One> {
        self.lookup(key, guard).map(Pair::whole)
    }

    /// All lists, without the parts.
    fn wholes<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a One> {
        // SAFETY: what the table holds is live in the read side.
        self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() }.whole())
    }

    fn splits<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a Split> {
        // SAFETY: as in `wholes`.
        let pairs = self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() });
        pairs.filter_map(|pair| match pair {
            Pair::Split(split) => Some(split),
            Pair::One(_) => None,
        })
    }

    /// The list to which an object of `memcg` goes: its own, made now if need be; else its nearest ancestor's. `missed`: the
    /// caller has found it taken already.
    pub(super) fn lock_to_add<'a>(
        &'a self,
        object: &Hook,
        memcg: &Memcg,
        node: NodeId,
        mut missed: bool,
        guard: &'a Guard,
    ) -> Result<Locked<'a>, Refused> {
        let mut group = memcg;
        let mut may_populate = true;
        loop {
            match self.lookup(Key::new(group, node), guard) {
                Some(pair) => {
                    let list = match pair {
                        Pair::One(one) => {
                            let mut list = one.lock(guard);
                            if core::mem::take(&mut missed) && list.count_miss() {
                                drop(list);
                                self.split(group, node, guard);
                                continue;
                            }
                            list
                        }
                        Pair::Split(split) if core::mem::take(&mut missed) => split.elsewhere().lock(guard),
                        Pair::Split(split) => split.here().lock(guard),
                    };
                    if !list.is_dead() {
                        return Ok(list);
                    }
                    if group.is_online() {
                        continue; // It was idle, or a part, and is out of the table by now.
                    }
                }
                // No list is made for an object that will not be on it.
                None if object.is_on_a_list() => return Err(Refused::Linked),
                None if may_populate => match self.populate(group, node, guard) {
                    Ok(()) => continue,
                    Err(Unpopulated::Closed) => {}
                    Err(Unpopulated::NoMemory) => may_populate = false,
                },
                None => {}
            }
            // Dying, or nothing to be had: the parent's list is where its items are, or where this one must do.
            group = group.parent().ok_or(Refused::NoMemory)?;
        }
    }

    /// The list on which the items are whose home is `one` (One's invariant 2). A dead list without a forward is its own: it
    /// was the root's, and nothing counts on it.
    pub(super) fn lock_effective_of<'a>(one: &'a One, guard: &'a Guard) -> Locked<'a> {
        Self::lock_effective_slow(one.lock(guard), guard)
    }

    #[cold]
    #[inline(never)]
    fn lock_effective_slow<'a>(mut list: Locked<'a>, guard: &'a Guard) -> Locked<'a> {
        while list.is_dead() && !list.forward().is_null() {
            // SAFETY: a dead list counts on what it forwards to until it is retired, and we entered the read side before that.
            let next = unsafe { &*list.forward() };
            drop(list);
            list = next.lock(guard);
        }
        list
    }

    /// The list of a published list's parent, which counts it (One's invariant 3); `None` for the root's.
    fn parent_of<'a>(&'a self, memcg: &Memcg, node: NodeId, guard: &'a Guard) -> Option<&'a One> {
        let parent = memcg.parent()?;
        let one = self.whole(Key::new(parent, node), guard);
        Some(one.expect("a populated group's parent is populated (L6)"))
    }

    #[inline]
    fn announce(&self, first: FirstItem, list: &Locked<'_>) {
        if let (FirstItem(true), Some(occupancy)) = (first, &self.occupancy) {
            occupancy.occupied(list.memcg(), list.one().node());
        }
    }

    /// Panics unless the structure holds together. Takes every lock, one after the other; for tests.
    pub(super) fn assert_valid(&self) {
        let guard = pin();
        let writer = self.writer.lock();
        let slots: Vec<_> = self.table(&guard).iter().flat_map(|table| table.iter()).collect();
        assert_eq!(
            slots.len(),
            writer.live as usize,
            "the table must hold as many lists as were published and not unpublished"
        );
        assert_eq!(self.table(&guard).is_none(), slots.is_empty(), "lists that are none must have no table");
        assert_eq!(self.splits(&guard).count(), writer.split as usize, "as many lists must have parts as were split");
        for slot in slots {
            // SAFETY: we are in the read side.
            let pair = unsafe { slot.pair() };
            let one = pair.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            let memcg = unsafe { one.memcg_of_published() };
            if let Some(parent) = memcg.parent() {
                let parent = self.lookup(Key::new(parent, one.node()), &guard);
                assert!(parent.is_some() || !memcg.is_online(), "a populated group's parent must be populated (L6)");
            }
            one.lock(&guard).assert_valid_with(matches!(pair, Pair::Split(_)));
            for part in pair.lists().skip(1) {
                assert!(
                    part.is_of(Key::new(memcg, one.node())) && part.owner() == one.owner(),
                    "a part must be of its list's group and node"
                );
                let mut part = part.lock(&guard);
                assert!(!part.is_dead(), "what the table holds must not be dead");
                part.assert_valid();
            }
        }
    }
}
