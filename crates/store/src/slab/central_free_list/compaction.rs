//! Which chunks are to be emptied, so that what is left in few of many slots needs fewer.

use super::sum::Sum;
use super::CentralFreeList;
use crate::sync::atomic::Ordering;
use lowwater_base::slots::ChunkHeader;

/// A node of whose slots more than one in so many are used is left as it is.
const SPARSE_PARTS: usize = 2;
/// And one that has fewer chunks.
const CHUNKS_MIN: usize = if cfg!(lowwater_loom) { 2 } else { 16 };
/// Chunks are told apart by how full they are, in so many steps. Coarse, so that of chunks that are about as full those go which lie together:
/// a block goes back to the system as a whole.
const SHADES: usize = 8;

impl CentralFreeList {
    /// Is there a node most of whose slots nobody has? O(nodes).
    pub(crate) fn is_sparse(&self) -> bool {
        self.nodes.iter().any(|node| is_sparse(node.all))
    }

    /// Has the emptiest chunks of each node emptied, as many as there is room for in the others: nothing is put in them any more. How many
    /// slots are to be left. O(chunks).
    pub(crate) fn begin_compaction(&mut self) -> usize {
        (0..self.nodes.len()).map(|node| self.begin_on(node)).sum()
    }

    fn begin_on(&mut self, node: usize) -> usize {
        let mut rest = self.nodes[node].all;
        if !is_sparse(rest) {
            return 0;
        }
        let shades = self.shades(node);
        let mut moved = 0;
        let mut fits = |them: Sum| {
            let is_room = moved + them.used() <= rest.free - them.free;
            if is_room {
                moved += them.used();
                rest.sub(them);
            }
            is_room
        };
        // All of the emptiest shades, and some of the next.
        let whole = shades.iter().take_while(|&&shade| fits(shade)).count();
        for at in 0..self.chunks.len() {
            let Some(chunk) = self.of(at, node) else { continue };
            let shade = shade(chunk);
            if shade < whole || shade == whole && fits(chunk) {
                self.set_leaving(at, true);
            }
        }
        moved
    }

    /// What was to be emptied, and is not, is used again. O(chunks).
    pub(crate) fn end_compaction(&mut self) {
        for at in 0..self.chunks.len() {
            if self.chunks[at].memory.is_some() && self.chunks[at].leaves {
                self.set_leaving(at, false);
            }
        }
    }

    fn set_leaving(&mut self, at: usize, evacuating: bool) {
        self.chunks[at].leaves = evacuating;
        self.rebin(at as u32);
        let Some(memory) = &self.chunks[at].memory else { return };
        // SAFETY: a chunk's memory begins with its header, and is there while we hold the pool.
        let header = unsafe { memory.base.cast::<ChunkHeader>().as_ref() };
        // Relaxed: a hint. Who misses it puts one object more there, or leaves one where it is.
        header.evacuating.store(evacuating, Ordering::Relaxed);
    }

    /// A node's chunks by how full they are, the emptiest first.
    fn shades(&self, node: usize) -> [Sum; SHADES] {
        let mut shades = [Sum::default(); SHADES];
        for chunk in (0..self.chunks.len()).filter_map(|at| self.of(at, node)) {
            shades[shade(chunk)].add(chunk);
        }
        shades
    }

    /// One chunk, if it is the node's.
    fn of(&self, at: usize, node: usize) -> Option<Sum> {
        let chunk = &self.chunks[at];
        (chunk.memory.is_some() && usize::from(chunk.node) == node).then(|| chunk.sum())
    }
}

fn is_sparse(node: Sum) -> bool {
    node.chunks >= CHUNKS_MIN && node.used() * SPARSE_PARTS < node.slots
}

/// Of a chunk; the last one's are nearly full.
fn shade(chunk: Sum) -> usize {
    (chunk.used() * SHADES / chunk.slots).min(SHADES - 1)
}
