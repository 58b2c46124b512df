//! The memory of a large index: freed slots of segments are reused, and empty chunks are released.
//!
//! The first tests use a pool without an index and free segments one by one; the last two fill an
//! index. A change must ensure that the expected sizes stay written out, for 64-byte lines, and are
//! not computed by the code under test.

use super::*;
use crate::index::class::Class;
use crate::index::pool::{Room, SegmentPool};
use crate::index::segment_header::{bytes, Segment};
use alloc::vec::Vec;
use core::ptr::NonNull;
use lowwater_rcu::pin;

const CHUNK: usize = 64 << 10;
/// Segments of 68 cache lines, 15 of them per chunk.
const CLASS: Class = 12;
const SLOTS: usize = 15;

/// A pool that is closed on drop.
struct Own(NonNull<SegmentPool>);

impl Own {
    fn new() -> Self {
        Self(SegmentPool::try_new().expect("memory"))
    }
}

impl core::ops::Deref for Own {
    type Target = SegmentPool;

    fn deref(&self) -> &SegmentPool {
        // SAFETY: the pool exists until it is closed when this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the pool came from `try_new`, and is used afterwards only to free segments.
        unsafe { SegmentPool::close(self.0) };
    }
}

fn take(pool: &SegmentPool, class: Class, prefix: u64) -> *mut Segment {
    pool.take(Segment::new(class, 64, prefix), Room::Any).expect("memory").as_ptr()
}

/// Frees a segment that [`take`] returned.
fn put(segment: *mut Segment) {
    // SAFETY: each test frees each segment once.
    unsafe { SegmentPool::put(segment) };
}

#[test]
fn a_chunk_has_the_stated_slots_and_is_released_with_its_last_segment() {
    let pool = Own::new();
    let empty = pool.footprint();
    for (class, slots) in [(8, 60), (9, 39), (10, 30), (11, 20), (12, 15), (13, 10)] {
        assert!(slots * bytes(class) > CHUNK * 98 / 100, "class {class}: less than 2 % of a chunk is not used");
        let segments: Vec<_> = (0..=slots).map(|prefix| take(&pool, class, prefix as u64)).collect();
        let chunk = |segment: *mut Segment| segment.addr() / CHUNK;
        assert!(segments[..slots].iter().all(|&segment| chunk(segment) == chunk(segments[0])), "class {class}");
        assert_ne!(chunk(segments[slots]), chunk(segments[0]), "class {class}");
        let mut addresses: Vec<_> = segments.iter().map(|segment| segment.addr()).collect();
        addresses.sort_unstable();
        assert!(
            addresses.windows(2).all(|pair| pair[1] - pair[0] >= bytes(class)),
            "class {class}: none is in another"
        );
        pool.assert_valid();
        assert!(pool.footprint() >= empty + 2 * CHUNK);
        segments.into_iter().for_each(put);
        pool.assert_valid();
        assert!(pool.footprint() < empty + CHUNK, "class {class}: they went back");
    }
}

#[test]
fn a_closed_pool_is_freed_with_its_last_segment() {
    let pool = Own::new();
    let segments: Vec<_> = (0..100).map(|prefix| take(&pool, CLASS, prefix)).collect();
    drop(pool);
    segments.into_iter().for_each(put);
}

/// Every second segment of many chunks is free: half of the chunks can be released, and are, if
/// each segment that is to be evacuated moves.
#[test]
fn evacuation_empties_whole_chunks() {
    let pool = Own::new();
    let mut segments: Vec<_> = (0..40 * SLOTS as u64).map(|prefix| Some(take(&pool, CLASS, prefix))).collect();
    assert!(pool.evacuating().is_none(), "there is no room");
    let full = pool.footprint();
    segments.iter_mut().step_by(2).for_each(|segment| put(segment.take().expect("each once")));
    assert!(pool.footprint() >= full, "no chunk is empty");
    let (mut moved, mut waiting) = (0, Vec::new());
    while let Some((old, prefix)) = pool.evacuating() {
        assert_eq!(segments[prefix as usize], Some(old), "each segment is returned once, with its prefix");
        let new = pool.take(Segment::new(CLASS, 64, prefix), Room::Staying).expect("a chunk has room").as_ptr();
        assert!(segments.iter().flatten().all(|&segment| segment != new));
        segments[prefix as usize] = Some(new);
        pool.assert_valid();
        // As with readers, which delay the freeing of some segments.
        waiting.push(old);
        if waiting.len() == 8 {
            waiting.drain(..).for_each(put);
        }
        moved += 1;
    }
    waiting.drain(..).for_each(put);
    pool.assert_valid();
    assert!(moved <= 20 * SLOTS, "{moved} were moved, of 300 that stay");
    pool.give_spare_back();
    assert!(pool.footprint() < full - 18 * CHUNK, "{} of {full}: half of it went back", pool.footprint());
    segments.into_iter().flatten().for_each(put);
}

/// An evacuated segment that stays does no harm: its chunk is used again when no other chunk has
/// room.
#[test]
fn a_chunk_whose_segments_stay_is_allocated_from_again() {
    let pool = Own::new();
    let mut segments: Vec<_> = (0..2 * SLOTS as u64).map(|prefix| take(&pool, CLASS, prefix)).collect();
    let two = pool.footprint();
    segments.drain(SLOTS / 2..SLOTS + SLOTS / 2 + 1).for_each(put);
    assert!(pool.evacuating().is_some());
    while pool.evacuating().is_some() {}
    let free = 2 * SLOTS - segments.len();
    segments.extend((0..free).map(|_| take(&pool, CLASS, 0)));
    pool.assert_valid();
    assert_eq!(pool.footprint(), two, "all of both is used");
    assert!(pool.take(Segment::new(CLASS, 64, 0), Room::Staying).is_none());
    segments.into_iter().for_each(put);
}

/// Segments go to the fullest chunk, so that the emptiest chunks can become empty.
#[test]
fn a_segment_is_allocated_in_the_fullest_chunk() {
    // `free` of 15 slots are free in the first chunk, and 12 in the second, whose slots are freed
    // later. A chunk with 11 free slots is just in another fullness group than one with 12 (`BINS`
    // in `pool/size_class.rs`).
    for free in [2, 8, 11] {
        let pool = Own::new();
        let mut segments: Vec<_> = (0..2 * SLOTS as u64).map(|prefix| take(&pool, CLASS, prefix)).collect();
        let chunk = |segment: *mut Segment| segment.addr() / CHUNK;
        let (first, second) = (chunk(segments[0]), chunk(segments[SLOTS]));
        assert_ne!(first, second);
        segments.drain(..free).for_each(put);
        segments.drain(SLOTS - free..SLOTS - free + 12).for_each(put);
        let taken: Vec<_> = (0..free as u64).map(|prefix| take(&pool, CLASS, prefix)).collect();
        assert!(taken.iter().all(|segment| chunk(*segment) == first), "{free} were free");
        let next = take(&pool, CLASS, 0);
        assert_eq!(chunk(next), second, "the first one is full");
        segments.into_iter().chain(taken).chain([next]).for_each(put);
    }
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

/// The chunks that may be partly free: for each of three size classes that are in use at a time,
/// one with room and one that is being evacuated.
const CHUNKS_MAX: usize = 6;

/// The pool's memory is that of its segments plus a few chunks, at every size of the index.
#[test]
#[cfg_attr(miri, ignore = "it would take hours")]
fn a_large_indexs_chunks_are_nearly_full() {
    let index = ExtendibleIndex::<Entry>::new();
    let mut handles = Vec::new();
    for key in 0..1_200_000 {
        handles.push(super::put(&index, key, key, &hash, &pin(), |slot, _| slot).1);
        // Of a smaller index some segments are not in the pool yet.
        if key < 200_000 || key % 10_000 != 0 {
            continue;
        }
        let (unpooled, used) = unpooled_and_used(&index);
        assert!(unpooled < 1 << 16, "{unpooled} bytes of segments are not in the pool, with {key} entries");
        let most = (used * 102 / 100 + CHUNKS_MAX * CHUNK) as u64;
        let has = settled(&index, most);
        assert!(has <= most, "the index has {has} bytes, for {used}, with {key} entries");
        index.pool().expect("a large index has a pool").assert_valid();
    }
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    assert!((0..1_200_000).all(|key| get(&index, key, &hash, &pin()) == Some(key)));
}

/// The bytes of segments outside the pool, and of all segments.
fn unpooled_and_used(index: &ExtendibleIndex<Entry>) -> (usize, usize) {
    let guard = pin();
    let (mut unpooled, mut used) = (0, 0);
    index.each_segment(index.directory(&guard).expect("an index with entries has a directory"), |view| {
        used += bytes(view.class());
        unpooled += if view.header().pooled { 0 } else { bytes(view.class()) };
    });
    (unpooled, used)
}

/// Segments move while other threads insert and look up: entries that are present throughout are
/// found.
#[test]
#[cfg_attr(miri, ignore = "it would take hours")]
fn threads_lose_no_entry_while_a_large_index_grows() {
    const EACH: u64 = 60_000;
    let index = ExtendibleIndex::<Entry>::new();
    let mut handles: Vec<_> =
        (0..2 * EACH).map(|key| super::put(&index, key, key, &hash, &pin(), |slot, _| slot).1).collect();
    std::thread::scope(|s| {
        let threads: Vec<_> = (2..5)
            .map(|nth| {
                let index = &index;
                s.spawn(move || {
                    let keys = nth * EACH..(nth + 1) * EACH;
                    keys.map(|key| {
                        let before = key - 2 * EACH;
                        assert!(before >= 2 * EACH || get(index, before, &hash, &pin()) == Some(before));
                        super::put(index, key, key, &hash, &pin(), |slot, _| slot).1
                    })
                    .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| handles.extend(thread.join().expect("the thread found all entries")));
    });
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    assert!((0..5 * EACH).all(|key| get(&index, key, &hash, &pin()) == Some(key)));
}

/// Not on the counted read side: a thread that is inside, as an insert is, does not see there that
/// earlier readers have left.
#[test]
#[cfg(feature = "std")]
#[cfg_attr(miri, ignore)] // Too many inserts.
fn an_index_that_only_grows_counts_freed_segments_no_longer() {
    let index = ExtendibleIndex::<Entry>::new();
    let hash = |key: u64| key.wrapping_mul(lowwater_base::hash::GOLDEN_RATIO);
    // Readers of other tests may hold back segments for a while: more inserts follow then.
    let is_low = (0..100).any(|round| {
        for key in round * 10_000..(round + 1) * 10_000 {
            super::put(&index, key, 0, &hash, &pin(), |slot, _| drop(slot));
        }
        // By then segments of some megabytes were replaced.
        round >= 30 && index.slab().waiting().get() <= 512 << 10
    });
    assert!(is_low, "{} bytes are waiting", index.slab().waiting());
}
