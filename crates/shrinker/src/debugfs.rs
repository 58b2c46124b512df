//! The kernel's shrinker debugfs, as text: for people, and for tools that read
//! `/sys/kernel/debug/shrinker`.
//!
//! | kernel | here |
//! |---|---|
//! | `/sys/kernel/debug/shrinker/` | [`Registry::debugfs_names`]: `<name>-<id>` for each |
//! | `cat <name>-<id>/count` | [`Registry::debugfs_count`] |
//! | `echo "<cgroup> <node> <objects>" > <name>-<id>/scan` | [`Registry::debugfs_scan`] |
//!
//! The formats and errors are those of Linux 7.3's `mm/shrinker_debug.c`, with group ids of this
//! tree where the kernel has inode numbers of cgroups. Statistics that the kernel does not show
//! there (debts, freed objects, time, last run) are in a [`snapshot`](Registry::snapshot).
//!
//! A change must keep the kernel's text formats.

mod count;
mod scan;

pub use scan::{ScanError, ScanRequest};

use alloc::{string::String, vec::Vec};

use crate::id::ShrinkerId;
use crate::registry::Registry;

impl Registry {
    /// Returns the debugfs name of every registered shrinker, `<name>-<id>`, by id.
    pub fn debugfs_names(&self) -> Vec<String> {
        self.core.shrinker_stats().iter().map(crate::ShrinkerStats::full_name).collect()
    }

    /// Finds the shrinker with this debugfs name.
    pub fn debugfs_find(&self, name: &str) -> Option<ShrinkerId> {
        self.core.shrinker_stats().iter().find(|shrinker| shrinker.full_name() == name).map(|shrinker| shrinker.id)
    }
}
