//! The memory of an index, and its checks.

use super::mix::mix;
use super::pool::SegmentPool;
use super::{segment_header, ExtendibleIndex};
use crate::slab::Slotted;
use lowwater_base::ByteSize;

/// Segments that are moved when there is time: what a long reader held back came too late for those that grew meanwhile.
const MOVES: usize = 64;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Memory that the index has for itself, without its slab: segments, also those that wait for readers in a large index, chunks of them
    /// that are not full, and what leads to them. O(segments).
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

    /// Gives back what can be given back at once: [`Slab::collect`](crate::Slab::collect) of its slab, and chunks that are kept for the next segments; moves a few
    /// segments, so that more can go. Says what had to stay of objects.
    ///
    /// O(what waits), as there. Not to be called by what is called under an index' lock.
    pub fn collect(&self) -> ByteSize {
        // Each has its own read side, so that those before need not wait for the last.
        (0..MOVES).take_while(|_| self.tidy(&lowwater_rcu::pin())).for_each(drop);
        if let Some(pool) = self.pool() {
            pool.give_spare_back();
        }
        self.slab.collect()
    }

    /// Checks the structure; `hasher` says the hash of any object. Locks each segment; for tests.
    ///
    /// # Panics
    ///
    /// When something is wrong, with a sentence that says what should hold.
    pub fn assert_valid(&self, hasher: &impl Fn(&T) -> u64) {
        let guard = lowwater_rcu::pin();
        let Some(directory) = self.directory(&guard) else { return };
        let mut segments = 0;
        self.each_segment(directory, |view| {
            let locked = view.lock();
            if !locked.is_dead() {
                locked.assert_valid(|number| {
                    let object = self.object(number);
                    assert!(object.state().is_indexed(), "what is in an index says so");
                    mix(hasher(object))
                });
            }
            segments += 1;
        });
        assert!(segments <= directory.len(), "no more segments than places");
        if let Some(pool) = self.pool() {
            pool.assert_valid();
        }
        self.slab.assert_valid();
    }
}
