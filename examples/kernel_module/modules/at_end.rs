// SPDX-License-Identifier: GPL-2.0

//! The reports of an unload, which the guest checks: the entries on lists when nothing uses the
//! cache any more, and the entries that exist after its drop.
//!
//! A change must keep the texts, which `guest.sh` searches for.

use super::cache::Cache;
use core::ops::Deref;
use kernel::prelude::*;

/// A handle on the cache. Dropped after the shrinker and the file, it reports the listed and the
/// live entries, which are the same number then.
pub(crate) struct AtEnd<C: Deref<Target = Cache>>(pub(crate) C);

impl<C: Deref<Target = Cache>> Deref for AtEnd<C> {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.0
    }
}

impl<C: Deref<Target = Cache>> Drop for AtEnd<C> {
    fn drop(&mut self) {
        pr_info!("{} on lists, {} alive\n", self.0.listed(), Cache::alive());
    }
}

/// Reports the entries that the cache left behind. Dropped last.
pub(crate) struct End;

impl Drop for End {
    fn drop(&mut self) {
        pr_info!("{} entries left\n", Cache::alive());
    }
}
