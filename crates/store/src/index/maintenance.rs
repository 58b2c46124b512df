//! Memory accounting, memory release and self-checks of an index.
//!
//! A large index frees segments as its objects are removed, but a chunk of segments stays until all
//! its segments are free; [`collect`](ExtendibleIndex::collect) moves some of the remaining
//! segments. A change must ensure that one call moves a bounded number of them.

use super::pool::SegmentPool;
use super::{segment_header, ExtendibleIndex};
use crate::slab::Slotted;
use lowwater_base::hash::mix;
use lowwater_base::ByteSize;

/// The most segments that one [`collect`](ExtendibleIndex::collect) moves. Each segment that grows
/// or shrinks moves another one, too, but none while a long reader holds back the slots for it.
const MOVES: usize = 64;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Returns the memory of the index without its slab, in bytes: segments (in a large index also
    /// those that wait for readers), partly used chunks of segments, and the directory.
    /// O(segments).
    pub fn footprint(&self) -> ByteSize {
        let guard = lowwater_rcu::pin();
        let Some(directory) = self.directory(&guard) else { return ByteSize::new(size_of::<Self>() as u64) };
        let mut bytes = size_of::<Self>() + directory.bytes();
        self.each_segment(directory, |view| {
            if !view.header().pooled {
                bytes += segment_header::bytes(view.class());
            }
        });
        bytes += self.pool().map_or(0, SegmentPool::footprint);
        ByteSize::new(bytes as u64)
    }

    /// Releases memory that can be released at once: moves a few segments, so that more chunks can
    /// be released, [flushes](lowwater_rcu::flush) the replaced segments, releases the spare chunks
    /// of segments, and calls [`Slab::collect`](crate::Slab::collect) on the index's slab. Returns
    /// the bytes of retired objects that remain.
    ///
    /// O(waiting objects), as for the slab. Must not be called from a closure that runs under an
    /// index's lock.
    pub fn collect(&self) -> ByteSize {
        // Each move has its own read-side section, so that the earlier segments need not wait for
        // the last move.
        (0..MOVES).take_while(|_| self.tidy(&lowwater_rcu::pin())).for_each(drop);
        // Otherwise they wait for the next retirements of this process, which may be idle.
        lowwater_rcu::flush();
        if let Some(pool) = self.pool() {
            pool.give_spare_back();
        }
        self.slab.collect()
    }

    /// Checks the structure; `hasher` returns the hash of any object. Locks each segment; for
    /// tests.
    ///
    /// # Panics
    ///
    /// If an invariant is violated, with a sentence that states the invariant.
    pub fn assert_valid(&self, hasher: &impl Fn(&T) -> u64) {
        let guard = lowwater_rcu::pin();
        let Some(directory) = self.directory(&guard) else { return };
        let mut segments = 0;
        self.each_segment(directory, |view| {
            let locked = view.lock();
            if !locked.is_dead() {
                locked.assert_valid(|number| {
                    let object = self.object(number);
                    assert!(object.state().is_indexed(), "an object in the index is marked as indexed");
                    mix(hasher(object))
                });
            }
            segments += 1;
        });
        assert!(segments <= directory.len(), "no more segments than directory entries");
        if let Some(pool) = self.pool() {
            pool.assert_valid();
        }
        self.slab.assert_valid();
    }
}
