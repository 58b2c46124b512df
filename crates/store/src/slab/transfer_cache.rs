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
    /// By node.
    batches: Vec<Vec<FreeList>>,
    /// The number of batches of all nodes.
    len: usize,
    /// True if a batch was taken since the last [`is_unused`](Self::is_unused).
    was_used: bool,
}

impl TransferCache {
    pub(super) const fn new() -> Self {
        Self { batches: Vec::new(), len: 0, was_used: false }
    }

    /// Adds a batch of a slab with `slots` slots. Returns it if there are enough batches for such a
    /// slab, or no memory.
    pub(super) fn put(&mut self, batch: FreeList, node: NodeId, slots: usize) -> Result<(), FreeList> {
        if self.len >= slots / PARTS / BATCH as usize {
            return Err(batch);
        }
        let Some(of_node) = self.of_node(node) else { return Err(batch) };
        of_node.push(batch);
        self.len += 1;
        Ok(())
    }

    /// Returns the batches of a node, with room for one more; `None` without memory.
    fn of_node(&mut self, node: NodeId) -> Option<&mut Vec<FreeList>> {
        let more = (node.index() + 1).saturating_sub(self.batches.len());
        self.batches.try_reserve_exact(more).ok()?;
        self.batches.extend((0..more).map(|_| Vec::new()));
        let of_node = self.batches.get_mut(node.index())?;
        of_node.try_reserve(1).ok()?;
        Some(of_node)
    }

    /// Takes a batch of slots on `node`, the latest one.
    pub(super) fn take(&mut self, node: NodeId) -> Option<FreeList> {
        let batch = self.batches.get_mut(node.index())?.pop()?;
        self.len -= 1;
        self.was_used = true;
        Some(batch)
    }

    /// Returns true if no batch was taken since the last call.
    pub(super) fn is_unused(&mut self) -> bool {
        !core::mem::replace(&mut self.was_used, false)
    }

    /// Takes any batch, to return its slots to their chunks.
    pub(super) fn pop(&mut self) -> Option<FreeList> {
        let batch = self.batches.iter_mut().find_map(Vec::pop)?;
        self.len -= 1;
        Some(batch)
    }

    /// Returns the number of slots.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.batches.iter().flatten().map(|batch| batch.len() as usize).sum()
    }

    /// Returns the heap bytes.
    pub(super) fn footprint(&self) -> usize {
        let batches: usize = self.batches.iter().map(Vec::capacity).sum();
        self.batches.capacity() * size_of::<Vec<FreeList>>() + batches * size_of::<FreeList>()
    }
}
