//! Objects that count their drops, and waits for a state, for the tests of this folder.
//!
//! A change must ensure that a wait ends by the state, or by a failure.

use crate::slab::{SharedSlab, Slab, Slot, SlotState, Slotted};
use crate::CompressedLinks;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use lowwater_base::NodeId;

/// An object that counts its drop in a counter.
pub struct Thing {
    pub links: CompressedLinks,
    pub state: SlotState,
    pub number: usize,
    pub dropped: Arc<AtomicUsize>,
}

crate::slotted!(impl[] for Thing { links, state, weight: |thing| size_of_val(thing) as u64 });

impl Drop for Thing {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        assert!(self.number != PANICS, "its own fault");
    }
}

/// The number of a thing whose drop panics.
pub const PANICS: usize = usize::MAX;

/// Allocates a thing on node 0.
pub fn thing(slab: &Slab<Thing>, number: usize, dropped: &Arc<AtomicUsize>) -> Slot<Thing> {
    thing_on(slab, number, 0, dropped)
}

/// Allocates a thing on a node.
pub fn thing_on(slab: &Slab<Thing>, number: usize, node: u16, dropped: &Arc<AtomicUsize>) -> Slot<Thing> {
    let thing = Thing { links: CompressedLinks::new(), state: SlotState::new(0), number, dropped: Arc::clone(dropped) };
    slab.alloc(thing, NodeId::new(node)).unwrap_or_else(|_| panic!("memory"))
}

/// The shared part of a slab that has had objects.
pub fn shared<T: Slotted>(slab: &Slab<T>) -> &SharedSlab<T> {
    slab.shared().expect("objects were made")
}

/// Waits until `is` returns true. Readers of other tests may delay it.
///
/// # Panics
///
/// After 60 seconds, far more than a slow machine needs.
pub fn eventually(mut is: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is() {
        assert!(started.elapsed().as_secs() < 60, "the awaited state was not reached");
        crate::sync::yield_now();
    }
}
