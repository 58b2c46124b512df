//! Adding, finding and removing items.

use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::locked::LockedList;
use super::super::table::Pair;
use super::refused::Refused;
use super::RawListLru;
use crate::list::{Hook, LinkNode, LinkRef};
use crate::rcu::{pin, Guard};
use crate::{Memcg, NodeId};
use core::ptr::{self, NonNull};

impl RawListLru {
    /// Links an object at the end of its group's list.
    #[inline]
    pub(in super::super) fn add<const UNIQUE: bool>(
        &self,
        object: LinkNode,
        memcg: &Memcg,
        node: NodeId,
    ) -> Result<(), Refused> {
        let guard = pin();
        let one = match self.lookup(Key::new(memcg, node), &guard) {
            Some(Pair::ListLruOne(one)) => Some(one),
            Some(Pair::ShardSet(split)) => Some(split.here()),
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
        object: LinkNode,
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
    fn add_to<const UNIQUE: bool>(&self, mut list: LockedList<'_>, object: LinkNode) -> Result<(), Refused> {
        // SAFETY: the caller owns the object.
        let hook = unsafe { object.at.as_ref() };
        if !hook.claim(list.one().as_home(), UNIQUE) {
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
    fn add_and_announce_for(&self, passed: &Memcg, mut list: LockedList<'_>, object: LinkNode) -> Result<(), Refused> {
        // SAFETY: as in `add_to`.
        assert!(unsafe { object.at.as_ref() }.claim(list.one().as_home(), false));
        let _first = list.count_in();
        // SAFETY: as in `add_to`.
        list.with_list(|l, shape| unsafe { l.push_back(shape, object) });
        self.occupancy.iter().for_each(|occupancy| occupancy.occupied(passed, list.one().node()));
        Ok(())
    }

    /// Links an object that is private to the caller, and which `take` takes off its private list. `false`: it is full.
    pub(in super::super) fn add_private(
        &self,
        list: &mut LockedList<'_>,
        object: LinkNode,
        take: impl FnOnce() -> Option<LinkNode>,
    ) -> bool {
        let Some(first) = list.count_in() else { return false };
        let taken = take();
        debug_assert!(taken.is_some_and(|taken| taken.by == object.by), "the first is taken");
        // SAFETY: the caller owned the object, which this list owns from now on.
        unsafe { object.at.as_ref() }.set_home(list.one().as_home());
        // SAFETY: the lock is held, and the links were taken off the list they were on.
        list.with_list(|l, shape| unsafe { l.push_back(shape, object) });
        self.announce(first, list);
        true
    }

    /// The list on which an object is, if that is one of these: `held` if it is that one, or else locked now.
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
            // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
            let one = unsafe { &*home };
            let list = match crate::mutated!("home_without_forward") {
                true => one.lock(guard),
                false => Self::lock_effective_of(one, guard),
            };
            if ptr::eq(links.home().cast(), home) {
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
    pub(in super::super) unsafe fn del(&self, links: NonNull<Hook>) -> Option<LinkRef> {
        let guard = pin();
        // SAFETY: live, says the caller.
        let hook = unsafe { links.as_ref() };
        let home = self.home_of(hook)?;
        // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
        let list = unsafe { &*home }.lock(&guard);
        if !list.is_dead() && ptr::eq(hook.home().cast(), home) {
            return Some(self.take_off(list, links, &guard));
        }
        drop(list);
        self.del_slow(links, &guard)
    }

    /// It left, its list is dead, or it was added elsewhere before we had the lock.
    #[cold]
    #[inline(never)]
    fn del_slow(&self, links: NonNull<Hook>, guard: &Guard) -> Option<LinkRef> {
        // SAFETY: live, as in `del`.
        let list = self.lock_home(unsafe { links.as_ref() }, None, guard)?;
        Some(self.take_off(list, links, guard))
    }

    /// The home of an object, if that is one of these lists.
    #[inline]
    fn home_of(&self, links: &Hook) -> Option<*const ListLruOne> {
        let home = links.home();
        if home.is_null() || home == Hook::PRIVATE {
            return None;
        }
        let home: *const ListLruOne = home.cast_const().cast();
        // SAFETY: an item's home is not retired while the item is on a list, and the caller is in the read side.
        let owner = unsafe { &*home }.owner();
        ptr::eq(owner, self.as_owner()).then_some(home)
    }

    /// Unlinks an object that is on this list.
    #[inline(always)] // As `add_to`.
    fn take_off(&self, mut list: LockedList<'_>, links: NonNull<Hook>, _guard: &Guard) -> LinkRef {
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
}
