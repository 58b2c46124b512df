//! The properties of a table of chains.
//!
//! 1. Inserted is found, removed is not, by hash and by what the closure compares.
//! 2. An object is on one chain at most, whoever inserts it.
//! 3. A found object is whole, and lives while its reader is inside (loom, stress).

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
