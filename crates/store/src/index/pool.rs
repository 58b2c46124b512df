//! Memory of the segments of a large index: chunks of 64 KiB, each for segments of one size class.
//!
//! ```text
//!     chunk    a header of one cache line, and 60 units of 17 lines: 60 segments of one unit, or 39, 30, 20, 15 or 10
//! ```
//!
//! Hashes are spread evenly, so all segments of an index grow at about the same time. The segments
//! that are freed then have a size for which there is no more use, and lie between live segments: a
//! general allocator would keep that memory, a quarter of the memory in use. Chunks alone would be
//! no better, because a chunk is released only with its last segment. So when a class has as many
//! free slots as a chunk has in all, the segments of one chunk are
//! [evacuated](SegmentPool::evacuating) to slots in other chunks, one with each segment that is
//! replaced anyway, and the chunk is released. A segment is moved by a copy that readers do not
//! notice, as when a segment grows, but without computing hashes.
//!
//! A pool outlives its index until its last segment is free: retired segments wait for readers,
//! also for those of other structures.
//!
//! # Locks
//!
//! The pool has one lock, which is taken after every other lock and held for bookkeeping only.
//! Buckets are written without it. The fixed fields of a segment's header are written and dropped
//! under it, so that the search for a segment to evacuate can read them.
//!
//! A change must keep this order of locks, and must return a chunk's memory only when no segment is
//! allocated in it.

mod chunk;
mod chunk_format;
mod size_class;

pub(super) use size_class::Room;

use super::class::Class;
use super::segment_header::{bytes, Segment};
use crate::fallible::try_box;
use crate::slab::{Spans, NONE};
use crate::sync::Mutex;
use alloc::boxed::Box;
use alloc::vec::Vec;
use chunk::SegmentChunk;
use chunk_format::{SegmentChunkHeader, CLASSES, GEOMETRY, SIZE_CLASSES};
use core::ptr::{self, NonNull};
#[cfg(lowwater_poison)]
use lowwater_base::poison::poison;
use lowwater_base::poison::unpoison;
use size_class::SizeClass;

/// The number of spans without huge pages, half of a slab's: entries take five times the memory of
/// their index, so what the index leaves unused of huge pages is as small a part of all memory.
const BLOCKS_SMALL: usize = 2;

/// A pool of memory for segments; see the module.
pub(super) struct SegmentPool(Mutex<PoolState>);

struct PoolState {
    blocks: Spans,
    /// By number. A released chunk leaves an element without memory.
    chunks: Vec<SegmentChunk>,
    /// The head of the list of elements without memory, linked by their `group_link`.
    unused: u32,
    /// The number of elements with memory.
    nr: usize,
    /// By [`place`].
    size_classes: [SizeClass; SIZE_CLASSES],
    /// True after the index has been dropped.
    closed: bool,
    /// The pool itself, as it came from its box; stored in each chunk's header.
    pool: *mut SegmentPool,
}

// SAFETY: all memory in here is used only as segments, which are `Send`; the pointer `pool` is not
// dereferenced through this type.
unsafe impl Send for PoolState {}

impl SegmentPool {
    /// Creates an empty pool, to be [closed](Self::close); `None` without memory.
    pub(super) fn try_new() -> Option<NonNull<Self>> {
        let state = PoolState {
            blocks: Spans::new(BLOCKS_SMALL),
            chunks: Vec::new(),
            unused: NONE,
            nr: 0,
            size_classes: core::array::from_fn(|size_class| SizeClass::new(CLASSES.start() + size_class as Class)),
            closed: false,
            pool: ptr::null_mut(),
        };
        let this = NonNull::new(Box::into_raw(try_box(Self(Mutex::new(state)))?))?;
        // SAFETY: the pointer came from a box just now, and no other thread has it.
        unsafe { this.as_ref() }.0.lock().pool = this.as_ptr();
        Some(this)
    }

    /// Returns true if segments of this class are allocated from a pool.
    pub(super) fn is_for(class: Class) -> bool {
        CLASSES.contains(&class)
    }

    /// Allocates a segment and writes its header; `None` without memory, or if `room` allows no
    /// chunk. The caller initializes the buckets behind the header. The segment is freed by
    /// [`put`](Self::put). O(1).
    pub(super) fn take(&self, header: Segment, room: Room) -> Option<NonNull<Segment>> {
        let mut state = self.0.lock();
        let slot = state.take(header.class, room)?;
        // SAFETY: `slot` is a free slot of the pool, with `bytes(class)` bytes.
        unsafe { unpoison(slot.as_ptr().cast(), bytes(header.class)) };
        // SAFETY: `slot` is a slot that was just allocated to this caller, large enough for the
        // header and aligned for it.
        unsafe { slot.write(header) };
        Some(slot)
    }

    /// Frees a segment's memory. O(1).
    ///
    /// # Safety
    ///
    /// `segment` came from [`take`](Self::take) of some pool, and no other code uses it.
    pub(super) unsafe fn put(segment: *mut Segment) {
        let header = segment.map_addr(|address| address & !(GEOMETRY.full - 1)).cast::<SegmentChunkHeader>();
        // SAFETY: chunks are aligned to their size and begin with this header, and a chunk exists
        // while a segment in it is allocated.
        let SegmentChunkHeader { pool, number } = unsafe { header.read() };
        let pool = pool.cast::<Self>();
        // SAFETY: a pool exists while it has a chunk.
        let mut state = unsafe { &*pool }.0.lock();
        // SAFETY: the caller's clause: no other code uses the segment. The search for a segment to
        // evacuate reads headers under the lock, which is held.
        unsafe { segment.drop_in_place() };
        #[cfg(lowwater_poison)]
        let class = state.chunks[number as usize].class;
        #[cfg(lowwater_poison)]
        // SAFETY: the caller's clause: no other code uses the segment.
        unsafe {
            poison(segment.cast(), bytes(class), 0);
        }
        state.put(segment.addr(), number);
        let is_over = state.is_over();
        drop(state);
        // SAFETY: the chunk's header has the pool's pointer as it came from its box, and `is_over`
        // was read under the lock of this `put`.
        unsafe { Self::free_if(is_over, pool) };
    }

    /// Closes the pool when its index ends: no segment is allocated afterwards.
    ///
    /// # Safety
    ///
    /// `this` came from [`try_new`](Self::try_new), and is used from now on only to free segments.
    pub(super) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: the pool exists until it is closed and has no chunk.
        let mut state = unsafe { this.as_ref() }.0.lock();
        state.closed = true;
        let is_over = state.is_over();
        drop(state);
        // SAFETY: `this` came from a box (the caller's clause), and `is_over` was read under the
        // lock of this `close`.
        unsafe { Self::free_if(is_over, this.as_ptr()) };
    }

    /// Frees the pool if `is_over`.
    ///
    /// # Safety
    ///
    /// `this` came from a box, and the caller computed `is_over` under the lock under which it
    /// closed the pool or freed a segment.
    unsafe fn free_if(is_over: bool, this: *mut Self) {
        if is_over {
            // SAFETY: `is_over` is true for exactly one caller: the later one of the `close` and
            // the `put` of the last segment. No call follows them.
            drop(unsafe { Box::from_raw(this) });
        }
    }

    /// Returns the next segment to evacuate from its chunk and the prefix of its hashes; `None` if
    /// there is none. The segment may not be in the index: not yet published, or replaced already.
    /// O(1).
    pub(super) fn evacuating(&self) -> Option<(*mut Segment, u64)> {
        let mut state = self.0.lock();
        let segment = state.evacuating()?.as_ptr();
        // SAFETY: the slot is allocated, so it has a header. The header is written and dropped
        // under this lock, which is held, and apart from its cells never changes.
        let prefix = unsafe { &*segment }.prefix;
        Some((segment, prefix))
    }

    /// Returns spare chunks to the system.
    pub(super) fn give_spare_back(&self) {
        self.0.lock().blocks.give_spare_back();
    }

    /// Returns the bytes of all chunks, and of the pool's own bookkeeping.
    pub(super) fn footprint(&self) -> usize {
        let state = self.0.lock();
        let chunks = state.nr * GEOMETRY.full + state.chunks.capacity() * size_of::<SegmentChunk>();
        size_of::<Self>() + chunks + state.blocks.footprint()
    }

    /// Panics unless the counts agree with the chunks.
    pub(super) fn assert_valid(&self) {
        let state = self.0.lock();
        let chunks = || state.chunks.iter().filter(|chunk| chunk.is_there());
        assert_eq!(chunks().count(), state.nr, "chunks are counted");
        assert!(chunks().all(|chunk| !chunk.is_empty()), "an empty chunk is released");
        state.size_classes.iter().for_each(|size_class| size_class.assert_valid(&state.chunks));
    }
}

/// Returns the index of a class's `SizeClass`.
fn place(class: Class) -> usize {
    usize::from(class - CLASSES.start())
}

impl PoolState {
    /// Returns true if the pool is closed and has no segment, so that it can be freed.
    fn is_over(&self) -> bool {
        self.closed && self.nr == 0
    }

    fn take(&mut self, class: Class, room: Room) -> Option<NonNull<Segment>> {
        let at = match (self.size_classes[place(class)].fullest(room), room) {
            (Some(at), _) => at,
            (None, Room::Any) => self.add(class)?,
            (None, Room::Staying) => return None,
        };
        let size_class = &mut self.size_classes[place(class)];
        Some(size_class.take(&mut self.chunks, at))
    }

    fn put(&mut self, segment: usize, at: u32) {
        let class = self.chunks[at as usize].class;
        let size_class = &mut self.size_classes[place(class)];
        size_class.put(&mut self.chunks, at, segment);
        let chunk = &mut self.chunks[at as usize];
        if chunk.is_empty() {
            let memory = chunk.memory.take().expect("a segment was in the chunk");
            chunk.group_link.next = core::mem::replace(&mut self.unused, at);
            self.nr -= 1;
            // SAFETY: the memory came from these spans, and no slot of the chunk is allocated.
            unsafe { self.blocks.put(memory, &GEOMETRY) };
        }
    }

    /// Adds a chunk for segments of a class, and returns its number; `None` without memory.
    fn add(&mut self, class: Class) -> Option<u32> {
        let at = match self.unused {
            NONE => {
                self.chunks.try_reserve(1).ok()?;
                u32::try_from(self.chunks.len()).ok()?
            }
            unused => unused,
        };
        let memory = self.blocks.get(GEOMETRY.full, &GEOMETRY)?;
        // SAFETY: the chunk begins with room for its header, and is not yet shared.
        unsafe { memory.base.cast().write(SegmentChunkHeader { pool: self.pool.cast(), number: at }) };
        let chunk = SegmentChunk::new(memory, class);
        if at as usize == self.chunks.len() {
            self.chunks.push(chunk);
        } else {
            self.unused = core::mem::replace(&mut self.chunks[at as usize], chunk).group_link.next;
        }
        self.nr += 1;
        let size_class = &mut self.size_classes[place(class)];
        size_class.add(&mut self.chunks, at);
        Some(at)
    }

    /// Returns the next segment to evacuate, of any class.
    fn evacuating(&mut self) -> Option<NonNull<Segment>> {
        let Self { size_classes, chunks, .. } = self;
        size_classes.iter_mut().find_map(|size_class| size_class.evacuating(chunks))
    }
}
