// SPDX-License-Identifier: GPL-2.0

//! The caches of `many.rs` on the kernel's `list_lru`.
//!
//! One of the two sides of a comparison: `many_lowwater.rs` has the same caches on lowwater's
//! lists.
//!
//! A change must ensure that each cache has a shrinker and lists of its own, as on lowwater's side.

use kernel::{c_str, prelude::*, sync::Arc};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;
#[allow(dead_code, unused_imports)] // As `sys` below.
#[path = "lists_kernel.rs"]
mod lists;
#[path = "many.rs"]
mod load;
mod proc;
#[allow(dead_code)] // A larger cache uses all of it.
#[path = "sys_kernel.rs"]
mod sys;

module! {
    type: Many,
    name: "many_on_list_lru",
    author: "lowwater",
    description: "Many caches on list_lru",
    license: "GPL",
}

/// The caches with their shrinkers.
struct Registered(KVVec<kernel_lru::Registration<load::Few>>);

impl load::Caches for Registered {
    fn at(&self, number: usize) -> Option<&load::Few> {
        self.0.get(number).map(|cache| &**cache)
    }
}

/// The module. Its fields are dropped in their order.
struct Many {
    _file: proc::ProcFile,
    _end: load::End,
}

impl kernel::Module for Many {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut caches = KVVec::with_capacity(load::CACHES, GFP_KERNEL)?;
        for _ in 0..load::CACHES {
            let prepared = kernel_lru::ShrinkerBuilder::new(c_str!("many_on_list_lru")).alloc()?;
            let entries = kernel_lru::ListLru::try_with_occupancy(prepared.occupancy())?;
            let cache = Arc::new(load::Few { entries }, GFP_KERNEL)?;
            caches.push(prepared.register(cache), GFP_KERNEL)?;
        }
        let load = load::Load(Registered(caches));
        Ok(Self {
            _file: proc::ProcFile::new(c_str!("many_on_list_lru"), load)?,
            _end: load::End,
        })
    }
}
