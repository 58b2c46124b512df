//! The central free list: the chunks of a slab, and the slots in them that no thread cache has.
//!
//! A chunk with free slots is in a group by how full it is; slots are taken from the fullest
//! chunks, so that the emptiest can become empty.
//!
//! It is the only part of a slab that adds and removes chunks; threads reach it in batches through
//! their [thread caches](super::thread_cache) and the [transfer cache](super::transfer_cache). A
//! change must ensure that a chunk is returned exactly when all its slots are free, and that a slot
//! in a thread cache, or in the transfer cache, counts as not free here.

use super::chunk_memory::ChunkMemory;
use super::free::{Free, FreeList};
use super::fullness_groups::{FullnessGroups, GroupLink, HasGroupLink, NONE};
use super::spans::Spans;
use super::transfer_cache::TransferCache;
use alloc::vec::Vec;
use core::ptr::NonNull;
use lowwater_base::slots::{ChunkLayout, ChunkOwner};
use lowwater_base::NodeId;
use sum::Sum;

mod compaction;
mod sum;

/// Fullness groups of a node: the emptiest chunks first.
const BINS: usize = 4;
/// The number of spans without huge pages. When later spans use huge pages, at most a fifth of the
/// memory is unused.
const BLOCKS_SMALL: usize = 4;

/// The chunks of a slab and their free slots. Guarded by the slab's lock.
pub(super) struct CentralFreeList {
    geometry: ChunkLayout,
    chunks: Vec<SlabChunk>,
    /// The head of the list of chunk numbers without a chunk, linked by their `group_link`.
    unused: u32,
    nodes: Vec<NodeChunks>,
    blocks: Spans,
    /// Free slots on their way between thread caches.
    pub(super) transfer: TransferCache,
    /// Bytes of all chunks.
    pub(super) bytes: usize,
    /// Slots of all chunks.
    pub(super) slots: usize,
    /// Free slots of all chunks, without those in thread caches and in the transfer cache.
    pub(super) free: usize,
    /// True after the slab's owner has dropped it.
    pub(super) closed: bool,
}

/// The chunks in one node's memory.
#[derive(Clone)]
struct NodeChunks {
    bins: FullnessGroups<BINS>,
    all: Sum,
}

struct SlabChunk {
    memory: Option<ChunkMemory>,
    /// Free slots that were used before.
    back: FreeList,
    /// The number of the first slot that has never been used; those behind it follow.
    fresh: u32,
    /// The number of slots that have never been used.
    nr_fresh: u32,
    slots: u32,
    free: u32,
    node: u16,
    /// True while the chunk is being evacuated; then it is in no group.
    is_evacuating: bool,
    group_link: GroupLink,
}

// SAFETY: everything in here is memory that only this list uses, whichever thread holds the lock.
unsafe impl Send for CentralFreeList {}

impl HasGroupLink for SlabChunk {
    fn group_link(&mut self) -> &mut GroupLink {
        &mut self.group_link
    }
}

impl SlabChunk {
    fn sum(&self) -> Sum {
        Sum { chunks: 1, slots: self.slots as usize, free: self.free as usize }
    }
}

impl CentralFreeList {
    pub(super) fn new(geometry: ChunkLayout) -> Self {
        Self {
            geometry,
            chunks: Vec::new(),
            unused: NONE,
            nodes: Vec::new(),
            blocks: Spans::new(BLOCKS_SMALL),
            transfer: TransferCache::new(),
            bytes: 0,
            slots: 0,
            free: 0,
            closed: false,
        }
    }

    /// Moves up to `nr` free slots of the node's chunks to `to`. Returns false if there is not a
    /// single one, and no memory for more.
    pub(super) fn take(&mut self, nr: u32, node: NodeId, slab: *const (), to: &mut FreeList) -> bool {
        let before = to.len();
        while to.len() < before + nr {
            let Some(at) = self.fullest(node) else {
                // A new chunk is added only if not a single slot was found.
                if to.len() > before || self.add(node, slab).is_none() {
                    break;
                }
                continue;
            };
            let geometry = self.geometry;
            let chunk = &mut self.chunks[at as usize];
            let wanted = (before + nr - to.len()).min(chunk.free);
            for _ in 0..wanted {
                let slot = chunk.back.pop().unwrap_or_else(|| {
                    let base = chunk.memory.as_ref().expect("a chunk in a group has memory").base();
                    let offset = geometry.first + chunk.fresh as usize * geometry.slot;
                    chunk.fresh += 1;
                    chunk.nr_fresh -= 1;
                    // SAFETY: the chunk has free slots and an empty `back`, so `fresh` is the
                    // number of one of its slots.
                    unsafe { base.add(offset) }.cast()
                });
                // SAFETY: the slot is free, and was just removed from its chunk.
                unsafe { to.push(slot) };
            }
            chunk.free -= wanted;
            self.free -= wanted as usize;
            self.nodes[node.index()].all.free -= wanted as usize;
            self.rebin(at);
        }
        to.len() > before
    }

    /// Returns a slot to its chunk, and the chunk to its span if all its slots are free.
    ///
    /// # Safety
    ///
    /// The slot came from [`take`](Self::take), of chunk number `at`, and no other code uses it.
    pub(super) unsafe fn put(&mut self, slot: NonNull<Free>, at: u32) {
        let chunk = &mut self.chunks[at as usize];
        // SAFETY: the caller's clause: no other code uses the slot.
        unsafe { chunk.back.push(slot) };
        chunk.free += 1;
        self.free += 1;
        let all = &mut self.nodes[usize::from(chunk.node)].all;
        all.free += 1;
        if chunk.free < chunk.slots {
            return self.rebin(at);
        }
        let slots = chunk.slots as usize;
        all.sub(chunk.sum());
        let memory = chunk.memory.take().expect("a chunk with slots has memory");
        self.put_in(at, None);
        self.chunks[at as usize].group_link.next = core::mem::replace(&mut self.unused, at);
        self.slots -= slots;
        self.free -= slots;
        self.bytes -= memory.bytes().len();
        // SAFETY: the memory came from `get` with these spans. None of its slots is in use, so none
        // of their numbers is: readers had left before each slot was freed.
        unsafe { memory.put(&self.geometry, &mut self.blocks) };
    }

    /// Returns the spare chunks to the system, also those of shared chunks.
    pub(super) fn give_spare_back(&mut self) {
        self.blocks.give_spare_back();
        #[cfg(not(lowwater_loom))]
        super::shared_chunks::Part::give_spare_back();
    }

    /// Returns the bytes of all chunks and of their tables, without this struct itself.
    pub(super) fn footprint(&self) -> usize {
        let tables = self.chunks.capacity() * size_of::<SlabChunk>() + self.nodes.capacity() * size_of::<NodeChunks>();
        self.bytes + tables + self.blocks.footprint() + self.transfer.footprint()
    }

    fn fullest(&self, node: NodeId) -> Option<u32> {
        self.nodes.get(node.index())?.bins.last(0)
    }

    /// Adds a chunk.
    fn add(&mut self, node: NodeId, slab: *const ()) -> Option<()> {
        let at = if self.unused == NONE { self.chunks.len() } else { self.unused as usize };
        if at == self.chunks.len() {
            // The first one exactly: many slabs have only one.
            let is_first = self.chunks.is_empty();
            let reserved = if is_first { self.chunks.try_reserve_exact(1) } else { self.chunks.try_reserve(1) };
            reserved.ok()?;
        }
        if self.nodes.len() <= node.index() {
            // `try_reserve`, here and above, so that neither `resize` nor `push` allocates: without
            // memory they would abort.
            self.nodes.try_reserve_exact(node.index() + 1 - self.nodes.len()).ok()?;
            self.nodes.resize(node.index() + 1, NodeChunks { bins: FullnessGroups::new(), all: Sum::default() });
        }
        let owner = || ChunkOwner::new(slab, at as u32);
        let memory = ChunkMemory::get(self.bytes, &self.geometry, node, owner, &mut self.blocks)?;
        let slots = self.geometry.slots_between(memory.bytes());
        self.bytes += memory.bytes().len();
        self.slots += slots.len();
        self.free += slots.len();
        let chunk = SlabChunk {
            memory: Some(memory),
            back: FreeList::new(),
            fresh: slots.start,
            nr_fresh: slots.len() as u32,
            slots: slots.len() as u32,
            free: slots.len() as u32,
            node: node.get(),
            is_evacuating: false,
            group_link: GroupLink::new(),
        };
        self.nodes[node.index()].all.add(chunk.sum());
        if at == self.chunks.len() {
            self.chunks.push(chunk);
        } else {
            self.unused = core::mem::replace(&mut self.chunks[at], chunk).group_link.next;
        }
        self.rebin(at as u32);
        Some(())
    }

    /// Moves a chunk to the group for its fullness.
    fn rebin(&mut self, at: u32) {
        let chunk = &self.chunks[at as usize];
        let bin = match chunk.free {
            0 => None,
            _ if chunk.is_evacuating => None,
            free => Some(((chunk.slots - free) as usize * BINS / chunk.slots as usize).min(BINS - 1) as u8),
        };
        self.put_in(at, bin);
    }

    fn put_in(&mut self, at: u32, bin: Option<u8>) {
        let node = usize::from(self.chunks[at as usize].node);
        self.nodes[node].bins.put(&mut self.chunks, at, bin);
    }

    /// Panics unless the counts agree with the chunks.
    pub(super) fn assert_valid(&self) {
        let chunks = || self.chunks.iter().filter(|chunk| chunk.memory.is_some());
        assert_eq!(chunks().map(|c| c.slots as usize).sum::<usize>(), self.slots, "slots are counted");
        assert_eq!(chunks().map(|c| c.free as usize).sum::<usize>(), self.free, "free slots are counted");
        for (number, node) in self.nodes.iter().enumerate() {
            let of_node = chunks().filter(|chunk| usize::from(chunk.node) == number);
            assert_eq!(
                of_node.map(SlabChunk::sum).fold(Sum::default(), Sum::and),
                node.all,
                "each node's slots are counted"
            );
        }
        for chunk in chunks() {
            assert_eq!(chunk.back.len() + chunk.nr_fresh, chunk.free, "a free slot was freed or never used");
            assert!(chunk.free < chunk.slots, "an empty chunk is released");
            let is_found = chunk.group_link.bin().is_some();
            assert_eq!(
                is_found,
                chunk.free > 0 && !chunk.is_evacuating,
                "a chunk with room is in a group, unless it is evacuated"
            );
        }
    }
}
