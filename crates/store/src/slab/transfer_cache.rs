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
/// The batches have at most this fraction of the slab's slots, as a divisor.
const PARTS: usize = 16;
/// The maximum number of batches: twice the objects that a thread of the reclaimer evicts at once.
const BATCHES_MAX: usize = 64;

/// Batches of free slots, each with its node. Guarded by the lock of the central free list, for
/// which these slots are not free.
pub(super) struct TransferCache {
    batches: Vec<(NodeId, FreeList)>,
    /// True if a batch was taken since the last [`is_unused`](Self::is_unused).
    was_used: bool,
}

impl TransferCache {
    pub(super) const fn new() -> Self {
        Self { batches: Vec::new(), was_used: false }
    }

    /// Adds a batch of a slab with `slots` slots. Returns it if there are enough batches for such a
    /// slab, or no memory.
    pub(super) fn put(&mut self, batch: FreeList, node: NodeId, slots: usize) -> Result<(), FreeList> {
        let most = (slots / PARTS / BATCH as usize).min(BATCHES_MAX);
        if self.batches.len() >= most || self.batches.try_reserve(1).is_err() {
            return Err(batch);
        }
        self.batches.push((node, batch));
        Ok(())
    }

    /// Takes a batch of slots on `node`, the latest one. O(batches of other nodes).
    pub(super) fn take(&mut self, node: NodeId) -> Option<FreeList> {
        let at = self.batches.iter().rposition(|(of, _)| *of == node)?;
        self.was_used = true;
        Some(self.batches.swap_remove(at).1)
    }

    /// Returns true if no batch was taken since the last call.
    pub(super) fn is_unused(&mut self) -> bool {
        !core::mem::replace(&mut self.was_used, false)
    }

    /// Takes any batch, to return its slots to their chunks.
    pub(super) fn pop(&mut self) -> Option<FreeList> {
        Some(self.batches.pop()?.1)
    }

    /// Returns the number of slots.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.len() as usize).sum()
    }

    /// Returns the heap bytes.
    pub(super) fn footprint(&self) -> usize {
        self.batches.capacity() * size_of::<(NodeId, FreeList)>()
    }
}
