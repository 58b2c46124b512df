//! Selection of the chunks to evacuate, so that few objects in many chunks take fewer chunks.
//!
//! The slab cannot move objects, as readers access them. The selection only marks chunks; the owner
//! of the objects (a cache, on the housekeeper's thread) then replaces each object in a marked
//! chunk by a copy elsewhere. A change must ensure that no more objects are in the selected chunks
//! than the other chunks have free slots.

use super::sum::Sum;
use super::CentralFreeList;

/// A node is compacted only if less than 1/`SPARSE_PARTS` of its slots is in use.
const SPARSE_PARTS: usize = 2;
/// The minimum number of chunks of a node that is compacted.
const CHUNKS_MIN: usize = if cfg!(lowwater_loom) { 2 } else { 16 };
/// The number of steps of fullness by which chunks are selected. Coarse, so that among chunks of
/// about the same fullness those with the lowest numbers are selected, which mostly share spans: an
/// empty span is unmapped as a whole.
const STEPS: usize = 8;

impl CentralFreeList {
    /// Returns true if some node is sparse enough to be compacted. O(nodes).
    pub(crate) fn is_sparse(&self) -> bool {
        self.nodes.iter().enumerate().any(|(node, of_node)| {
            // A compaction begins with the return of the slots in transfer.
            let free = of_node.all.free + self.transfer.slots(node);
            is_sparse(Sum { free, ..of_node.all })
        })
    }

    /// Selects the emptiest chunks of each sparse node for evacuation, as long as their objects fit
    /// into the other chunks of the node. Slots of selected chunks are not allocated any more.
    /// Returns the number of used slots in the selected chunks. O(chunks).
    pub(crate) fn begin_compaction(&mut self) -> usize {
        (0..self.nodes.len()).map(|node| self.begin_on(node)).sum()
    }

    /// Selects chunks of one node, if the node is sparse. Returns the number of used slots in the
    /// selected chunks, which is at most the number of free slots in the others.
    fn begin_on(&mut self, node: usize) -> usize {
        let mut rest = self.nodes[node].all;
        if !is_sparse(rest) {
            return 0;
        }
        let steps = self.steps(node);
        let mut moved = 0;
        let mut fits = |them: Sum| {
            let is_room = moved + them.used() <= rest.free - them.free;
            if is_room {
                moved += them.used();
                rest.sub(them);
            }
            is_room
        };
        // The number of steps, from the emptiest, whose chunks are all selected. Of the next step
        // those chunks are selected that still fit.
        let whole = steps.iter().take_while(|&&step| fits(step)).count();
        for at in 0..self.chunks.len() {
            let Some(chunk) = self.of(at, node) else { continue };
            let step = fullness_step(chunk);
            if step < whole || step == whole && fits(chunk) {
                self.set_leaving(at, true);
            }
        }
        moved
    }

    /// Ends the evacuation: slots of the selected chunks are allocated again. O(chunks).
    pub(crate) fn end_compaction(&mut self) {
        for at in 0..self.chunks.len() {
            if self.chunks[at].memory.is_some() && self.chunks[at].is_evacuating {
                self.set_leaving(at, false);
            }
        }
    }

    /// Marks a chunk as evacuating, or not any more.
    fn set_leaving(&mut self, at: usize, evacuating: bool) {
        self.chunks[at].is_evacuating = evacuating;
        self.rebin(at as u32);
        if let Some(memory) = &self.chunks[at].memory {
            memory.set_evacuating(evacuating);
        }
    }

    /// Returns the summed counts of the node's chunks of each fullness step, the emptiest first.
    fn steps(&self, node: usize) -> [Sum; STEPS] {
        let mut steps = [Sum::default(); STEPS];
        for chunk in (0..self.chunks.len()).filter_map(|at| self.of(at, node)) {
            steps[fullness_step(chunk)].add(chunk);
        }
        steps
    }

    /// Returns the counts of one chunk, if it belongs to the node.
    fn of(&self, at: usize, node: usize) -> Option<Sum> {
        let chunk = &self.chunks[at];
        (chunk.memory.is_some() && usize::from(chunk.node) == node).then(|| chunk.sum())
    }
}

/// Returns whether a node with these counts is sparse enough to be compacted.
fn is_sparse(node: Sum) -> bool {
    node.chunks >= CHUNKS_MIN && node.used() * SPARSE_PARTS < node.slots
}

/// Returns the fullness step of a chunk; the last step is nearly full.
fn fullness_step(chunk: Sum) -> usize {
    (chunk.used() * STEPS / chunk.slots).min(STEPS - 1)
}
