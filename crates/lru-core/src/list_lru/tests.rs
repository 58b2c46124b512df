//! Properties of [`ListLru`](crate::ListLru), by the numbers of docs/INVARIANTS.md, and where each is named:
//!
//! | | |
//! |---|---|
//! | `model` | L1 to L7, L9, L11, L13, L16, L17, L20: a random history against a plain model, the eager twin beside it, checked after each step |
//! | `unit` | L2, L4, L5, L7 to L12, L15, L17, L18 (ids), L20: one each |
//! | `resume` | L11 to L14, R7: walks that give the lock back; many at once |
//! | `sweep` | L6, L16: what is idle is given back |
//! | `split` | L1, L4, L9 to L13, L16, L17, L20, R7 for a list that has parts |
//! | `threads` | L4, L9, L14, L18 (lock order) under contention |
//! | `loom` | R1 to R11, L1, L3, L4, L6, L10, L14, L20 in every interleaving, and the orderings that were wrong once as faults |
//! | `raw/tests` | R2, and what else only somebody sees who comes at the wrong moment |
//! | `table/tests` | sizes of tables, and where probing begins |
//! | `tests/list_lru_alloc.rs` | L16, L17: each allocation fails once; a million groups |
//! | `tests/list_lru_footprint.rs` | L16: what is counted is what is allocated |
//! | `tests/allocation_free.rs` | L19 |

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod model;
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

/// An object that knows its number.
pub(super) struct Item {
    links: Links,
    #[cfg_attr(lowwater_loom, expect(dead_code, reason = "model checks tell items apart by their handles"))]
    number: usize,
}

crate::linked!(impl[] for Item { links, handle: Arc<Item> });

pub(super) fn item(number: usize) -> Arc<Item> {
    Arc::new(Item { links: Links::new(), number })
}

/// The numbers on the list of a group, oldest first.
#[cfg(not(lowwater_loom))]
pub(super) fn numbers(lru: &crate::ListLru<Item>, memcg: &crate::Memcg, node: crate::NodeId) -> alloc::vec::Vec<usize> {
    let mut numbers = alloc::vec::Vec::new();
    lru.walk_one(memcg, node, &mut u64::MAX.clone(), |it| {
        numbers.push(it.item().number);
        it.skip()
    });
    numbers
}

/// How many ids are taken: groups that are online, and dead ones that something still names.
#[cfg(not(lowwater_loom))]
pub(super) fn ids(tree: &crate::MemcgTree) -> usize {
    let ids = if cfg!(miri) { 40 } else { 2_000 };
    (0..ids).filter(|&id| tree.get(crate::MemcgId::new(id)).is_some()).count()
}
