//! The groups of a tree: one slot for each id, the links between the slots, and the index of names.
//!
//! # Why not a list of children in each group
//!
//! A group without children would have to store an empty list, and a list of strong handles in each
//! parent together with each child's handle on its parent would form as many cycles as there are
//! groups. Here the links are four ids in the slot, and the names of all groups share one hash
//! table of ids, so a group costs 32 bytes of slot, 6 to 12 of index, and the spare capacity of the
//! vector, whether it has no children or 10,000. Creating, finding by name and going offline are
//! O(1).
//!
//! # The life of a slot
//!
//! | state | id taken | `group` | linked to the parent | ended by |
//! |---|---|---|---|---|
//! | vacant | no | none | no | `reserve` |
//! | reserved | yes | none | no | `link`, or `release` if the group cannot be created |
//! | online | yes | some | yes | `begin_offline` |
//! | dying | yes | none | while a walk's position is on it or below it | `release`, by the drop of the last handle |
//!
//! A dying slot keeps its `parent`, so that its id stays an alias of the nearest online ancestor.
//! The parent's slot cannot be assigned to another group meanwhile, since every group holds a
//! handle on its parent.
//!
//! # Walks
//!
//! A walk must be able to continue from a group that went offline while the walk was positioned on
//! it. So a walk counts itself in the slot of its position (`cursors`), and a dying slot leaves its
//! parent's list only when no walk is positioned on it and no dying child is still linked below it.
//! Without walks, dying groups are in no list, however long their objects keep them alive.
//!
//! A change must ensure that a slot keeps its `parent` until its id is released, that a walk's
//! position stays linked, and that no handle is dropped under the tree's lock.

use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::fallible::try_shrink;
use crate::memcg::error::MemcgError;
use crate::memcg::group_handle::GroupHandle;
use lowwater_base::id_pool::{IdPool, NoId};

#[cfg(test)]
mod tests;

/// The null id.
const NIL: u32 = u32::MAX;
/// A table whose length has fallen to 1/`SHRINK_AT` of its capacity is shrunk.
const SHRINK_AT: usize = 4;
/// A table with at most this capacity is not worth shrinking, until only the root is left.
const SHRINK_FROM: usize = 64;
/// The slots allocated for the root alone: the initial capacity of a `Vec`.
const SLOTS_MIN: usize = 4;

/// The table's slot for one id.
pub(super) struct GroupSlot<G> {
    /// The tree's own handle: present while the group is online.
    group: Option<G>,
    parent: u32,
    first_child: u32,
    /// The next younger sibling; `NIL` for the youngest.
    next: u32,
    /// The next older sibling; for the oldest, the youngest, so that the parent need not store it.
    /// `NIL`: not linked.
    prev: u32,
    /// The number of walks whose position is this slot. Saturates, and then stays: walks may be
    /// leaked, and the group of a leaked walk's position is not released.
    cursors: u32,
    /// The number of children that are online, or whose offline has not finished.
    children: u32,
}

impl<G> GroupSlot<G> {
    const VACANT: Self =
        Self { group: None, parent: NIL, first_child: NIL, next: NIL, prev: NIL, cursors: 0, children: 0 };
}

/// The slots and the index of names. The table is behind the tree's lock; no handle is dropped
/// under that lock, since the drop of the last handle takes it again.
pub(super) struct GroupTable<G> {
    slots: Vec<GroupSlot<G>>,
    ids: IdPool,
    /// Ids of the online groups but the root, by parent and name.
    names: HashTable<u32>,
    hasher: DefaultHashBuilder,
    online: usize,
    /// The number of groups that were reserved and not released: reserved, online or dying.
    alive: usize,
    /// The total length of the names of the groups that `alive` counts.
    name_bytes: usize,
    /// Whether the tree has ended: [`close`](Self::close) was called.
    closed: bool,
}

impl<G: GroupHandle> GroupTable<G> {
    /// Creates a table without groups. All its ids will be below `end`, so none is `NIL`.
    pub(super) fn new(end: u32) -> Self {
        Self {
            slots: Vec::new(),
            ids: IdPool::new(end),
            names: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            online: 0,
            alive: 0,
            name_bytes: 0,
            closed: false,
        }
    }

    /// Returns the number of online groups.
    pub(super) fn online(&self) -> usize {
        self.online
    }

    /// Reserves an id for a group of this name below `parent` (none: the root), if such a group may
    /// be created.
    pub(super) fn reserve(&mut self, parent: Option<&G>, name: &str) -> Result<u32, MemcgError> {
        self.may_create(parent, name)?;
        let id = self.ids.take().map_err(|none| match none {
            NoId::AllUsed => MemcgError::OutOfIds,
            NoId::NoMemory => MemcgError::NoMemory,
        })?;
        let more = (id as usize + 1).saturating_sub(self.slots.len());
        if more > 0 {
            if self.slots.try_reserve(more).is_err() {
                self.ids.put(id);
                return Err(MemcgError::NoMemory);
            }
            self.slots.resize_with(id as usize + 1, || GroupSlot::VACANT);
        }
        self.alive += 1;
        self.name_bytes += name.len();
        Ok(id)
    }

    /// Brings a group online whose id was reserved. On an error the caller drops its handle, after
    /// releasing the lock.
    pub(super) fn link(&mut self, memcg: &G) -> Result<(), MemcgError> {
        // The lock was released since `reserve`: check again.
        self.may_create(memcg.parent(), memcg.name())?;
        let id = memcg.id().get();
        if let Some(parent) = memcg.parent() {
            let parent = parent.id().get();
            let hash = hash(&self.hasher, parent, memcg.name());
            let (slots, hasher) = (&self.slots, &self.hasher);
            let room = self.names.try_reserve(1, |id| slot_hash(slots, hasher, *id));
            room.map_err(|_| MemcgError::NoMemory)?;
            self.names.insert_unique(hash, id, |id| slot_hash(slots, hasher, *id));
            self.slots[id as usize].parent = parent;
            self.push_child(parent, id);
            self.slots[parent as usize].children += 1;
        }
        self.slots[id as usize].group = Some(memcg.clone());
        self.online += 1;
        Ok(())
    }

    fn may_create(&self, parent: Option<&G>, name: &str) -> Result<(), MemcgError> {
        let Some(parent) = parent else { return Ok(()) };
        if self.closed {
            Err(MemcgError::TreeGone)
        } else if !parent.is_online() {
            Err(MemcgError::Dying)
        } else if self.child(parent, name).is_some() {
            Err(MemcgError::NameTaken)
        } else {
            Ok(())
        }
    }

    /// Returns the online child of this name.
    pub(super) fn child(&self, parent: &G, name: &str) -> Option<&G> {
        let parent = parent.id().get();
        let is_it =
            |slot: &GroupSlot<G>| slot.parent == parent && slot.group.as_ref().is_some_and(|g| g.name() == name);
        let id = self.names.find(hash(&self.hasher, parent, name), |id| is_it(&self.slots[*id as usize]))?;
        self.slots[*id as usize].group.as_ref()
    }

    /// Returns the group of this id, or the nearest online ancestor of a dying group.
    pub(super) fn get(&self, id: u32) -> Option<&G> {
        let mut slot = self.slots.get(id as usize)?;
        // Bounded by the depth: a parent's slot is nearer to the root, which is online.
        loop {
            if slot.group.is_some() {
                return slot.group.as_ref();
            }
            // A slot that is vacant or only reserved has no parent.
            slot = self.slots.get(slot.parent as usize)?;
        }
    }

    /// Returns the number of children that are online or whose offline has not finished.
    pub(super) fn children_len(&self, parent: u32) -> usize {
        self.slots.get(parent as usize).map_or(0, |slot| slot.children as usize)
    }

    /// Iterates over the online children, oldest first.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = &G> {
        let first = self.slots.get(parent as usize).map_or(NIL, |slot| slot.first_child);
        core::iter::successors(self.slots.get(first as usize), |slot| self.slots.get(slot.next as usize))
            .filter_map(|slot| slot.group.as_ref())
    }

    // === going offline ===

    /// Makes the group dying and returns the tree's handle on it: it cannot be found any more, and
    /// its name is free.
    pub(super) fn begin_offline(&mut self, memcg: &G) -> Result<G, MemcgError> {
        let id = memcg.id().get();
        if !memcg.is_online() {
            return Err(MemcgError::AlreadyDying);
        } else if self.closed {
            return Err(MemcgError::TreeGone);
        } else if self.slots[id as usize].children > 0 {
            return Err(MemcgError::HasChildren);
        }
        let hash = hash(&self.hasher, self.slots[id as usize].parent, memcg.name());
        if let Ok(entry) = self.names.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        memcg.set_dying();
        self.online -= 1;
        let kept = self.slots[id as usize].group.take();
        self.unlink_idle(id);
        Ok(kept.expect("an online group is in its slot"))
    }

    /// Records that a child of `parent` has finished going offline; `parent` may go offline itself
    /// now.
    pub(super) fn end_offline(&mut self, parent: u32) {
        if let Some(slot) = self.slots.get_mut(parent as usize) {
            slot.children -= 1;
        }
    }

    /// Releases the id of a group whose last handle is gone.
    pub(super) fn release(&mut self, id: u32, name: &str) {
        self.alive -= 1;
        self.name_bytes -= name.len();
        if self.closed {
            return;
        }
        debug_assert!(self.slots[id as usize].prev == NIL, "a group without handles is still linked to its parent");
        self.slots[id as usize] = GroupSlot::VACANT;
        self.ids.put(id);
        self.shrink();
    }

    /// Removes all groups at once, for the end of the tree. The caller drops the result after
    /// releasing the lock.
    pub(super) fn close(&mut self) -> Vec<GroupSlot<G>> {
        self.closed = true;
        self.online = 0;
        self.names = HashTable::new();
        core::mem::take(&mut self.slots)
    }

    /// Frees memory when the highest ids are free and the rest is small compared with the
    /// allocation.
    fn shrink(&mut self) {
        while self.slots.len().checked_sub(1).is_some_and(|last| !self.ids.is_used(last as u32)) {
            self.slots.pop();
        }
        let len = self.slots.len();
        let only_root = len == 1;
        if only_root || self.slots.capacity() > SHRINK_FROM && len * SHRINK_AT <= self.slots.capacity() {
            // Twice the necessary size, so that the next few groups do not allocate again.
            try_shrink(&mut self.slots, (2 * len).max(SLOTS_MIN));
            self.ids.shrink_to(len);
            self.shrink_names();
        }
    }

    /// Moves the names to a smaller table, if there is memory for it.
    fn shrink_names(&mut self) {
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |id: &u32| slot_hash(slots, hasher, *id);
        let mut smaller = HashTable::new();
        if !self.names.is_empty() && smaller.try_reserve(2 * self.names.len(), hash_of).is_err()
            || smaller.allocation_size() >= self.names.allocation_size()
        {
            return;
        }
        for id in &self.names {
            smaller.insert_unique(hash_of(id), *id, hash_of);
        }
        self.names = smaller;
    }

    /// Returns the number of groups that were reserved and not released, and the bytes of their
    /// names and of this table.
    pub(super) fn allocated(&self) -> (usize, usize) {
        let table =
            self.slots.capacity() * size_of::<GroupSlot<G>>() + self.names.allocation_size() + self.ids.allocated();
        (self.alive, table + self.name_bytes)
    }

    // === siblings ===

    fn push_child(&mut self, parent: u32, id: u32) {
        let first = self.slots[parent as usize].first_child;
        if first == NIL {
            self.slots[parent as usize].first_child = id;
            self.slots[id as usize].prev = id;
        } else {
            let last = core::mem::replace(&mut self.slots[first as usize].prev, id);
            self.slots[last as usize].next = id;
            self.slots[id as usize].prev = last;
        }
    }

    /// Removes a dying slot from its parent's list if no walk needs it there, and then, by the same
    /// rule, its ancestors.
    fn unlink_idle(&mut self, mut id: u32) {
        // Bounded by the depth.
        loop {
            let GroupSlot { ref group, parent, first_child, next, prev, cursors, .. } = self.slots[id as usize];
            if group.is_some() || cursors > 0 || first_child != NIL || prev == NIL {
                return;
            }
            let first = self.slots[parent as usize].first_child;
            if first == id {
                self.slots[parent as usize].first_child = next;
            } else {
                self.slots[prev as usize].next = next;
            }
            if next != NIL {
                self.slots[next as usize].prev = prev;
            } else if first != id {
                // The youngest is gone, so the oldest must point at the one before it.
                self.slots[first as usize].prev = prev;
            }
            let slot = &mut self.slots[id as usize];
            (slot.next, slot.prev) = (NIL, NIL);
            id = parent;
        }
    }

    // === walks ===

    /// Advances a walk to the group that follows `at` in pre-order below `top`; at the start, to
    /// `top` itself.
    pub(super) fn step(&mut self, at: Option<u32>, top: u32) -> Option<G> {
        if self.closed {
            return None;
        }
        let next = match at {
            Some(at) => self.following(at, top),
            None => Some(top).filter(|top| self.slots[*top as usize].group.is_some()),
        };
        if let Some(next) = next {
            let cursors = &mut self.slots[next as usize].cursors;
            *cursors = cursors.saturating_add(1);
        }
        // After `following`, which needs the links of `at` that this may remove.
        if let Some(at) = at {
            self.step_off(at);
        }
        next.and_then(|next| self.slots[next as usize].group.clone())
    }

    /// Ends a walk whose position is `at`.
    pub(super) fn step_off(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.cursors -= u32::from(slot.cursors < u32::MAX);
            self.unlink_idle(at);
        }
    }

    /// Returns the online group that follows `at` in pre-order below `top`.
    fn following(&self, mut at: u32, top: u32) -> Option<u32> {
        // All groups below a dying group are dying.
        let mut may_descend = self.slots[at as usize].group.is_some();
        // Bounded by the dying slots that are linked, and the depth: after at most one step to a
        // first child, each iteration moves to a slot later in post-order. A walk keeps no dying
        // slots linked but its position and the position's ancestors.
        loop {
            let slot = &self.slots[at as usize];
            if may_descend && slot.first_child != NIL {
                at = slot.first_child;
            } else if at == top {
                return None;
            } else if slot.next != NIL {
                at = slot.next;
            } else {
                (at, may_descend) = (slot.parent, false);
                continue;
            }
            if self.slots[at as usize].group.is_some() {
                return Some(at);
            }
            may_descend = false;
        }
    }
}

fn hash(hasher: &DefaultHashBuilder, parent: u32, name: &str) -> u64 {
    hasher.hash_one((parent, name))
}

/// Returns the hash of an id in the index, which contains online groups only.
fn slot_hash<G: GroupHandle>(slots: &[GroupSlot<G>], hasher: &DefaultHashBuilder, id: u32) -> u64 {
    let slot = &slots[id as usize];
    hash(hasher, slot.parent, slot.group.as_ref().map_or("", G::name))
}
