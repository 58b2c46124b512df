// SPDX-License-Identifier: GPL-2.0

//! A first cache: pages with numbers, the least recently used of which go back to the kernel when
//! it needs memory. README.md lists the usual changes.
//!
//! A change must keep it a complete module, as it is meant to be copied. `ci/rust-kernel.sh`
//! requires safe Rust, at most 100 lines, 10,000 pages, and the text of the last line of the log.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kernel::{c_str, prelude::*, sync::Arc};
use kernel_lru::{
    Count, Isolated, ListLru, LruArc, Registration, Scan, ShrinkControl, Shrinker, ShrinkerBuilder,
};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

module! {
    type: Template,
    name: "template",
    author: "lowwater",
    description: "A cache that gives memory back",
    license: "GPL",
}

/// A cached object.
struct Page {
    number: u64,
    /// Whether the page was used since the shrinker last saw it.
    used: AtomicBool,
}

/// The cache: its pages are on the lists of the groups that were charged for them.
struct Cache {
    pages: ListLru<Page>,
}

impl Cache {
    /// Creates a page. The list owns one handle, the caller the other one.
    fn insert(&self, number: u64) -> Result<LruArc<Page>> {
        let page = self.pages.alloc(
            Page {
                number,
                used: AtomicBool::new(false),
            },
            GFP_KERNEL,
        )?;
        self.pages.add_obj(page.clone()).map_err(|_| EEXIST)?;
        Ok(page)
    }
}

impl Shrinker for Cache {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        Count::Objects(self.pages.count_one(sc.memcg(), sc.node()))
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let (mut left, mut old) = (sc.nr_to_scan(), Isolated::new());
        // Under the list's lock: used pages get a second chance, the others leave the list.
        self.pages.walk_one(sc.memcg(), sc.node(), &mut left, |it| {
            if it.item().used.swap(false, Relaxed) {
                it.rotate()
            } else {
                it.isolate(&mut old)
            }
        });
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        // The isolated pages are freed here, when no lock is held.
        Scan::Freed(old.count() as u64)
    }
}

/// The module. Its fields are dropped by `rmmod`: first the shrinker, then the cache.
struct Template {
    cache: Registration<Cache>,
}

impl kernel::Module for Template {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let prepared = ShrinkerBuilder::new(c_str!("template")).alloc()?;
        let pages = ListLru::try_with_occupancy(prepared.occupancy())?;
        let cache = prepared.register(Arc::new(Cache { pages }, GFP_KERNEL)?);
        for number in 0..10_000 {
            let page = cache.insert(number)?;
            page.used.store(page.number % 10 == 0, Relaxed);
        }
        pr_info!("{} pages\n", cache.pages.count());
        Ok(Self { cache })
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        pr_info!("{} pages left\n", self.cache.pages.count());
    }
}
