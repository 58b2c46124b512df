//! The transfer cache: batches of free slots on their way from threads that drop objects to threads
//! that allocate.
//!
//! If one thread evicts and others insert, each slot passes from one thread cache to another.
//! Through the chunks it would pass slot by slot, under the lock of the central free list, with a
//! cache miss for each; here a whole batch passes in O(1).
//!
//! A chunk with one of these slots cannot be returned. After [`IDLE_MAX`] batches in a row that no
//! thread has wanted, or if the slab has become too small for them, each further one goes to the
//! chunks, and one that waits as well. A collection returns all.
//!
//! A change must ensure that all slots of a batch are on the batch's node, and that the slots that
//! wait here are returned when the slab shrinks.

use super::free::FreeList;
use crate::fallible::try_box;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lowwater_base::NodeId;

/// The number of slots in a batch.
pub(super) const BATCH: u32 = if cfg!(lowwater_loom) { 1 } else { 128 };
/// The batches have at most this fraction of the slab's slots, as a divisor, when one is added:
/// more than a reclaimer frees at once, between the watermarks.
const PARTS: usize = if cfg!(lowwater_loom) { 1 } else { 16 };
/// The maximum number of batches that are added while no thread wants one.
const IDLE_MAX: u32 = 64;

/// Batches of free slots. Guarded by the lock of the central free list, for which these slots are
/// not free.
#[doc(alias = "depot")]
pub(super) struct TransferCache {
    /// Allocated for the first batch, as most slabs are small.
    batches: Option<Box<Batches>>,
}

#[derive(Default)]
struct Batches {
    by_node: Vec<Vec<FreeList>>,
    /// The number of batches of all nodes.
    len: usize,
    /// The number of batches that were offered since a thread wanted one, up to [`IDLE_MAX`].
    idle: u32,
}

/// Returns the number of batches that may wait in a slab with this number of slots.
fn most(slots: usize) -> usize {
    slots / PARTS / BATCH as usize
}

impl Batches {
    /// Returns the batches of a node, with room for one more; `None` without memory.
    fn of_node(&mut self, node: NodeId) -> Option<&mut Vec<FreeList>> {
        let more = (node.index() + 1).saturating_sub(self.by_node.len());
        self.by_node.try_reserve_exact(more).ok()?;
        self.by_node.extend((0..more).map(|_| Vec::new()));
        let of_node = self.by_node.get_mut(node.index())?;
        of_node.try_reserve(1).ok()?;
        Some(of_node)
    }
}

impl TransferCache {
    pub(super) const fn new() -> Self {
        Self { batches: None }
    }

    /// Adds a batch of a slab with `slots` slots. Returns it if there are enough batches for such a
    /// slab, if no thread wants one, or without memory. If there are then
    /// [too many](Self::has_too_many), the caller also takes one of them ([`pop`](Self::pop)).
    pub(super) fn put(&mut self, batch: FreeList, node: NodeId, slots: usize) -> Result<(), FreeList> {
        let most = most(slots);
        if self.batches.is_none() && most > 0 {
            self.batches = try_box(Batches::default());
        }
        let Some(batches) = &mut self.batches else { return Err(batch) };
        if batches.idle >= IDLE_MAX {
            return Err(batch);
        }
        batches.idle += 1;
        let has_room = batches.len < most;
        let Some(of_node) = batches.of_node(node).filter(|_| has_room) else { return Err(batch) };
        of_node.push(batch);
        batches.len += 1;
        Ok(())
    }

    /// Returns true if more batches wait than a slab with `slots` slots may have, or no thread has
    /// wanted one for long.
    pub(super) fn has_too_many(&self, slots: usize) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.len > most(slots) || batches.idle >= IDLE_MAX)
    }

    /// Takes a batch of slots on `node`, the latest one.
    pub(super) fn take(&mut self, node: NodeId) -> Option<FreeList> {
        let batches = self.batches.as_mut()?;
        batches.idle = 0;
        let batch = batches.by_node.get_mut(node.index())?.pop()?;
        batches.len -= 1;
        Some(batch)
    }

    /// Takes any batch, to return its slots to their chunks.
    pub(super) fn pop(&mut self) -> Option<FreeList> {
        let batches = self.batches.as_mut()?;
        let batch = batches.by_node.iter_mut().find_map(Vec::pop)?;
        batches.len -= 1;
        Some(batch)
    }

    /// Returns the number of batches.
    pub(super) fn len(&self) -> usize {
        self.batches.as_ref().map_or(0, |batches| batches.len)
    }

    /// Returns the number of slots on a node.
    pub(super) fn slots(&self, node: usize) -> usize {
        let of_node = self.batches.as_ref().and_then(|batches| batches.by_node.get(node));
        of_node.map_or(0, |batches| batches.len() * BATCH as usize)
    }

    /// Returns the heap bytes.
    pub(super) fn footprint(&self) -> usize {
        self.batches.as_ref().map_or(0, |batches| {
            let by_node: usize = batches.by_node.iter().map(Vec::capacity).sum();
            size_of::<Batches>()
                + batches.by_node.capacity() * size_of::<Vec<FreeList>>()
                + by_node * size_of::<FreeList>()
        })
    }
}
