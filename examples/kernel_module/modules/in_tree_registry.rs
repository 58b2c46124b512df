// SPDX-License-Identifier: GPL-2.0

//! lowwater's registry under a shrinker of the kernel that is called for each control group.
//!
//! The first entry of a group on a node sets the shrinker's bit of the control group, as `list_lru`
//! does. A change must ensure that the bit is set while the list's lock is held: a spin lock, so that
//! the control group lives on until it is released.

use super::at_end::AtEnd;
use super::cache::Cache;
use super::groups;
use super::kernel_lru::{self, Count, MemCgroup, Scan};
use super::lists::ListLru;
use super::load::{NUMBERS_PER_WORKER, WORKERS};
use super::nodes::{node_of, Nodes};
use ::alloc::sync::Arc;
use core::ops::Deref;
use kernel::{c_str, ffi::c_void, prelude::*};
use lowwater_base::fallible::try_arc;
use lowwater_lru_core::{Memcg, MemcgTree, NodeId, Occupancy};
use lowwater_shrinker::{Reclaim, Registration, Registry, RegistryConfig, Work};

extern "C" {
    fn lowwater_set_shrinker_bit(memcg: *mut c_void, node: i32, shrinker: i32);
}

/// Reports a list's first entry to both sides.
struct Both {
    lowwater: Arc<dyn Occupancy>,
    /// The kernel's number of the shrinker.
    shrinker: i32,
}

impl Occupancy for Both {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.lowwater.occupied(memcg, node);
        let of = groups::control_group_of(memcg);
        if !of.is_null() {
            // SAFETY: Under the list's spin lock, a control group that `control_group_of` returned is
            // not freed yet: that waits for RCU, and so for sections without preemption. With
            // PREEMPT_RT, a holder of a spin lock is in a read-side section.
            unsafe { lowwater_set_shrinker_bit(of, node.index() as i32, self.shrinker) }
        }
    }
}

/// The side of lowwater that the kernel's shrinker calls.
struct Bridge {
    registry: Registry,
    root: Memcg,
    cache: Arc<Cache>,
}

impl Bridge {
    /// lowwater's group of a request; the root's for the root and for groups without entries.
    fn group_of(&self, sc: &kernel_lru::ShrinkControl<'_>) -> Memcg {
        groups::of(MemCgroup::as_ptr(sc.memcg()).cast()).unwrap_or_else(|| self.root.clone())
    }
}

impl kernel_lru::Shrinker for Bridge {
    fn count_objects(&self, sc: &kernel_lru::ShrinkControl<'_>) -> Count {
        match self
            .cache
            .entries
            .count_one(&self.group_of(sc), node_of(sc))
        {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut kernel_lru::ShrinkControl<'_>) -> Scan {
        let mut work = Work::objects(sc.nr_to_scan());
        let group = self.group_of(sc);
        let done = self.registry.shrink(
            &group,
            node_of(sc),
            /* priority */ 0,
            Reclaim::KSWAPD,
            &mut work,
        );
        sc.set_nr_scanned(done.scanned);
        Scan::Freed(done.freed)
    }
}

/// The cache, registered in both. Dropped in this order: after the kernel's shrinker no callback
/// uses the registry.
pub(crate) struct Registered {
    _kernel: kernel_lru::Registration<Bridge>,
    _lowwater: Registration,
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
    let config = RegistryConfig::try_with_topology(try_arc(Nodes::of_machine())?).ok()?;
    let registry = Registry::try_with_config(tree, config).ok()?;
    let lowwater = registry.builder("in_tree").alloc().ok()?;
    let kernel = kernel_lru::Builder::new(c_str!("in_tree")).alloc().ok()?;
    let both = Both {
        lowwater: lowwater.try_occupancy().ok()?,
        shrinker: kernel.id(),
    };
    let lists = ListLru::try_with_occupancy(try_arc(both)?).ok()?;
    let cache = try_arc(Cache::try_new(WORKERS * NUMBERS_PER_WORKER, lists).ok()?)?;
    let lowwater = lowwater.try_register(Arc::clone(&cache) as _).ok()?;
    let bridge = Bridge {
        registry,
        root: tree.root().clone(),
        cache: Arc::clone(&cache),
    };
    let kernel = kernel.register(kernel::sync::Arc::new(bridge, GFP_KERNEL).ok()?);
    Some(Registered {
        _kernel: kernel,
        _lowwater: lowwater,
        cache: AtEnd(cache),
    })
}
