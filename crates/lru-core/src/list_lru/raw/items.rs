//! Adding, finding and removing items.
//!
//! Numbers such as R3 are those of docs/INVARIANTS.md.
//!
//! The group passed to `add` decides only where the search for a list begins: the item goes to the
//! list of the nearest group that is not dying and whose list exists or can be created. The item's
//! home records that list. A change must ensure that a removal goes by the home and never by the
//! group, and that the listener is called with the group of the list that the item is on (R3).
//!
//! The parameter `UNIQUE` of the adds says that no other thread can reach the object.
//! `mutated!("name")` leaves one step out, or adds a bug, in a model check (docs/ORDERINGS.md).

use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::locked::LockedList;
use super::super::table::Pair;
use super::refused::Refused;
use super::RawListLru;
use crate::list::{Hook, LinkLayout, LinkNode, LinkRef};
use crate::rcu::{pin, Guard};
use crate::{Memcg, NodeId};
use core::ptr::{self, NonNull};

impl RawListLru {
    /// Adds an object at the young end of its group's list.
    ///
    /// # Safety
    ///
    /// The caller owns the object, and `layout` is that of these lists.
    #[inline]
    pub(in super::super) unsafe fn add<const UNIQUE: bool>(
        &self,
        object: LinkNode,
        layout: &'static LinkLayout,
        (memcg, node): (&Memcg, NodeId),
        guard: &Guard,
    ) -> Result<(), Refused> {
        let one = match self.lookup(Key::new(memcg, node), guard) {
            Some(Pair::ListLruOne(one)) => Some(one),
            Some(Pair::ShardSet(split)) => Some(split.own_shard()),
            None => None,
        };
        let mut missed = false;
        if let Some(one) = one {
            match one.try_lock(guard) {
                Some(list) if !list.is_dead() => {
                    // SAFETY: both are this function's clause.
                    return unsafe { self.add_to::<UNIQUE>(list, object, layout) }.map(drop);
                }
                Some(_dead) => {}
                None => missed = true,
            }
        }
        // SAFETY: the caller owns the object (this function's clause).
        unsafe { self.add_slow::<UNIQUE>(object, memcg, node, missed, guard) }
    }

    /// Takes the slow path of `add`: the list does not exist (any more), or its lock is taken
    /// (`missed`).
    ///
    /// # Safety
    ///
    /// The caller owns the object.
    #[cold]
    #[inline(never)]
    unsafe fn add_slow<const UNIQUE: bool>(
        &self,
        object: LinkNode,
        memcg: &Memcg,
        node: NodeId,
        missed: bool,
        guard: &Guard,
    ) -> Result<(), Refused> {
        // SAFETY: the caller owns the object, so it is live.
        let list = self.lock_to_add(Some(unsafe { object.at.as_ref() }), memcg, node, missed, guard)?;
        #[cfg(lowwater_loom)]
        if crate::mutated!("bit_of_the_passed") && *list.memcg() != *memcg {
            return self.add_and_announce_for(memcg, list, object);
        }
        let layout = list.layout();
        // SAFETY: the caller owns the object (this function's clause); the layout is the list's.
        unsafe { self.add_to::<UNIQUE>(list, object, layout) }.map(drop)
    }

    /// Adds an object as [`add`](Self::add) does, and takes it off again if `stays` returns false,
    /// which is called once the object is on the list, under the list's lock. Returns the reference
    /// by which the object was pushed if it was taken off.
    ///
    /// # Safety
    ///
    /// The caller owns the object.
    pub(in super::super) unsafe fn add_if<const UNIQUE: bool>(
        &self,
        object: LinkNode,
        (memcg, node): (&Memcg, NodeId),
        guard: &Guard,
        stays: impl FnOnce() -> bool,
    ) -> Result<Option<LinkRef>, Refused> {
        // SAFETY: the caller owns the object, so it is live.
        let list = self.lock_to_add(Some(unsafe { object.at.as_ref() }), memcg, node, false, guard)?;
        let layout = list.layout();
        // SAFETY: the caller owns the object (this function's clause); the layout is the list's.
        let list = unsafe { self.add_to::<UNIQUE>(list, object, layout) }?;
        match stays() {
            true => Ok(None),
            false => Ok(Some(self.take_off(list, object.at, guard))),
        }
    }

    /// Adds an object to a locked list, and reports the list if it was empty. Returns the list,
    /// still locked. `layout` is a constant, where the caller knows the type of the object.
    ///
    /// # Safety
    ///
    /// The caller owns the object, and `layout` is that of the list.
    // `inline(always)`: as a call, `list` would be passed in memory, and the lock word be reloaded
    // before it is written, which costs more than all the rest.
    #[inline(always)]
    unsafe fn add_to<'a, const UNIQUE: bool>(
        &self,
        mut list: LockedList<'a>,
        object: LinkNode,
        layout: &'static LinkLayout,
    ) -> Result<LockedList<'a>, Refused> {
        // SAFETY: the caller owns the object, so it is live.
        let hook = unsafe { object.at.as_ref() };
        if !hook.claim(list.one().as_home(), UNIQUE) {
            return Err(Refused::Linked);
        }
        let Some(first) = list.count_in() else {
            hook.set_home(ptr::null_mut());
            return Err(Refused::Full);
        };
        // SAFETY: the lock is held, and by the claim the links are on no other list; the list owns
        // the object from here on. `layout` is the list's (this function's clause).
        list.with_list(|l, _| unsafe { l.push_back(layout, object) });
        self.announce(first, &list);
        Ok(list)
    }

    /// Injects the bug of R3, which Linux had from 4.19 to 7.1: reports the group that was passed,
    /// not the one whose list it is.
    #[cfg(lowwater_loom)]
    fn add_and_announce_for(&self, passed: &Memcg, mut list: LockedList<'_>, object: LinkNode) -> Result<(), Refused> {
        // SAFETY: the caller owns the object, so it is live.
        assert!(unsafe { object.at.as_ref() }.claim(list.one().as_home(), false));
        let _first = list.count_in();
        // SAFETY: the lock is held, and by the claim the links are on no other list.
        list.with_list(|l, layout| unsafe { l.push_back(layout, object) });
        self.occupancy.iter().for_each(|occupancy| occupancy.occupied(passed, list.one().node()));
        Ok(())
    }

    /// Adds an object that is on the caller's private list, from which `take` removes it. Returns
    /// false, and removes nothing, if `list` is full.
    pub(in super::super) fn add_private(
        &self,
        list: &mut LockedList<'_>,
        object: LinkNode,
        take: impl FnOnce() -> Option<LinkNode>,
    ) -> bool {
        let Some(first) = list.count_in() else { return false };
        let taken = take();
        debug_assert!(taken.is_some_and(|taken| taken.by == object.by), "the first is taken");
        // SAFETY: the caller owned the object, and this list owns it from here on, so it is live.
        unsafe { object.at.as_ref() }.set_home(list.one().as_home());
        // SAFETY: the lock is held, and `take` removed the links from the list they were on.
        list.with_list(|l, layout| unsafe { l.push_back(layout, object) });
        self.announce(first, list);
        true
    }

    /// As [`lock_home`](Self::lock_home), with no list held, and with the common case inline: the
    /// list is the object's home, and nothing changes meanwhile.
    #[inline]
    pub(in super::super) fn lock_list_of<'a>(&self, links: &Hook, guard: &'a Guard) -> Option<LockedList<'a>> {
        let home = self.home_of(links)?;
        // SAFETY: an item's home is not retired while the item is on a list, and `guard` keeps this
        // thread in the read side, entered before the home was loaded.
        let list = unsafe { &*home }.lock(guard);
        if !list.is_dead() && ptr::eq(links.home().cast(), home) {
            return Some(list);
        }
        drop(list);
        self.lock_home(links, None, guard)
    }

    /// Locks the list that an object is on, if that list belongs to this `ListLru`. Returns `held`
    /// if `held` is the object's home, and unlocks it otherwise.
    pub(in super::super) fn lock_home<'a>(
        &self,
        links: &Hook,
        mut held: Option<LockedList<'a>>,
        guard: &'a Guard,
    ) -> Option<LockedList<'a>> {
        loop {
            if let Some(list) = held.take() {
                if list.one().as_home() == links.home() {
                    return Some(list);
                }
            }
            let home = self.home_of(links)?;
            // SAFETY: an item's home is not retired while the item is on a list, and `guard` keeps
            // this thread in the read side, entered before the home was loaded.
            let one = unsafe { &*home };
            let list = match crate::mutated!("home_without_forward") {
                true => one.lock(guard),
                false => Self::lock_effective_of(one, guard),
            };
            if ptr::eq(links.home().cast(), home) {
                return Some(list);
            }
            // Another thread removed the object meanwhile, or added it elsewhere: retry.
        }
    }

    /// Unlinks an object if it is on a list of this `ListLru`, and returns the reference by which
    /// it was pushed.
    ///
    /// # Safety
    ///
    /// The links are those of a live object.
    #[inline]
    pub(in super::super) unsafe fn del(&self, links: NonNull<Hook>) -> Option<LinkRef> {
        let guard = pin();
        // SAFETY: the object is live (this function's clause).
        let hook = unsafe { links.as_ref() };
        let list = self.lock_list_of(hook, &guard)?;
        Some(self.take_off(list, links, &guard))
    }

    /// Returns the home of an object, if it is a list of this `ListLru`. The caller is in the read
    /// side.
    #[inline]
    fn home_of(&self, links: &Hook) -> Option<*const ListLruOne> {
        let home = links.home();
        if home.is_null() || home == Hook::PRIVATE {
            return None;
        }
        let home: *const ListLruOne = home.cast_const().cast();
        // SAFETY: an item's home is not retired while the item is on a list, and the caller is in
        // the read side since before it was loaded.
        let owner = unsafe { &*home }.owner();
        ptr::eq(owner, self.as_owner()).then_some(home)
    }

    /// Unlinks an object that is on `list`.
    #[inline(always)] // As a call, `list` would be passed in memory, as for `add_to`.
    fn take_off(&self, mut list: LockedList<'_>, links: NonNull<Hook>, _guard: &Guard) -> LinkRef {
        #[cfg(lowwater_loom)]
        if crate::mutated!("count_of_the_parent") && !list.memcg().is_online() {
            // Injects a bug that Linux had until 5.16: the group's id already refers to the parent,
            // so the parent's count is lowered although the item is still on this list.
            if let Some(parent) = self.parent_of(&list.memcg(), list.one().node(), _guard) {
                list.move_count_to(parent);
            }
        }
        // SAFETY: by invariant 2 of `ListLruOne` the item is on this list, and we hold the list's
        // lock.
        unsafe { list.unlink(links, ptr::null_mut()) }
    }
}
