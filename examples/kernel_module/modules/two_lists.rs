// SPDX-License-Identifier: GPL-2.0

//! Two lists of objects that report to one shrinker, whose first counts forget the second list.
//!
//! A test: an answer of `Empty` while another list of the shrinker has objects would end the calls
//! for that group, and its objects would stay. It is loaded by a task of a control group, and
//! `drop_caches` must free its objects all the same. A change must keep the texts of the log, which
//! `guest.sh` searches for.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kernel::{c_str, prelude::*, sync::Arc};
use kernel_lru::{
    Count, Isolated, ListLru, Registration, Scan, ShrinkControl, Shrinker, ShrinkerBuilder,
};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

module! {
    type: TwoLists,
    name: "two_lists",
    author: "lowwater",
    description: "Two lists of one shrinker",
    license: "GPL",
}

/// The counts that forget the second list: fewer than the 30 drops of `guest.sh`, each of which
/// counts at least once.
const FORGETFUL: usize = 20;
/// The objects of the second list; `ci/rust-kernel.sh` expects this number.
const OBJECTS: usize = 5000;

struct Cache {
    first: ListLru<u64>,
    second: ListLru<[u64; 4]>,
    counts: AtomicUsize,
}

impl Shrinker for Cache {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        let first = self.first.count_one(sc.memcg(), sc.node());
        if self.counts.fetch_add(1, Relaxed) < FORGETFUL && first == 0 {
            return Count::Empty;
        }
        Count::Objects(first + self.second.count_one(sc.memcg(), sc.node()))
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let (mut left, mut old) = (sc.nr_to_scan(), Isolated::new());
        self.second
            .walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut old));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(old.len() as u64)
    }
}

struct TwoLists {
    cache: Registration<Cache>,
}

impl kernel::Module for TwoLists {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let prepared = ShrinkerBuilder::new(c_str!("two_lists")).alloc()?;
        let cache = Cache {
            first: ListLru::try_with_occupancy(prepared.occupancy())?,
            second: ListLru::try_with_occupancy(prepared.occupancy())?,
            counts: AtomicUsize::new(0),
        };
        let cache = prepared.register(Arc::new(cache, GFP_KERNEL)?);
        for number in 0..OBJECTS as u64 {
            let object = cache.second.alloc([number; 4], GFP_KERNEL)?;
            cache.second.add_obj(object).map_err(|_| EEXIST)?;
        }
        pr_info!("{} objects at first\n", cache.second.count());
        Ok(Self { cache })
    }
}

impl Drop for TwoLists {
    fn drop(&mut self) {
        pr_info!("{} objects left\n", self.cache.second.count());
        pr_info!("{} counts\n", self.cache.counts.load(Relaxed));
    }
}
