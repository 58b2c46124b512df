//! Allocated and freed objects reuse the same memory. In a separate process: readers of other tests
//! would hold the memory back.
//!
//! If retired slots were not reused, a cache under inserts would grow.
//!
//! A change must keep the test alone in its process.

#![cfg(not(lowwater_loom))]

use lowwater_lru_core::NodeId;
use lowwater_store::slab::{Slab, SlotState};
use lowwater_store::{slotted, CompressedLinks};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Thing(CompressedLinks, SlotState);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

impl Drop for Thing {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn freed_slots_are_reused() {
    let slab = Slab::new();
    let thing = || slab.alloc(Thing(CompressedLinks::new(), SlotState::new(0)), NodeId::ZERO).ok().expect("memory");
    let mut things: VecDeque<_> = (0..3_000).map(|_| thing()).collect();
    let full = slab.footprint();
    let mut first_drop = None;
    for allocated in 3_000..100_000 {
        things.pop_front();
        if first_drop.is_none() && DROPPED.load(Ordering::Relaxed) != 0 {
            first_drop = Some((allocated - 3_000, slab.footprint()));
        }
        things.push_back(thing());
    }
    assert!(slab.footprint().get() < 4 * full.get(), "{:?} after {full:?}", slab.footprint());
    // Retired objects wait in bags of 1/64 of the slots. The fence on all processors that lets them
    // be dropped is slow, so only every second bag may issue one (see `slab.rs`).
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_epoch)))]
    {
        let (retired, footprint) = first_drop.expect("dropped");
        let bags = retired as f64 / (footprint.get() as f64 / size_of::<Thing>() as f64 / 64.0);
        assert!((1.5..2.5).contains(&bags), "one fence for two bags, not for {bags}");
    }
    assert!(DROPPED.load(Ordering::Relaxed) > 94_000, "retiring objects drops earlier ones");
}
