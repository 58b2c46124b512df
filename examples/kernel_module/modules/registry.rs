// SPDX-License-Identifier: GPL-2.0

//! lowwater's registry of shrinkers under one shrinker of the kernel.
//!
//! The kernel asks once for each node, not for each of its groups: lowwater's groups are its own,
//! and the registry spreads a request over them. The registration must be dropped before the lists,
//! so that no callback of the kernel finds them gone.

use super::at_end::AtEnd;
use super::cache::Cache;
use super::kernel_lru;
use super::lists::ListLru;
use super::load::{NUMBERS_PER_WORKER, WORKERS};
use super::nodes::{node_of, Nodes};
use ::alloc::sync::Arc;
use core::ops::Deref;
use kernel::{c_str, prelude::*};
use lowwater_base::fallible::try_arc;
use lowwater_lru_core::{Memcg, MemcgTree};
use lowwater_shrinker::{Reclaim, Registration, Registry, RegistryConfig, Work};

/// The side of lowwater that the kernel's shrinker calls.
struct Bridge {
    registry: Registry,
    root: Memcg,
    cache: Arc<Cache>,
}

impl kernel_lru::Shrinker for Bridge {
    fn count_objects(&self, sc: &kernel_lru::ShrinkControl<'_>) -> kernel_lru::Count {
        match self.cache.entries.count_node(node_of(sc)) {
            0 => kernel_lru::Count::Empty,
            n => kernel_lru::Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut kernel_lru::ShrinkControl<'_>) -> kernel_lru::Scan {
        // A bounded pass over the groups of the node, which continues where the last one stopped.
        // The bound is the kernel's request, so the priority is 0: no part of a list is left out.
        let mut work = Work::objects(sc.nr_to_scan());
        let done = self.registry.shrink(
            &self.root,
            node_of(sc),
            /* priority */ 0,
            Reclaim::KSWAPD,
            &mut work,
        );
        sc.set_nr_scanned(done.scanned);
        kernel_lru::Scan::Freed(done.freed)
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
    let prepared = registry.builder("on_lowwater").alloc().ok()?;
    let lists = ListLru::try_with_occupancy(prepared.try_occupancy().ok()?).ok()?;
    let cache = try_arc(Cache::try_new(WORKERS * NUMBERS_PER_WORKER, lists).ok()?)?;
    let lowwater = prepared.try_register(Arc::clone(&cache) as _).ok()?;
    let bridge = Bridge {
        registry,
        root: tree.root().clone(),
        cache: Arc::clone(&cache),
    };
    let prepared = kernel_lru::ShrinkerBuilder::new(c_str!("on_lowwater"))
        .memcg_aware(false)
        .alloc()
        .ok()?;
    let kernel = prepared.register(kernel::sync::Arc::new(bridge, GFP_KERNEL).ok()?);
    Some(Registered {
        _kernel: kernel,
        _lowwater: lowwater,
        cache: AtEnd(cache),
    })
}
