// SPDX-License-Identifier: GPL-2.0

//! Two lists of objects that report to one shrinker, whose first counts forget the second list.
//!
//! A test: an answer of `Empty` while another list of the shrinker has objects would end the calls
//! for that group, and its objects would stay. They would also stay if its walks lost one that they
//! remove with the lock released, or if the rights of reclaim were wrong. It is loaded by a task of
//! a control group, and `drop_caches` must free its objects all the same. A change must keep the
//! texts of the log, which `guest.sh` searches for.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kernel::{c_str, prelude::*, sync::Arc};
use kernel_lru::{
    Count, Isolated, ListLru, Reclaim, Registration, Scan, ShrinkControl, Shrinker, ShrinkerBuilder,
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
        // `drop_caches` has the rights of `GFP_KERNEL`.
        if !sc.flags().contains(Reclaim::MAY_FS) || !sc.flags().contains(Reclaim::MAY_BLOCK) {
            return Scan::Stop;
        }
        let (mut left, mut old) = (sc.nr_to_scan(), Isolated::new());
        let removed = self
            .second
            .walk_one(sc.memcg(), sc.node(), &mut left, |it| {
                if it.item()[0] % 2 == 0 {
                    return it.isolate(&mut old);
                }
                let (object, unlocked) = it.remove();
                drop(object);
                unlocked.retry()
            });
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(removed)
    }
}

struct TwoLists {
    cache: Registration<Cache>,
}

impl kernel::Module for TwoLists {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let prepared = ShrinkerBuilder::new(c_str!("two_lists"))
            .batch(64)
            .seeks(1)
            .alloc()?;
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
