// SPDX-License-Identifier: GPL-2.0

//! The cache of `../one_cache/cache.rs` in the kernel, on lowwater's lists and under its registry
//! of shrinkers. The kernel sees one shrinker, and the registry passes its requests on to the
//! groups.
//!
//! A change must ensure that the fields of `OnLowwater` keep their order: the file ends before the
//! groups that its tasks use, and the wait for RCU and the report come last. `on_lowwater` is the
//! name of the module and of its file of /proc, which `guest.sh` derives from
//! `cache_on_lowwater.ko`.

use kernel::{c_str, prelude::*};

mod at_end;
#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

#[path = "../one_cache/cache.rs"]
mod cache;
mod drain;
#[allow(unreachable_pub)]
#[path = "../rust/src/kernel.rs"]
mod embedder;
mod groups;
#[path = "../one_cache/lists_lowwater.rs"]
mod lists;
#[path = "../one_cache/load.rs"]
mod load;
mod nodes;
#[path = "place_kernel.rs"]
mod place;
mod proc;
mod registry;
#[path = "sys_kernel.rs"]
mod sys;

module! {
    type: OnLowwater,
    name: "on_lowwater",
    author: "lowwater",
    description: "A cache on lowwater's lists",
    license: "GPL",
}

/// The cache and its shrinker.
type Registered = registry::Registered;

/// The module. Its fields are dropped in their order.
struct OnLowwater {
    _file: proc::ProcFile,
    _groups: groups::Owner,
    _drained: drain::Drained,
    _end: at_end::End,
}

impl kernel::Module for OnLowwater {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Dropped last also if a later step fails.
        let (end, drained) = (at_end::End, drain::Drained);
        let groups = groups::begin().map_err(|_| ENOMEM)?;
        let cache = registry::register(groups.tree()).ok_or(ENOMEM)?;
        let file = proc::ProcFile::new(c_str!("on_lowwater"), load::Load::new(cache))?;
        Ok(Self {
            _file: file,
            _groups: groups,
            _drained: drained,
            _end: end,
        })
    }
}
