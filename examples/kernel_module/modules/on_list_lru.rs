// SPDX-License-Identifier: GPL-2.0

//! The cache of `../one_cache/cache.rs` in the kernel, on the kernel's `list_lru`.
//!
//! The module only connects the cache with its load, which a test sends through a file of /proc. A
//! change must ensure that everything is dropped when the module is unloaded, and that all code is
//! safe Rust, which `ci/rust-kernel.sh` checks. `on_list_lru` is the name of the module and of its
//! file of /proc, which `guest.sh` derives from `cache_on_list_lru.ko`.

use kernel::{c_str, prelude::*, sync::Arc};

mod at_end;
#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

#[path = "../one_cache/cache.rs"]
mod cache;
#[path = "lists_kernel.rs"]
mod lists;
#[path = "../one_cache/load.rs"]
mod load;
mod proc;
#[path = "sys_kernel.rs"]
mod sys;

module! {
    type: OnListLru,
    name: "on_list_lru",
    author: "lowwater",
    description: "A cache on list_lru",
    license: "GPL",
}

/// The cache and its shrinker, which is dropped first.
struct Registered {
    _shrinker: kernel_lru::Registration<cache::Cache>,
    cache: at_end::AtEnd<Arc<cache::Cache>>,
}

impl core::ops::Deref for Registered {
    type Target = cache::Cache;

    fn deref(&self) -> &cache::Cache {
        &self.cache
    }
}

/// The module. Its fields are dropped in their order.
struct OnListLru {
    _file: proc::ProcFile,
    _end: at_end::End,
}

impl kernel::Module for OnListLru {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let prepared = kernel_lru::ShrinkerBuilder::new(c_str!("on_list_lru")).alloc()?;
        let lists = kernel_lru::ListLru::try_with_occupancy(prepared.occupancy())?;
        let numbers = load::WORKERS * load::NUMBERS_PER_WORKER;
        let cache = cache::Cache::try_new(numbers, lists).map_err(|_| ENOMEM)?;
        let cache = Arc::new(cache, GFP_KERNEL)?;
        let registered = Registered {
            _shrinker: prepared.register(cache.clone()),
            cache: at_end::AtEnd(cache),
        };
        Ok(Self {
            _file: proc::ProcFile::new(c_str!("on_list_lru"), load::Load::new(registered))?,
            _end: at_end::End,
        })
    }
}
