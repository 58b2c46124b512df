// SPDX-License-Identifier: GPL-2.0

//! lowwater's lists under a shrinker of the kernel that is called for each control group.
//!
//! The kernel is the registry: it calls the shrinker for the groups and nodes whose bit is set, and
//! a call counts and scans the list of that group only. The first entry of a group on a node sets
//! the bit, as `list_lru` does. A change must ensure that the bit is set while the list's lock is
//! held: a spin lock, so that the control group lives on until it is released.

use super::at_end::AtEnd;
use super::cache::Cache;
use super::groups;
use super::kernel_lru::{self, Count, MemCgroup, Scan};
use super::lists::ListLru;
use super::load::{NUMBERS_PER_WORKER, WORKERS};
use super::nodes::node_of;
use ::alloc::sync::Arc;
use core::ops::Deref;
use kernel::{c_str, ffi::c_void, prelude::*};
use lowwater_base::fallible::try_arc;
use lowwater_lru_core::{Memcg, MemcgTree, NodeId, Occupancy};

extern "C" {
    fn lowwater_set_shrinker_bit(memcg: *mut c_void, node: i32, shrinker: i32);
}

/// Reports a list's first entry to the kernel's shrinker of this id; `None` in a kernel without
/// groups.
struct Bit(Option<i32>);

impl Occupancy for Bit {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        let of = groups::control_group_of(memcg);
        let Some(id) = self.0 else { return };
        // The kernel calls all shrinkers for its root, so that has no bits.
        if !of.is_null() {
            // SAFETY: Under the list's spin lock, a control group that `control_group_of` returned
            // is not freed yet: that waits for RCU, and so for sections without preemption. With
            // PREEMPT_RT, a holder of a spin lock is in a read-side section.
            unsafe { lowwater_set_shrinker_bit(of, node.index() as i32, id) }
        }
    }
}

/// The cache as the kernel's shrinker calls it.
struct Bridge {
    root: Memcg,
    cache: Arc<Cache>,
}

impl Bridge {
    /// lowwater's group of a request; `None` for a control group of which no task has inserted an
    /// entry.
    fn group_of(&self, sc: &kernel_lru::ShrinkControl<'_>) -> Option<Memcg> {
        let memcg = MemCgroup::as_ptr(sc.memcg()).cast();
        // SAFETY: The control group of a request lives during the call.
        match unsafe { groups::is_root(memcg) } {
            true => Some(self.root.clone()),
            // SAFETY: As above.
            false => unsafe { groups::of(memcg) },
        }
    }
}

impl kernel_lru::Shrinker for Bridge {
    fn count_objects(&self, sc: &kernel_lru::ShrinkControl<'_>) -> Count {
        let group = self.group_of(sc);
        let entries = &self.cache.entries;
        match group.map_or(0, |group| entries.count_one(&group, node_of(sc))) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut kernel_lru::ShrinkControl<'_>) -> Scan {
        let Some(group) = self.group_of(sc) else {
            return Scan::Stop;
        };
        let (evicted, visited) = self.cache.evict(&group, node_of(sc), sc.nr_to_scan());
        sc.set_nr_scanned(visited);
        Scan::Freed(evicted)
    }
}

/// The cache and its shrinker, which is dropped first.
pub(crate) struct Registered {
    _kernel: kernel_lru::Registration<Bridge>,
    cache: AtEnd<Arc<Cache>>,
}

impl Deref for Registered {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// Creates the cache and registers it; `None` without memory.
pub(crate) fn register(tree: &MemcgTree) -> Option<Registered> {
    let prepared = kernel_lru::ShrinkerBuilder::new(c_str!("in_tree"))
        .alloc()
        .ok()?;
    let lists = ListLru::try_with_occupancy(try_arc(Bit(prepared.id()))?).ok()?;
    let cache = try_arc(Cache::try_new(WORKERS * NUMBERS_PER_WORKER, lists).ok()?)?;
    let bridge = Bridge {
        root: tree.root().clone(),
        cache: Arc::clone(&cache),
    };
    let kernel = prepared.register(kernel::sync::Arc::new(bridge, GFP_KERNEL).ok()?);
    Some(Registered {
        _kernel: kernel,
        cache: AtEnd(cache),
    })
}
