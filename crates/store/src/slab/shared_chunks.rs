//! Shared chunks: those that several small slabs have parts of.
//!
//! ```text
//!     header, owners | 256 | 256 | 512 | free 1024 .. | 4096 | free ..        64 KiB
//! ```
//!
//! A chunk is aligned to 64 KiB, so that the address of a slot gives the header. An allocator
//! cannot use the memory between small allocations of that alignment well: a cache of one entry
//! took more than two pages. So the first chunks of each slab, together as large as one full chunk,
//! are parts of chunks that all slabs of the process share. The slots of a part are those of a
//! whole chunk that lie in it, and have the same numbers. Header and owners take 4 KiB of a chunk;
//! like its free parts, they are in no slab's footprint.
//!
//! Parts are allocated as by a buddy allocator: a part is a power of two and aligned to its size.
//! Chunks are in groups by the largest part that is free, so only one chunk is searched: its 256
//! flags, up to nine times. One lock guards all; a slab takes it for each chunk of up to 32 KiB.
//!
//! The number of a shared chunk suits slots of 16 bytes or more, so it is below 2^20. While all of
//! these numbers are in use, in a process with 64 GiB of chunks, no further chunk is shared: the
//! first chunks of a slab are whole ones.
//!
//! A change must ensure that the owners of a part are written before one of its slots is used, and
//! that a chunk is returned only when no part of it is in use.

use super::fullness_groups::{FullnessGroups, GroupLink, HasGroupLink, NONE};
use super::numbered_memory::{get_numbered, put_numbered};
use super::spans::{Memory, Spans};
use crate::sync::Mutex;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;
use lowwater_base::poison::unpoison;
use lowwater_base::slots::chunk_header::OWNED_BYTES;
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkOwner};
use lowwater_base::NodeId;

/// Shared chunks have slots of any type whose full chunks are as large as theirs, and whose slots'
/// numbers have as many bits or fewer. The numbers of slots of the smallest type need the most
/// bits, so a number that suits it suits all. 16 bytes: the links and the state of an object take
/// no less.
pub(super) const LAYOUT: ChunkLayout = ChunkLayout::of::<[u64; 2]>();
/// Units of which a shared chunk consists.
pub(super) const UNITS: usize = LAYOUT.full / OWNED_BYTES;
/// The first unit behind the header.
pub(super) const FIRST: usize = ChunkHeader::shared_size(LAYOUT.full).div_ceil(OWNED_BYTES);
/// The sizes of parts: 256 bytes to 32 KiB.
pub(super) const ORDERS: usize = UNITS.ilog2() as usize;

static SHARED_CHUNKS: Mutex<SharedChunks> = Mutex::new(SharedChunks::new());

/// A part of a shared chunk.
pub(super) struct Part {
    /// The beginning of the shared chunk.
    chunk: NonNull<u8>,
    /// The number of the shared chunk.
    number: u32,
    first: u16,
    units: u16,
}

/// The shared chunks of the process; see the module.
pub(super) struct SharedChunks {
    chunks: Vec<SharedChunk>,
    /// The head of the list of chunk numbers without a chunk, linked by their `group_link`.
    unused: u32,
    /// For each node the chunks with free parts, by the order of the largest one.
    nodes: Vec<FullnessGroups<ORDERS>>,
    spans: Spans,
}

struct SharedChunk {
    memory: Option<Memory>,
    is_used: [bool; UNITS],
    node: u16,
    group_link: GroupLink,
}

// SAFETY: the memory of a chunk is used by the owners of its parts, and by the holder of the lock
// of `SHARED_CHUNKS`, on whichever thread.
unsafe impl Send for SharedChunks {}

impl HasGroupLink for SharedChunk {
    fn group_link(&mut self) -> &mut GroupLink {
        &mut self.group_link
    }
}

impl Part {
    /// Allocates a part of `bytes` bytes of a shared chunk on `node`, for slots of this layout.
    /// `None`: shared chunks have no parts of this size or no slots of this layout, or there is no
    /// memory or number.
    pub(super) fn get(
        bytes: usize,
        layout: &ChunkLayout,
        node: NodeId,
        owner: impl Fn() -> ChunkOwner,
    ) -> Option<Self> {
        let order = (bytes / OWNED_BYTES).checked_ilog2()? as usize;
        if order >= ORDERS || layout.full != LAYOUT.full || layout.bits > LAYOUT.bits {
            return None;
        }
        let part = SHARED_CHUNKS.lock().take(order, node)?;
        for unit in part.units() {
            // SAFETY: the units are behind the header and owners of their chunk.
            let place = unsafe { ChunkHeader::owner_at(part.chunk, unit * OWNED_BYTES) };
            // SAFETY: no other code has the part, so none uses the owners of its units.
            unsafe { place.write(owner()) };
        }
        Some(part)
    }

    /// Frees the part.
    ///
    /// # Safety
    ///
    /// No slot of the part is in use, and no code uses its slots' numbers any more.
    pub(super) unsafe fn put(self) {
        // SAFETY: the part is inside of its chunk.
        let begin = unsafe { self.chunk.add(self.bytes().start) };
        // SAFETY: the part is the caller's until it is put below.
        unsafe { unpoison(begin.as_ptr(), self.bytes().len()) };
        // SAFETY: this function's clause.
        unsafe { SHARED_CHUNKS.lock().put(&self) };
    }

    /// Returns the memory of shared chunks that are kept for later parts to the system.
    pub(super) fn give_spare_back() {
        SHARED_CHUNKS.lock().spans.give_spare_back();
    }

    /// Returns the beginning of the shared chunk.
    pub(super) fn chunk(&self) -> NonNull<u8> {
        self.chunk
    }

    /// Returns the bytes of the chunk that are the part's.
    pub(super) fn bytes(&self) -> Range<usize> {
        let units = self.units();
        units.start * OWNED_BYTES..units.end * OWNED_BYTES
    }

    fn units(&self) -> Range<usize> {
        self.first.into()..usize::from(self.first) + usize::from(self.units)
    }
}

impl SharedChunks {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), unused: NONE, nodes: Vec::new(), spans: Spans::new(usize::MAX) }
    }

    /// Takes the first free part of this order from a chunk with one, or from a new chunk.
    pub(super) fn take(&mut self, order: usize, node: NodeId) -> Option<Part> {
        let at = match self.nodes.get(node.index()).and_then(|groups| groups.first(order as u8)) {
            Some(at) => at,
            None => self.add(node)?,
        };
        let chunk = &mut self.chunks[at as usize];
        let first = chunk.free(order)?;
        chunk.is_used[first..first + (1 << order)].fill(true);
        let base = chunk.memory.as_ref()?.base;
        self.regroup(at);
        Some(Part { chunk: base, number: at, first: first as u16, units: 1 << order })
    }

    /// Frees a part. Returns the chunk's memory if no part of it is used; but not if no other chunk
    /// has a part of the largest order, so that a process that makes and drops a small slab maps no
    /// memory each time.
    ///
    /// # Safety
    ///
    /// As [`Part::put`].
    pub(super) unsafe fn put(&mut self, part: &Part) {
        let at = part.number;
        let chunk = &mut self.chunks[at as usize];
        chunk.is_used[part.units()].fill(false);
        let is_used = chunk.is_used[FIRST..].contains(&true);
        let node = usize::from(chunk.node);
        self.nodes[node].put(&mut self.chunks, at, None);
        if is_used || self.nodes[node].first(ORDERS as u8 - 1).is_none() {
            return self.regroup(at);
        }
        let chunk = &mut self.chunks[at as usize];
        let Some(memory) = chunk.memory.take() else { return };
        chunk.group_link.next = core::mem::replace(&mut self.unused, at);
        // SAFETY: `add` got the memory from these spans and wrote the header. No part is used, and
        // the numbers of the slots of a part are unused when it is put.
        unsafe { put_numbered(memory, &LAYOUT, &mut self.spans) };
    }

    /// Returns the number of chunks.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.chunks.iter().filter(|chunk| chunk.memory.is_some()).count()
    }

    /// Returns the memory of all chunks.
    #[cfg(test)]
    pub(super) fn give_back(mut self) {
        for memory in self.chunks.iter_mut().filter_map(|chunk| chunk.memory.take()) {
            // SAFETY: as in `put`; a test calls this when no part is in use.
            unsafe { put_numbered(memory, &LAYOUT, &mut self.spans) };
        }
    }

    /// Adds a chunk, all of it free.
    fn add(&mut self, node: NodeId) -> Option<u32> {
        let at = if self.unused == NONE { self.chunks.len() } else { self.unused as usize };
        if at == self.chunks.len() {
            self.chunks.try_reserve(1).ok()?;
        }
        if self.nodes.len() <= node.index() {
            // `try_reserve`, here and above, so that neither `resize` nor `push` allocates: without
            // memory they would abort.
            self.nodes.try_reserve(node.index() + 1 - self.nodes.len()).ok()?;
            self.nodes.resize(node.index() + 1, FullnessGroups::new());
        }
        let (memory, table_number) = get_numbered(LAYOUT.full, &LAYOUT, &mut self.spans)?;
        let header = ChunkHeader::shared(table_number, node, LAYOUT.full);
        // SAFETY: the chunk begins with room for its header, and no other code has it.
        unsafe { memory.base.cast::<ChunkHeader>().write(header) };
        let mut is_used = [false; UNITS];
        is_used[..FIRST].fill(true);
        let chunk = SharedChunk { memory: Some(memory), is_used, node: node.get(), group_link: GroupLink::new() };
        if at == self.chunks.len() {
            self.chunks.push(chunk);
        } else {
            self.unused = core::mem::replace(&mut self.chunks[at], chunk).group_link.next;
        }
        self.regroup(at as u32);
        Some(at as u32)
    }

    /// Moves a chunk to the group for its largest free part.
    fn regroup(&mut self, at: u32) {
        let chunk = &self.chunks[at as usize];
        let largest = (0..ORDERS).rev().find(|&order| chunk.free(order).is_some());
        let node = usize::from(chunk.node);
        self.nodes[node].put(&mut self.chunks, at, largest.map(|order| order as u8));
    }
}

impl SharedChunk {
    /// Returns the first unit of the first free part of this order.
    fn free(&self, order: usize) -> Option<usize> {
        self.is_used.chunks_exact(1 << order).position(|units| !units.contains(&true)).map(|at| at << order)
    }
}
