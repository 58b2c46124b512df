//! Compaction: which chunks are evacuated, and that no new object goes into them.
//!
//! The tests move the objects themselves, as the cache does. They take too many objects for Miri.
//!
//! A change must ensure that the memory is compared before and after a compaction.

use super::thing::{eventually, shared, thing, thing_on, Thing};
use crate::slab::{SharedSlab, Slab, Slot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicUsize;
use lowwater_base::NodeId;

/// Of all objects, one in twelve remains on each of `nodes` nodes, distributed over all chunks.
fn scattered(slab: &Slab<Thing>, nodes: u16, dropped: &Arc<AtomicUsize>) -> Vec<Slot<Thing>> {
    thinned(slab, nodes, dropped, |at| at % 12 < usize::from(nodes))
}

/// Of many objects on `nodes` nodes, those remain for which `stays` returns true; its argument is
/// the number in the order of allocation, from 1.
fn thinned(
    slab: &Slab<Thing>,
    nodes: u16,
    dropped: &Arc<AtomicUsize>,
    stays: impl Fn(usize) -> bool,
) -> Vec<Slot<Thing>> {
    let mut things: Vec<_> =
        (0..100_000).map(|number| thing_on(slab, number, number as u16 % nodes, dropped)).collect();
    assert!(!slab.is_sparse() && slab.begin_compaction() == 0, "nothing is to be gained");
    let mut at = 0;
    things.retain(|_| {
        at += 1;
        stays(at)
    });
    eventually(|| slab.collect().get() == 0);
    things
}

/// Returns the object's node if its chunk is being evacuated.
fn leaves(slot: &Slot<Thing>) -> Option<NodeId> {
    // SAFETY: the object has its handle, so its slot is not free.
    unsafe { SharedSlab::evacuated_node(slot.0) }
}

/// Without compaction no chunk would become empty.
#[test]
fn compaction_moves_the_objects_of_each_node_into_fewer_chunks() {
    for nodes in [1, 2] {
        let (slab, dropped) = (Slab::new(), Arc::default());
        let mut things = scattered(&slab, nodes, &dropped);
        let before: Vec<_> = things.iter().map(|thing| thing.number).collect();
        let scattered = slab.footprint().get();
        assert!(slab.is_sparse());
        let evacuating = slab.begin_compaction();
        assert!(evacuating > things.len() * 3 / 4 && evacuating <= things.len(), "{evacuating} of {}", things.len());
        assert_eq!(slab.begin_compaction(), 0, "it is under way");
        // Slots that are freed meanwhile in evacuated chunks are not used for new objects.
        let mut moved = 0;
        for slot in &mut things {
            if let Some(node) = leaves(slot) {
                assert_eq!(node, slot.node());
                *slot = thing_on(&slab, slot.number, node.get(), &dropped);
                moved += 1;
                assert!(leaves(slot).is_none() && slot.node() == node);
            }
        }
        assert_eq!(moved, evacuating);
        eventually(|| slab.collect().get() == 0);
        slab.end_compaction();
        slab.assert_valid();
        assert!(slab.footprint().get() * 6 / u64::from(nodes) < scattered, "{:?} of {scattered}", slab.footprint());
        assert!(things.iter().map(|thing| thing.number).eq(before), "nothing is lost");
        assert_eq!(slab.begin_compaction(), 0);
    }
}

#[test]
fn chunks_not_emptied_by_a_compaction_are_allocated_from_again() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let mut things = scattered(&slab, 1, &dropped);
    let before = slab.footprint().get();
    assert!(slab.begin_compaction() > 0);
    slab.end_compaction();
    slab.assert_valid();
    things.extend((0..80_000).map(|number| thing(&slab, number, &dropped)));
    assert!(slab.footprint().get() <= before + (64 << 10), "{:?}, {before} before", slab.footprint());
    slab.assert_valid();
}

/// Free slots that a thread cache got before the compaction may be in evacuated chunks, too.
#[test]
fn cached_slots_of_evacuated_chunks_are_not_allocated() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let mut things = scattered(&slab, 1, &dropped);
    things.truncate(things.len() / 2);
    eventually(|| {
        let mut thread_cache = shared(&slab).thread_caches.local().lock();
        shared(&slab).advance(&mut thread_cache, true);
        thread_cache.ready.len() > 0
    });
    things.truncate(things.len() - 200);
    let free = shared(&slab).thread_caches.local().lock().free_len();
    assert!(free >= 100, "{free}: each drop has freed at least one slot, and half of them may be in transfer");
    assert!(slab.begin_compaction() > 0);
    for number in 0..200 {
        things.push(thing(&slab, number, &dropped));
        assert!(things.last().and_then(leaves).is_none(), "object {number} is in a chunk that is to be emptied");
    }
    slab.end_compaction();
    slab.assert_valid();
}

/// All chunks are about equally full, a little less than half: not all of them can be evacuated.
#[test]
fn compaction_selects_no_more_objects_than_fit_elsewhere() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let mut things = thinned(&slab, 1, &dropped, |at| at % 25 < 12);
    let before = slab.footprint().get();
    let evacuating = slab.begin_compaction();
    assert!(evacuating > things.len() / 3 && evacuating < things.len() * 2 / 3, "{evacuating} of {}", things.len());
    for slot in &mut things {
        if leaves(slot).is_some() {
            *slot = thing(&slab, slot.number, &dropped);
        }
        assert!(
            slab.footprint().get() <= before,
            "no chunk is added for the copies: {:?}, {before} before",
            slab.footprint()
        );
    }
    eventually(|| slab.collect().get() == 0);
    slab.end_compaction();
    slab.assert_valid();
    assert!(slab.footprint().get() < before * 6 / 10, "{:?} of {before}", slab.footprint());
}
