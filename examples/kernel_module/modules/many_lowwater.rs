// SPDX-License-Identifier: GPL-2.0

//! The caches of `many.rs` on lowwater's lists, and 10,000 groups of lowwater, as many as the guest
//! has control groups.
//!
//! One of the two sides of a comparison: `many_list_lru.rs` has the same caches on the kernel's
//! lists.
//!
//! A change must ensure that a cache has a shrinker and lists of its own, as on the kernel's side;
//! and keep the texts of the log, which `guest.sh` searches for.

use ::alloc::sync::Arc;
use kernel::{c_str, prelude::*};
use lowwater_base::fallible::try_arc;
use lowwater_lru_core::Memcg;
use lowwater_shrinker::{Reclaim, Registration, Registry, RegistryConfig, Work};

mod drain;
#[allow(unreachable_pub)]
#[path = "../rust/src/kernel.rs"]
mod embedder;
mod groups;
#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;
#[allow(dead_code, unused_imports)] // As `sys` below.
#[path = "../one_cache/lists_lowwater.rs"]
mod lists;
#[path = "many.rs"]
mod load;
mod nodes;
#[allow(dead_code)] // As `sys` below.
#[path = "place_kernel.rs"]
mod place;
mod proc;
#[allow(dead_code)] // A larger cache uses all of it.
#[path = "sys_kernel.rs"]
mod sys;

module! {
    type: Many,
    name: "many_on_lowwater",
    author: "lowwater",
    description: "Many caches on lowwater's lists",
    license: "GPL",
}

extern "C" {
    fn lowwater_shim_allocated() -> isize;
}

/// The bytes that kmalloc has reserved for lowwater's crates.
fn allocated() -> isize {
    // SAFETY: The function has no requirements.
    unsafe { lowwater_shim_allocated() }
}

/// The groups that no task uses. The tasks of the guest make three more: together as many as `many`
/// in `ci/rust-kernel.sh --all`.
const IDLE: usize = 9_997;

/// The side of lowwater that the kernel's shrinker calls.
struct Bridge {
    registry: Registry,
    root: Memcg,
}

impl kernel_lru::Shrinker for Bridge {
    fn count_objects(&self, _: &kernel_lru::ShrinkControl<'_>) -> kernel_lru::Count {
        // One more than there are: the kernel does not call `scan_objects` for none, and a pass of
        // the registry over its empty caches is a part of what is measured.
        kernel_lru::Count::Objects(load::alive() + 1)
    }

    fn scan_objects(&self, sc: &mut kernel_lru::ShrinkControl<'_>) -> kernel_lru::Scan {
        let mut work = Work::objects(sc.nr_to_scan());
        let node = nodes::node_of(sc);
        let done = self.registry.shrink(
            &self.root,
            node,
            /* priority */ 0,
            Reclaim::KSWAPD,
            &mut work,
        );
        sc.set_nr_scanned(done.scanned);
        kernel_lru::Scan::Freed(done.freed)
    }
}

/// The caches with their shrinkers. After the kernel's shrinker no callback uses the registry.
struct Registered {
    _kernel: kernel_lru::Registration<Bridge>,
    caches: KVVec<(Registration, Arc<load::Few>)>,
}

impl load::Caches for Registered {
    fn at(&self, number: usize) -> Option<&load::Few> {
        self.caches.get(number).map(|(_, cache)| &**cache)
    }
}

fn register(groups: &groups::Owner) -> Option<Registered> {
    let tree = groups.tree();
    let config = RegistryConfig::try_with_topology(try_arc(nodes::Nodes::of_machine())?).ok()?;
    let registry = Registry::try_with_config(tree, config).ok()?;
    let mut caches = KVVec::with_capacity(load::CACHES, GFP_KERNEL).ok()?;
    for _ in 0..load::CACHES {
        let prepared = registry.builder("many_on_lowwater").alloc().ok()?;
        let entries = lists::ListLru::try_with_occupancy(prepared.try_occupancy().ok()?).ok()?;
        let cache = try_arc(load::Few { entries })?;
        let registration = prepared.try_register(Arc::clone(&cache) as _).ok()?;
        caches.push((registration, cache), GFP_KERNEL).ok()?;
    }
    let bridge = Bridge {
        registry,
        root: tree.root().clone(),
    };
    let prepared = kernel_lru::ShrinkerBuilder::new(c_str!("many_on_lowwater"))
        .memcg_aware(false)
        .alloc()
        .ok()?;
    let kernel = prepared.register(kernel::sync::Arc::new(bridge, GFP_KERNEL).ok()?);
    Some(Registered {
        _kernel: kernel,
        caches,
    })
}

/// The module. Its fields are dropped in their order.
struct Many {
    _file: proc::ProcFile,
    _groups: groups::Owner,
    _drained: drain::Drained,
    _end: load::End,
}

impl kernel::Module for Many {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Dropped last also if a later step fails.
        let (end, drained) = (load::End, drain::Drained);
        let groups = groups::begin().map_err(|_| ENOMEM)?;
        groups.create_idle(IDLE).map_err(|_| ENOMEM)?;
        pr_info!("{} KiB of groups\n", allocated() / 1024);
        let load = load::Load(register(&groups).ok_or(ENOMEM)?);
        pr_info!("{} KiB in all\n", allocated() / 1024);
        let file = proc::ProcFile::new(c_str!("many_on_lowwater"), load)?;
        Ok(Self {
            _file: file,
            _groups: groups,
            _drained: drained,
            _end: end,
        })
    }
}
