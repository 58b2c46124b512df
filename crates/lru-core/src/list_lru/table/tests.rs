//! The sizes of tables, and the start of their probes.
//!
//! The expected capacities are written out, since a table that is too large costs memory for every
//! cache; the second test checks that lists of related keys do not begin their probes at one slot.
//!
//! A change must ensure that the expected capacities stay written out, not computed by the code
//! under test.

use super::{Key, ListTable, TableRef};
use crate::{MemcgId, NodeId};
use alloc::vec;

#[test]
fn a_tables_capacity_follows_from_the_number_of_lists() {
    // Tables of up to 8 slots are filled; larger ones up to three quarters, less the eighth that
    // stays free.
    let needed =
        [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (10, 16), (11, 32), (20, 32), (21, 64), (40, 64), (41, 128)];
    for (lists, capacity) in needed {
        assert_eq!(ListTable::capacity_for(lists), capacity, "{lists} lists");
    }
    assert_eq!([1, 8, 16, 64, 1 << 20].map(ListTable::used_max), [1, 8, 12, 48, 3 << 18]);
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic, and a lot of it")]
fn probes_of_related_keys_begin_at_different_slots() {
    let most_at_one_place = |groups: u32, nodes: u16| {
        let mut lists = vec![0_u32; ListTable::capacity_for(groups as usize * usize::from(nodes))];
        let mask = lists.len() - 1;
        for (id, node) in (0..groups).flat_map(|id| (0..nodes).map(move |node| (MemcgId::new(id), node))) {
            let key = Key { node: NodeId::new(node), spread: id.spread(), id, group: 0 };
            lists[TableRef::start(key) & mask] += 1;
        }
        lists.into_iter().max().unwrap_or(0)
    };
    // Of one node, of one group, of many of both, and of more groups than the hash of an id has
    // values.
    for (groups, nodes) in [(10_000, 1), (1, 1_000), (1_000, 16), (1 << 18, 1)] {
        let most = most_at_one_place(groups, nodes);
        assert!(most <= 2, "{most} lists of {groups} groups on {nodes} nodes begin at one place");
    }
}
