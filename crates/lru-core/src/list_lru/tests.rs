//! Tests of [`ListLru`](crate::ListLru) by the numbers of docs/INVARIANTS.md, and the modules that
//! contain them. That page refers to this table for tests without numbers: a new module needs one
//! row.
//!
//! | | |
//! |---|---|
//! | `model` | L1 to L7, L9, L11, L13, L16, L17, L20: a random history against a simple model and the eager baseline, checked after each step |
//! | `unit` | L2, L4, L5, L7 to L12, L15, L17, L18 (ids), L20: one test each |
//! | `oldest` | L2, L4, L7, L11, L13: `isolate_oldest` beside a walk |
//! | `resume` | L11 to L14, R7: walks that release the lock; batches |
//! | `sweep` | L6, L16: idle lists are freed |
//! | `slots` | L9, L13 for links that are slot numbers: a random history against a queue; the cursors of walks there |
//! | `split` | L1, L4, L9 to L13, L16, L17, L20, R7 for a list that has shards |
//! | `threads` | L4, L9, L14, L18 (lock order) under contention |
//! | `loom` | R1 to R11, L1 to L4, L6, L8 to L14, L18, L20 in every interleaving of few preemptions, and orderings that were once wrong as injected faults |
//! | `raw/tests` | R2, L11, L16, and other states that are visible only for an instant |
//! | `table/tests` | sizes of tables, and the start of probes |
//! | `tests/list_lru_alloc.rs` | L16, L17: each allocation fails once; a million groups |
//! | `tests/two_trees.rs` | L2, L5, L6, L16, R10 for groups of different trees with the same ids |
//! | `tests/list_lru_footprint.rs` | L16: the footprint is the number of allocated bytes |
//! | `tests/allocation_free.rs` | L19 |

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod model;
#[cfg(not(lowwater_loom))]
mod oldest;
#[cfg(not(lowwater_loom))]
mod resume;
#[cfg(not(lowwater_loom))]
mod slots;
#[cfg(not(lowwater_loom))]
mod split;
#[cfg(not(lowwater_loom))]
mod sweep;
#[cfg(not(lowwater_loom))]
mod threads;
#[cfg(not(lowwater_loom))]
mod unit;

use crate::Links;
use alloc::sync::Arc;

/// An object with a number.
pub(super) struct Item {
    links: Links,
    #[cfg_attr(lowwater_loom, expect(dead_code, reason = "model checks tell items apart by their handles"))]
    number: usize,
}

crate::linked!(impl[] for Item { links, handle: Arc<Item> });

pub(super) fn item(number: usize) -> Arc<Item> {
    Arc::new(Item { links: Links::new(), number })
}

/// Returns the numbers on the list of a group, oldest first.
#[cfg(not(lowwater_loom))]
pub(super) fn numbers(lru: &crate::ListLru<Item>, memcg: &crate::Memcg, node: crate::NodeId) -> alloc::vec::Vec<usize> {
    let mut numbers = alloc::vec::Vec::new();
    lru.walk_one(memcg, node, &mut u64::MAX.clone(), |it| {
        numbers.push(it.item().number);
        it.skip()
    });
    numbers
}

/// Returns the number of ids in use: of online groups, and of dead groups on which a handle exists.
/// Looks at ids below 2,000, more than the tests with this count use; under Miri, which is slow,
/// below 40.
#[cfg(not(lowwater_loom))]
pub(super) fn ids(tree: &crate::MemcgTree) -> usize {
    let ids = if cfg!(miri) { 40 } else { 2_000 };
    (0..ids).filter(|&id| tree.get(crate::MemcgId::new(id)).is_some()).count()
}
