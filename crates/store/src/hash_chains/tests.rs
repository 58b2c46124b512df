//! The properties of a table of chains.
//!
//! 1. An inserted object is found by its hash and the closure, and a removed object is not.
//! 2. An object is on at most one chain, whichever threads insert it.
//! 3. A found object is fully initialized, and lives while its reader is inside (loom, stress).
//!
//! A new property needs the next number and a test.

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod unit;

use super::*;

pub(super) struct Item {
    pub(super) link: HashLink<Item>,
    pub(super) key: u64,
}

crate::hash_node!(impl[] for Item { link });

pub(super) fn item(key: u64) -> Arc<Item> {
    Arc::new(Item { link: HashLink::new(), key })
}
