//! A hash table of values that contain their group handle, keyed by the group's id. The id is not
//! stored a second time: nearly all groups of a large tree have an entry, so a word for each
//! matters.
//!
//! A change must ensure that each value holds a handle of its group: this keeps the id, which is
//! the key, from being reused while the value is in the table.

use hashbrown::HashTable;
use lowwater_lru_core::{Memcg, MemcgId};

use crate::hash::hash_of;

/// A value that contains its group's handle.
pub(super) trait HasMemcg {
    fn memcg(&self) -> &Memcg;
}

impl HasMemcg for Memcg {
    fn memcg(&self) -> &Memcg {
        self
    }
}

/// A hash table by group id, with at most one value per group; see the module.
pub(super) struct ByGroup<T>(HashTable<T>);

impl<T> Default for ByGroup<T> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<T: HasMemcg> ByGroup<T> {
    pub(super) fn get(&self, id: MemcgId) -> Option<&T> {
        self.0.find(hash_of(id), |there| there.memcg().id() == id)
    }

    pub(super) fn get_mut(&mut self, id: MemcgId) -> Option<&mut T> {
        self.0.find_mut(hash_of(id), |there| there.memcg().id() == id)
    }

    /// Inserts a value for a group that has none; returns false without memory.
    pub(super) fn try_insert(&mut self, thing: T) -> bool {
        let has_room = self.0.try_reserve(1, hash).is_ok();
        if has_room {
            self.0.insert_unique(hash(&thing), thing, hash);
        }
        has_room
    }

    /// Removes a group's value, and shrinks the table as [`crate::hash::shrink_after_removal`]
    /// does.
    pub(super) fn remove(&mut self, id: MemcgId) -> Option<T> {
        let there = self.0.find_entry(hash_of(id), |there| there.memcg().id() == id);
        let (gone, _) = there.ok()?.remove();
        if self.0.is_empty() {
            self.0 = HashTable::new();
        } else if self.0.len() < self.0.capacity() / 16 {
            let mut smaller = Self::default();
            // Without memory for the smaller table, the large one stays.
            if smaller.0.try_reserve(self.0.len() * 2, hash).is_ok() {
                self.0.drain().for_each(|thing| {
                    smaller.0.insert_unique(hash(&thing), thing, hash);
                });
                *self = smaller;
            }
        }
        Some(gone)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the heap bytes of the table.
    pub(super) fn bytes(&self) -> usize {
        self.0.allocation_size()
    }
}

fn hash<T: HasMemcg>(thing: &T) -> u64 {
    hash_of(thing.memcg().id())
}
