//! Properties of [`ListLru`], by KERNEL's numbers:
//!
//! * L1, L3, L5, L6, L9, L13, L16: a random history against a plain model, checked after every step (`a_history_*`).
//! * L2, L4, L11, L12, L15, L20 and the give-and-take of handles: one test each.
//! * L14, and L4 and L9 under contention: threads (`threads_*`); under every interleaving: `tests/loom.rs`.

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod model;
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
    (0..2_000).filter(|&id| tree.get(crate::MemcgId::new(id)).is_some()).count()
}
