// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists of a cache on lowwater's `ListLru`, in user space and inside the kernel.
//!
//! `place` brings the parts that differ: the handle on an item, and the group and the node of a
//! new one.
//!
//! It must compile without `std`, and offer the same names as `../modules/lists_kernel.rs`, the
//! version on the kernel's lists.

use super::place::{self, Shared};
use super::sys::NoMemory;
use core::ops::Deref;
use lowwater_lru_core::{linked, Links, Memcg};

pub(crate) use lowwater_lru_core::NodeId;
pub(crate) use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};

/// An entry, its links, and its place.
pub(crate) struct Item<T> {
    links: Links,
    memcg: Memcg,
    node: NodeId,
    value: T,
}

linked!(impl[T] for Item<T> { links, handle: Shared<Item<T>> });

impl<T> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A shared handle on an entry.
pub(crate) type Ref<T> = Shared<Item<T>>;
/// The group of a list.
pub(crate) type Group<'a> = &'a Memcg;
/// The lists of the entries.
pub(crate) type ListLru<T> = lowwater_lru_core::ListLru<Item<T>>;
/// Entries off their list.
pub(crate) type Isolated<T> = lowwater_lru_core::Isolated<Item<T>>;

/// Allocates an entry, charged to the current group.
pub(crate) fn alloc<T>(_lists: &ListLru<T>, value: T) -> Result<Ref<T>, NoMemory> {
    let memcg = place::current_group()?;
    place::alloc(|node| Item { links: Links::new(), memcg, node, value })
}

/// Adds an entry as the youngest of its group on its node. `entry` is the same entry.
#[inline]
pub(crate) fn add<T>(lists: &ListLru<T>, handle: Ref<T>, entry: &Ref<T>) -> bool {
    lists.add(handle, &entry.memcg, entry.node).is_ok()
}

/// Returns whether both are the same entry.
pub(crate) fn is_same<T>(a: &Ref<T>, b: &Ref<T>) -> bool {
    Shared::ptr_eq(a, b)
}

/// Returns the number of entries on the lists.
pub(crate) fn count<T>(lists: &ListLru<T>) -> u64 {
    place::nodes().map(|node| lists.count_node(node)).sum()
}
