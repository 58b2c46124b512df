// SPDX-License-Identifier: GPL-2.0

//! The lists of a cache on the kernel's `list_lru`.
//!
//! It has the names of `one_cache/lists_lowwater.rs`, so that the cache's source is the same; a
//! name that one of them gains is needed in the other.

use super::sys::NoMemory;
use kernel::prelude::*;

pub(crate) use super::kernel_lru::{
    Count, Isolated, ListLru, LruArc as Ref, NodeId, Scan, ShrinkControl, Shrinker,
};

/// The group of a list.
pub(crate) type Group<'a> = Option<&'a super::kernel_lru::MemCgroup>;

/// Allocates an entry, charged to the current group.
pub(crate) fn alloc<T>(lists: &ListLru<T>, value: T) -> Result<Ref<T>, NoMemory> {
    Ok(lists.alloc(value, GFP_KERNEL)?)
}

/// Adds an entry as the youngest of its group on its node. `_entry` is the same entry, for lists
/// that need to be told of the group.
#[inline]
pub(crate) fn add<T>(lists: &ListLru<T>, handle: Ref<T>, _entry: &Ref<T>) -> bool {
    lists.add_obj(handle).is_ok()
}

/// Returns whether both are the same entry.
pub(crate) fn is_same<T>(a: &Ref<T>, b: &Ref<T>) -> bool {
    Ref::ptr_eq(a, b)
}

/// Returns the number of entries on the lists.
pub(crate) fn count<T>(lists: &ListLru<T>) -> u64 {
    lists.count()
}
