//! Free slots on their way from threads that drop objects to threads that allocate.
//!
//! A change must ensure that no test relies on the moment at which a grace period ends.

use super::thing::{eventually, shared, thing, Thing};
use crate::slab::free::{Free, FreeList};
use crate::slab::transfer_cache::{TransferCache, BATCH};
use crate::slab::{RetiredBytes, Slab, Slot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use lowwater_base::hash::GOLDEN_RATIO;
use lowwater_base::NodeId;

/// Objects of the slab of these tests.
const OBJECTS: usize = 200_000;

/// A slab in whose transfer cache slots wait.
struct Freed {
    slab: Slab<Thing>,
    things: Vec<Slot<Thing>>,
    /// The number of all objects so far.
    nr: usize,
    dropped: Arc<AtomicUsize>,
    /// The shared part of the slab has a clone while it exists.
    retired: Arc<RetiredBytes>,
}

impl Freed {
    fn new() -> Self {
        let retired = Arc::new(RetiredBytes::new());
        let slab = Slab::with_retired(Arc::clone(&retired));
        let mut this = Self { slab, things: Vec::new(), nr: 0, dropped: Arc::default(), retired };
        eventually(|| {
            if this.things.len() < OBJECTS / 2 {
                this.alloc(OBJECTS);
            }
            this.step();
            this.waiting() > OBJECTS / 20
        });
        this
    }

    fn alloc(&mut self, nr: usize) {
        self.things.extend((0..nr).map(|_| thing(&self.slab, 0, &self.dropped)));
        self.nr += nr;
    }

    /// Allocates more than a thread cache has, so that a batch is wanted, and lets another thread
    /// drop ten times as many objects.
    fn step(&mut self) {
        self.alloc(3 * BATCH as usize);
        let rest = self.things.len() - 4_000;
        self.elsewhere(|things| things.truncate(rest));
    }

    /// Changes the objects on another thread.
    fn elsewhere(&mut self, change: impl FnOnce(&mut Vec<Slot<Thing>>) + Send) {
        let things = &mut self.things;
        std::thread::scope(|s| {
            s.spawn(|| change(things));
        });
    }

    fn waiting(&self) -> usize {
        shared(&self.slab).in_transfer()
    }
}

#[test]
fn slots_that_one_thread_freed_are_allocated_by_another_batch_by_batch() {
    let mut freed = Freed::new();
    let (before, batch, used) = (freed.waiting(), BATCH as usize, shared(&freed.slab).used());
    // Slots of the thread cache come first.
    while freed.waiting() == before {
        freed.alloc(1);
    }
    while freed.waiting() > 0 {
        let before = freed.waiting();
        freed.alloc(batch);
        assert_eq!(freed.waiting(), before - batch, "each batch as a whole");
    }
    assert_eq!(shared(&freed.slab).used(), used, "nothing was taken from the chunks");
    freed.slab.assert_valid();
}

#[test]
fn slots_that_no_thread_wants_go_to_their_chunks() {
    // Readers of other tests may hold back the objects.
    eventually(|| {
        let mut freed = Freed::new();
        freed.elsewhere(Vec::clear);
        freed.waiting() == 0
    });
}

#[test]
fn a_collection_and_a_compaction_return_slots_to_their_chunks() {
    let mut freed = Freed::new();
    let (before, batch) = (freed.waiting(), BATCH as usize);
    freed.slab.collect_some(3 * batch + 1);
    assert_eq!(freed.waiting(), before - 3 * batch, "a bounded collection returns as many as it may");
    eventually(|| freed.slab.collect().get() == 0);
    assert_eq!((freed.waiting(), shared(&freed.slab).used()), (0, freed.things.len()));
    let mut number = 0;
    freed.elsewhere(|things| {
        things.retain(|_| {
            number += 1;
            number % 10 == 0
        });
    });
    eventually(|| freed.slab.collect().get() == 0);
    eventually(|| {
        freed.alloc(5_000);
        freed.step();
        freed.waiting() > 0
    });
    assert!(freed.slab.begin_compaction() > 0);
    assert_eq!(freed.waiting(), 0);
    // Batches are wanted again.
    freed.step();
    assert_eq!(freed.waiting(), 0, "slots of evacuated chunks would not come back");
    freed.slab.end_compaction();
    freed.slab.assert_valid();
}

/// A compaction begins with the return of these slots.
#[test]
fn a_slab_is_sparse_regardless_of_slots_in_transfer() {
    let mut freed = Freed::new();
    // Mixed, so that no chunk becomes empty.
    let mut number = 0_u64;
    freed.things.sort_by_cached_key(|_| {
        number += 1;
        number.wrapping_mul(GOLDEN_RATIO)
    });
    eventually(|| {
        freed.step();
        freed.slab.is_sparse()
    });
    let (used, slots) = shared(&freed.slab).used_and_slots();
    assert!(2 * used >= slots && 2 * (used - freed.waiting()) < slots, "{used} and {slots}");
}

#[test]
fn a_slab_may_be_dropped_with_slots_in_transfer() {
    let Freed { slab, things, nr, dropped, retired } = Freed::new();
    drop(slab);
    drop(things);
    assert_eq!(Arc::try_unwrap(dropped).unwrap().into_inner(), nr);
    assert!(Arc::try_unwrap(retired).is_ok(), "the shared part is freed with the last slot");
}

/// A list of one slot, which is never read.
fn list(slot: &mut u64) -> FreeList {
    let mut list = FreeList::new();
    // SAFETY: the slot is borrowed for this test alone, and as large as a `Free`.
    unsafe { list.push(NonNull::from(slot).cast::<Free>()) };
    list
}

#[test]
fn batches_are_for_their_node_and_a_part_of_the_slab() {
    let (mut transfer, mut slots) = (TransferCache::new(), [0_u64; 5]);
    let [one, two, three, four, five] = slots.each_mut().map(list);
    let (node, other) = (NodeId::new(0), NodeId::new(1));
    assert!(transfer.put(one, node, 2_047).is_err(), "a 16th of the slab is less than a batch");
    assert_eq!((transfer.len(), transfer.footprint()), (0, 0));
    assert!(transfer.put(two, node, 2_048).is_ok());
    assert!(transfer.put(three, node, 4_095).is_err());
    assert!(transfer.put(four, other, 4_096).is_ok());
    assert!(transfer.put(five, other, 4_096).is_err());
    assert_eq!([0, 1, 2].map(|node| transfer.slots(node)), [128, 128, 0]);
    assert!(transfer.take(NodeId::new(2)).is_none());
    assert!(transfer.take(node).is_some() && transfer.take(node).is_none());
    assert!(transfer.footprint() >= 2 * size_of::<FreeList>());
    assert!(transfer.pop().is_some() && transfer.pop().is_none() && transfer.len() == 0);
}

#[test]
fn batches_are_refused_after_64_that_no_thread_wanted() {
    let (mut transfer, mut slots) = (TransferCache::new(), [0_u64; 66]);
    let (node, mut batches) = (NodeId::new(0), slots.iter_mut().map(list));
    let mut put = |transfer: &mut TransferCache| transfer.put(batches.next().unwrap(), node, usize::MAX).is_ok();
    assert!((0..64).all(|_| !transfer.has_too_many(usize::MAX) && put(&mut transfer)));
    assert!(transfer.has_too_many(usize::MAX) && !put(&mut transfer));
    assert!(transfer.take(NodeId::new(1)).is_none(), "a thread wants one, though not of this node");
    assert!(!transfer.has_too_many(usize::MAX) && put(&mut transfer));
    assert!(!transfer.has_too_many(65 * 2_048) && transfer.has_too_many(65 * 2_048 - 1), "a 16th of the slab");
}
