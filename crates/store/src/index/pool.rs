//! Memory of the segments of a large index: chunks of 64 KiB, each for segments of one class.
//!
//! ```text
//!     chunk    a line that leads to the pool, and 60 units of 17 lines: 60 segments of a unit, 30 of two, 20, 15 or 10
//! ```
//!
//! Hashes are spread evenly, so all segments of an index grow at about the same time. What they leave is of a size that nobody wants
//! any more, between others that live on: an allocator would keep it, a quarter of what is used. Chunks alone would be no better, as one
//! goes back only with its last segment. So when there are as many free slots of a class as a chunk has, the segments of one chunk
//! [leave](SegmentPool::evacuating) for slots in the others, one with each segment that is replaced anyway, and the chunk goes back. A segment is moved
//! by a copy that readers do not notice, as it is when one grows, but without asking for a hash.
//!
//! A pool outlives its index until the last segment is free: those that were retired wait for readers of others, too.
//!
//! # Locks
//!
//! The pool's own, behind every other, and only when a segment is made or freed. What is in a pool's memory is written without it, but for
//! a segment's header: it is written under the lock, so that who looks for one that is to leave can read which it is.

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

/// What an index points to has five times its memory, so what it leaves unused by huge pages is as small a part of all as with a slab's.
const BLOCKS_SMALL: usize = 2;

/// See the module.
pub(super) struct SegmentPool(Mutex<PoolState>);

struct PoolState {
    blocks: Spans,
    chunks: Vec<SegmentChunk>,
    /// The first number without a chunk; the others are joined to it.
    unused: u32,
    /// Chunks that there are.
    nr: usize,
    size_classes: [SizeClass; SIZE_CLASSES],
    /// Has its index ended?
    closed: bool,
    /// Where chunks say they belong to: the pool, as it came from its box.
    pool: *mut SegmentPool,
}

// SAFETY: what is in here is memory that nobody else uses but as segments, which are `Send`; the pool itself is not used through here.
unsafe impl Send for PoolState {}

impl SegmentPool {
    /// An empty pool, to be [closed](Self::close); none without memory.
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
        // SAFETY: it came from a box just now, and nobody else knows it.
        unsafe { this.as_ref() }.0.lock().pool = this.as_ptr();
        Some(this)
    }

    /// Is it for segments of this class?
    pub(super) fn is_for(class: Class) -> bool {
        CLASSES.contains(&class)
    }

    /// Memory for a segment, whose header is put there; none without memory, or without a chunk that stays. The buckets behind it are
    /// the caller's to make. It goes back by [`insert`](Self::insert). O(1).
    pub(super) fn take(&self, header: Segment, room: Room) -> Option<NonNull<Segment>> {
        let mut state = self.0.lock();
        let slot = state.take(header.class, room)?;
        // SAFETY: it is a slot of the pool, of so many bytes.
        unsafe { unpoison(slot.as_ptr().cast(), bytes(header.class)) };
        // SAFETY: it is a slot that nobody has, as large as the header and aligned for it.
        unsafe { slot.write(header) };
        Some(slot)
    }

    /// Takes a segment's memory back. O(1).
    ///
    /// # Safety
    ///
    /// It came from [`take`](Self::take) of some pool, and nobody uses it any more.
    pub(super) unsafe fn put(segment: *mut Segment) {
        let header = segment.map_addr(|address| address & !(GEOMETRY.full - 1)).cast::<SegmentChunkHeader>();
        // SAFETY: chunks are aligned to their size and begin with this, and one is there while a segment in it is.
        let SegmentChunkHeader { pool, number } = unsafe { header.read() };
        let pool = pool.cast::<Self>();
        // SAFETY: a pool is there while it has a chunk.
        let mut state = unsafe { &*pool }.0.lock();
        // SAFETY: nobody uses it, says the caller; who looks for one that is to leave has the lock.
        unsafe { segment.drop_in_place() };
        #[cfg(lowwater_poison)]
        let class = state.chunks[number as usize].class;
        #[cfg(lowwater_poison)]
        // SAFETY: the caller's clause: nobody uses the segment any more.
        unsafe {
            poison(segment.cast(), bytes(class), 0);
        }
        state.put(segment.addr(), number);
        let is_over = state.is_over();
        drop(state);
        // SAFETY: the chunk's header had it as it came from a box.
        unsafe { Self::free_if(is_over, pool) };
    }

    /// Says that its index has ended: nothing is taken any more.
    ///
    /// # Safety
    ///
    /// It came from [`try_new`](Self::try_new), and is used only to put segments back from now on.
    pub(super) unsafe fn close(this: NonNull<Self>) {
        // SAFETY: it is there until it is closed and has no chunk.
        let mut state = unsafe { this.as_ref() }.0.lock();
        state.closed = true;
        let is_over = state.is_over();
        drop(state);
        // SAFETY: it came from a box, says the caller.
        unsafe { Self::free_if(is_over, this.as_ptr()) };
    }

    /// Frees the pool if it is over.
    ///
    /// # Safety
    ///
    /// It came from a box, and the caller saw whether it is over under the lock where it closed it or put something back.
    unsafe fn free_if(is_over: bool, this: *mut Self) {
        if is_over {
            // SAFETY: it is over for one caller, the later one of who closed it and who put the last segment back. After those nobody
            // comes.
            drop(unsafe { Box::from_raw(this) });
        }
    }

    /// The next segment that is to leave its chunk, and the prefix of its hashes; none if none is. It may be one that the index does not
    /// have: not yet, or not any more. O(1).
    pub(super) fn evacuating(&self) -> Option<(*mut Segment, u64)> {
        let mut state = self.0.lock();
        let segment = state.evacuating()?.as_ptr();
        // SAFETY: it is out, so it has a header, which was written under this lock, is dropped under it, and but for cells never changes.
        let prefix = unsafe { &*segment }.prefix;
        Some((segment, prefix))
    }

    /// Gives chunks that are kept for the next segments back to the system.
    pub(super) fn give_spare_back(&self) {
        self.0.lock().blocks.give_spare_back();
    }

    /// Bytes of all chunks, and of this.
    pub(super) fn footprint(&self) -> usize {
        let state = self.0.lock();
        let chunks = state.nr * GEOMETRY.full + state.chunks.capacity() * size_of::<SegmentChunk>();
        size_of::<Self>() + chunks + state.blocks.footprint()
    }

    /// Panics unless the counts agree.
    pub(super) fn assert_valid(&self) {
        let state = self.0.lock();
        let chunks = || state.chunks.iter().filter(|chunk| chunk.is_there());
        assert_eq!(chunks().count(), state.nr, "chunks are counted");
        assert!(chunks().all(|chunk| !chunk.is_empty()), "an empty chunk is given back");
        state.size_classes.iter().for_each(|size_class| size_class.assert_valid(&state.chunks));
    }
}

/// Where the size_class of a class is.
fn place(class: Class) -> usize {
    usize::from(class - CLASSES.start())
}

impl PoolState {
    /// Is it closed, and without a segment?
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
            let memory = chunk.memory.take().expect("a segment was in it");
            chunk.group_link.next = core::mem::replace(&mut self.unused, at);
            self.nr -= 1;
            // SAFETY: it came from there, and no slot of it is out.
            unsafe { self.blocks.put(memory, &GEOMETRY) };
        }
    }

    /// Makes a chunk.
    fn add(&mut self, class: Class) -> Option<u32> {
        let at = match self.unused {
            NONE => {
                self.chunks.try_reserve(1).ok()?;
                u32::try_from(self.chunks.len()).ok()?
            }
            unused => unused,
        };
        let memory = self.blocks.get(GEOMETRY.full, &GEOMETRY)?;
        // SAFETY: the chunk begins with room for its header, and is nobody else's yet.
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

    /// The next one that is to leave, of any class.
    fn evacuating(&mut self) -> Option<NonNull<Segment>> {
        let Self { size_classes, chunks, .. } = self;
        size_classes.iter_mut().find_map(|size_class| size_class.evacuating(chunks))
    }
}
