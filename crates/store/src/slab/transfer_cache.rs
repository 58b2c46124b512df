//! The transfer cache: batches of free slots on their way from threads that drop objects to threads
//! that allocate.
//!
//! If one thread evicts and others insert, each slot passes from one thread cache to another.
//! Through the chunks it would pass slot by slot, under the lock of the central free list, with a
//! cache miss for each; here a whole batch passes in O(1).
//!
//! A change must ensure that all slots of a batch are on the batch's node, and that few slots wait
//! here: a chunk with one of them cannot be returned.

use super::free::FreeList;
use crate::fallible::try_box;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lowwater_base::NodeId;

/// The number of slots in a batch.
pub(super) const BATCH: u32 = 128;
/// The batches have at most this fraction of the slab's slots, as a divisor: more than a reclaimer
/// frees at once, between the watermarks.
const PARTS: usize = 16;

/// Batches of free slots. Guarded by the lock of the central free list, for which these slots are
/// not free.
pub(super) struct TransferCache {
    /// Allocated for the first batch, as most slabs are small.
    batches: Option<Box<Batches>>,
}

#[derive(Default)]
struct Batches {
    by_node: Vec<Vec<FreeList>>,
    /// The number of batches of all nodes.
    len: usize,
    /// True if a batch was taken since the last call of [`TransferCache::is_unused`].
    was_used: bool,
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
    /// slab, or no memory.
    pub(super) fn put(&mut self, batch: FreeList, node: NodeId, slots: usize) -> Result<(), FreeList> {
        let most = slots / PARTS / BATCH as usize;
        if self.batches.is_none() && most > 0 {
            self.batches = try_box(Batches::default());
        }
        let Some(batches) = self.batches.as_mut().filter(|batches| batches.len < most) else { return Err(batch) };
        let Some(of_node) = batches.of_node(node) else { return Err(batch) };
        of_node.push(batch);
        batches.len += 1;
        Ok(())
    }

    /// Takes a batch of slots on `node`, the latest one.
    pub(super) fn take(&mut self, node: NodeId) -> Option<FreeList> {
        let batches = self.batches.as_mut()?;
        let batch = batches.by_node.get_mut(node.index())?.pop()?;
        batches.len -= 1;
        batches.was_used = true;
        Some(batch)
    }

    /// Returns true if no batch was taken since the last call.
    pub(super) fn is_unused(&mut self) -> bool {
        !self.batches.as_mut().is_some_and(|batches| core::mem::replace(&mut batches.was_used, false))
    }

    /// Takes any batch, to return its slots to their chunks.
    pub(super) fn pop(&mut self) -> Option<FreeList> {
        let batches = self.batches.as_mut()?;
        let batch = batches.by_node.iter_mut().find_map(Vec::pop)?;
        batches.len -= 1;
        Some(batch)
    }

    /// Returns the number of slots.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        let batches = self.batches.iter().flat_map(|batches| batches.by_node.iter().flatten());
        batches.map(|batch| batch.len() as usize).sum()
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
