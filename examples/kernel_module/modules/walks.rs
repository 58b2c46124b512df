// SPDX-License-Identifier: GPL-2.0

//! Walks whose callback keeps each object, and the removal of all objects.
//!
//! A test: C visits a rotated object again until the walk's visits are used up, and `kernel_lru`
//! must not. A change must keep the texts, which `guest.sh` searches for.

use kernel::{c_str, prelude::*};
use kernel_lru::{Isolate, ListLru, LruStatus, NodeId, ShrinkerBuilder};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

module! {
    type: Walks,
    name: "walks",
    author: "lowwater",
    description: "Walks that keep each object",
    license: "GPL",
}

/// The objects: more than `ListLru::clear` removes at a time, and not a multiple of that.
/// `ci/rust-kernel.sh` expects this number of visits.
const OBJECTS: usize = 2500;
/// More visits than there are objects.
const VISITS: u64 = 20_000;

struct Walks;

/// Walks the lists of each node, of which only those of one group have objects, and reports the
/// visits: all of them, and those of the object that was visited most.
fn walk<F>(name: &str, lru: &ListLru<usize>, verdict: F) -> Result
where
    F: for<'a> Fn(Isolate<'a, usize>) -> LruStatus<'a>,
{
    let mut visits = KVVec::with_capacity(OBJECTS, GFP_KERNEL)?;
    for _ in 0..OBJECTS {
        visits.push(0_u32, GFP_KERNEL)?;
    }
    let mut used = 0;
    for node in NodeId::all() {
        let mut left = VISITS;
        lru.walk_node(node, &mut left, |it| {
            if let Some(of_it) = visits.get_mut(*it.item()) {
                *of_it += 1;
            }
            verdict(it)
        });
        used += VISITS - left;
    }
    let most = visits.iter().max().copied().unwrap_or(0);
    pr_info!("{name} {used} visits of {OBJECTS}, at most {most} of one\n");
    Ok(())
}

impl kernel::Module for Walks {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let prepared = ShrinkerBuilder::new(c_str!("walks")).alloc()?;
        let lru = ListLru::try_with_occupancy(prepared.occupancy())?;
        for number in 0..OBJECTS {
            let object = lru.alloc(number, GFP_KERNEL)?;
            lru.add_obj(object).map_err(|_| EEXIST)?;
        }
        walk("rotate", &lru, |it| it.rotate())?;
        walk("skip", &lru, |it| it.skip())?;
        lru.clear();
        pr_info!("{} objects after clear\n", lru.count());
        Ok(Self)
    }
}
