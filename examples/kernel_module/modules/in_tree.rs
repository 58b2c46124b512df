// SPDX-License-Identifier: GPL-2.0

//! The cache of `../one_cache/cache.rs` on lowwater's lists, as code inside the kernel could have
//! it: its shrinker is called for each control group, and lowwater's group of a control group ends
//! with it.
//!
//! It needs a kernel with `../in-tree.patch`, which exports to modules what the kernel's own code
//! has. A change must keep the differences from `on_lowwater.rs` in `in_tree_shrinker.rs` and in
//! the notifier; and `in_tree` as the name of the module and of its file of /proc, which `guest.sh`
//! derives from `cache_in_tree.ko`.

use kernel::{c_str, prelude::*};

mod at_end;
#[path = "../one_cache/cache.rs"]
mod cache;
mod drain;
#[allow(unreachable_pub)]
#[path = "../rust/src/kernel.rs"]
mod embedder;
mod groups;
#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;
#[path = "../one_cache/lists_lowwater.rs"]
mod lists;
#[path = "../one_cache/load.rs"]
mod load;
#[allow(dead_code)] // There is no registry of lowwater.
mod nodes;
#[path = "place_kernel.rs"]
mod place;
mod proc;
#[path = "in_tree_shrinker.rs"]
mod shrinker;
#[path = "sys_kernel.rs"]
mod sys;

module! {
    type: InTree,
    name: "in_tree",
    author: "lowwater",
    description: "A cache on lowwater's lists, aware of control groups",
    license: "GPL",
}

/// The cache and its shrinker.
type Registered = shrinker::Registered;

extern "C" {
    fn lowwater_notifier_register() -> i32;
    fn lowwater_notifier_unregister();
}

/// Called by the kernel's notifier, through `in_tree_c.c`, when a control group has ended, in a
/// context that may sleep.
///
/// # Safety
///
/// `memcg` is a control group that lives during the call.
#[no_mangle]
unsafe extern "C" fn lowwater_memcg_ended(memcg: *mut kernel::ffi::c_void) {
    // SAFETY: `memcg` is live (this function's requirement).
    unsafe { groups::ended(memcg) }
}

/// The registered notifier, dropped before the groups.
struct Notifier;

impl Notifier {
    fn register() -> Result<Self> {
        // SAFETY: The groups exist, and it is registered once.
        kernel::error::to_result(unsafe { lowwater_notifier_register() })?;
        Ok(Self)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: It is registered. Afterwards no callback runs.
        unsafe { lowwater_notifier_unregister() }
    }
}

/// The module. Its fields are dropped in their order, which must stay, for the reasons in
/// `on_lowwater.rs`.
struct InTree {
    _file: proc::ProcFile,
    _notifier: Notifier,
    _groups: groups::Owner,
    _drained: drain::Drained,
    _end: at_end::End,
}

impl kernel::Module for InTree {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Dropped last also if a later step fails.
        let (end, drained) = (at_end::End, drain::Drained);
        let groups = groups::begin().map_err(|_| ENOMEM)?;
        let notifier = Notifier::register()?;
        let cache = shrinker::register(groups.tree()).ok_or(ENOMEM)?;
        let file = proc::ProcFile::new(c_str!("in_tree"), load::Load::new(cache))?;
        Ok(Self {
            _file: file,
            _notifier: notifier,
            _groups: groups,
            _drained: drained,
            _end: end,
        })
    }
}
