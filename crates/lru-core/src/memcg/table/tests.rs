//! Consistency checks of the table, for the tests of the whole tree.
//!
//! Called after each step of the model tests; a new field of a slot belongs in these checks.

use core::fmt;

use super::{GroupTable, NIL};
use crate::memcg::group_handle::GroupHandle;

impl<G: GroupHandle + fmt::Debug> GroupTable<G> {
    /// Returns the number of slots, and the number for which memory is allocated.
    pub(in crate::memcg) fn slots(&self) -> (usize, usize) {
        (self.slots.len(), self.slots.capacity())
    }

    /// Checks slots, links, index and counts against each other, when no operation is in progress.
    pub(in crate::memcg) fn assert_valid(&self) {
        self.ids.assert_valid();
        let mut online = 0;
        for (id, slot) in self.slots.iter().enumerate() {
            let id = id as u32;
            let linked = slot.prev != NIL;
            assert!(
                self.ids.is_used(id) || (slot.group.is_none() && slot.parent == NIL),
                "id {id} is free, its slot is not"
            );
            if let Some(group) = &slot.group {
                online += 1;
                assert_eq!(group.id().get(), id, "{group:?} is in the slot of another id");
                assert_eq!(linked, group.parent().is_some(), "{group:?} must be in its parent's list");
                assert_eq!(
                    group.parent().map(|p| p.id().get()),
                    Some(slot.parent).filter(|p| *p != NIL),
                    "{group:?}: parent"
                );
                if let Some(parent) = group.parent() {
                    assert_eq!(self.child(parent, group.name()), Some(group), "{group:?} is not found by its name");
                }
            } else if linked {
                assert!(slot.cursors > 0 || slot.first_child != NIL, "dying slot {id} is linked, and no walk needs it");
            }
            self.assert_children_valid(id);
        }
        assert_eq!(online, self.online, "the count of online groups");
        assert_eq!(self.names.len(), online.saturating_sub(1), "each online group but the root has one name");
        assert!(self.alive >= online, "more groups are online than exist");
    }

    fn assert_children_valid(&self, parent: u32) {
        let (mut id, mut last, mut living) = (self.slots[parent as usize].first_child, NIL, 0);
        let first = id;
        while id != NIL {
            let slot = &self.slots[id as usize];
            assert_eq!(slot.parent, parent, "slot {id} is in the list of {parent}");
            assert!(last == NIL || slot.prev == last, "slot {id} does not point back at {last}");
            living += u32::from(slot.group.is_some());
            (last, id) = (id, slot.next);
        }
        assert!(
            first == NIL || self.slots[first as usize].prev == last,
            "the oldest child of {parent} points at the youngest"
        );
        assert_eq!(self.slots[parent as usize].children, living, "children of slot {parent}");
    }
}
