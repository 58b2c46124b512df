//! Free slots on their way from threads that drop objects to threads that allocate.
//!
//! A change must ensure that no test relies on the moment at which a grace period ends.

use super::thing::{eventually, shared, thing, Thing};
use crate::slab::free::{Free, FreeList};
use crate::slab::transfer_cache::{TransferCache, BATCH};
use crate::slab::{Slab, Slot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use lowwater_base::NodeId;

/// The slots of the slab of these tests.
const SLOTS: usize = 200_000;

/// Returns a slab whose thread caches and transfer cache have got free slots, all by one thread,
/// and the objects that are left.
fn with_freed_slots(dropped: &Arc<AtomicUsize>) -> (Slab<Thing>, Vec<Slot<Thing>>) {
    let slab = Slab::new();
    let mut things: Vec<_> = (0..SLOTS).map(|number| thing(&slab, number, dropped)).collect();
    std::thread::scope(|s| {
        s.spawn(|| things.truncate(SLOTS / 2));
    });
    (slab, things)
}

fn waiting(slab: &Slab<Thing>) -> usize {
    shared(slab).in_transfer()
}

#[test]
fn slots_that_one_thread_freed_are_allocated_by_another_batch_by_batch() {
    let dropped = Arc::default();
    let (slab, mut things) = with_freed_slots(&dropped);
    let (before, batch) = (waiting(&slab), BATCH as usize);
    assert!(before % batch == 0 && before > SLOTS / 20 && before <= SLOTS / 15, "{before}: a 16th of the slots");
    let used = shared(&slab).used();
    // Slots of the chunks for the rest of the thread cache.
    while waiting(&slab) == before {
        things.push(thing(&slab, 0, &dropped));
    }
    while waiting(&slab) > 0 {
        let before = waiting(&slab);
        things.extend((0..batch).map(|number| thing(&slab, number, &dropped)));
        assert_eq!(waiting(&slab), before - batch, "each batch as a whole");
    }
    assert!(shared(&slab).used() <= used + batch, "nothing was taken from the chunks");
    slab.assert_valid();
}

#[test]
fn a_bounded_collection_leaves_slots_to_threads_that_allocate() {
    let dropped = Arc::default();
    let (slab, mut things) = with_freed_slots(&dropped);
    let before = waiting(&slab);
    while waiting(&slab) == before {
        things.push(thing(&slab, 0, &dropped));
    }
    slab.collect_some(usize::MAX);
    assert_eq!(waiting(&slab), before - BATCH as usize, "a batch was taken since");
    slab.collect_some(usize::MAX);
    assert_eq!(waiting(&slab), 0, "none was taken since");
    slab.assert_valid();
}

#[test]
fn a_collection_and_a_compaction_return_all_slots_to_their_chunks() {
    let dropped = Arc::default();
    let (slab, things) = with_freed_slots(&dropped);
    eventually(|| slab.collect().get() == 0);
    assert_eq!((waiting(&slab), shared(&slab).used()), (0, things.len()));
    let (slab, mut things) = with_freed_slots(&dropped);
    // Sparse, also without the slots that are in transfer and retired.
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut number = 0;
            things.retain(|_| {
                number += 1;
                number % 10 == 0
            });
        });
    });
    assert!(waiting(&slab) > 0);
    assert!(slab.begin_compaction() > 0);
    assert_eq!(waiting(&slab), 0);
    std::thread::scope(|s| {
        s.spawn(|| things.truncate(1_000));
    });
    assert_eq!(waiting(&slab), 0, "slots of evacuated chunks would not come back");
    slab.end_compaction();
    slab.assert_valid();
}

#[test]
fn a_slab_may_be_dropped_with_slots_in_transfer() {
    let dropped = Arc::default();
    let (slab, things) = with_freed_slots(&dropped);
    assert!(waiting(&slab) > 0);
    drop(slab);
    drop(things);
    assert_eq!(Arc::try_unwrap(dropped).unwrap().into_inner(), SLOTS);
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
    assert!(transfer.put(two, node, 2_048).is_ok());
    assert!(transfer.put(three, node, 4_095).is_err());
    assert!(transfer.put(four, other, 4_096).is_ok());
    assert!(transfer.put(five, other, 4_096).is_err());
    assert!(transfer.is_unused() && transfer.take(NodeId::new(2)).is_none() && transfer.is_unused());
    assert!(transfer.take(node).is_some() && transfer.take(node).is_none());
    assert!(!transfer.is_unused() && transfer.is_unused());
    assert!(transfer.footprint() >= 2 * size_of::<FreeList>());
    assert!(transfer.pop().is_some() && transfer.pop().is_none());
}
