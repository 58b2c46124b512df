//! Growing and shrinking: a segment is replaced by another one, or split into two.
//!
//! Readers hold no lock, so a segment is never changed in size: the replacement is filled first,
//! then published in the directory, and the old segment is marked dead and freed after its readers.
//! A change must keep these steps in this order, and that a failed allocation or a panicking hasher
//! leaves the old segment in use.

use super::class::{class_for, Class, CLASS_MAX, CLASS_MIN, CLASS_SPLIT};
use super::directory::{tagged, untagged, Directory};
use super::pool::SegmentPool;
use super::segment::{LockedSegment, New};
use super::segment_header::{self, Segment};
use super::ExtendibleIndex;
use crate::slab::Slotted;
use crate::sync::atomic::Ordering;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;
use lowwater_base::hash::mix;
use lowwater_base::prefetch::prefetch;
use lowwater_lru_core::AllocError;
use lowwater_rcu::Guard;

/// The maximum depth of a segment: the number of leading bits that its hashes have in common. The
/// rest of a hash selects the bucket and the tag.
const DEPTH_MAX: u8 = 24;
/// The directory is doubled only while it has at most this many entries per segment: hashes with a
/// long common prefix are not worth a longer one.
const PLACES_PER_SEGMENT: usize = 16;
/// A split that leaves less than 1 / `SIDE_PARTS` of the objects on one side is not made.
const SIDE_PARTS: usize = 16;
/// The depth from which on segments are allocated from a pool: that of an index of about 2^7
/// segments. With fewer segments, the pool's chunks would cost more than they save.
const POOLED_DEPTH: u8 = 7;
/// How many objects ahead of the computation of its hash an object is prefetched.
const AHEAD: usize = 8;

/// An object's number and its hash; for an object of unknown hash, any hash of its segment.
#[derive(Clone, Copy)]
struct Hashed {
    hash: u64,
    number: u32,
    is_hidden: bool,
}

impl<T: Slotted> ExtendibleIndex<T> {
    /// Creates the first segment and the directory, if there are none.
    #[cold]
    pub(super) fn begin(&self) -> Result<(), AllocError> {
        let segment = New::try_new(None, CLASS_MIN, 0, 0).ok_or(AllocError)?;
        let mut growth = self.growth.lock();
        // Relaxed: the directory changes only under this lock.
        if !self.directory.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let segment = tagged(segment.publish(), CLASS_MIN);
        let Some(directory) = Directory::try_new(0, |_| segment) else {
            // SAFETY: the segment was not published: the directory that was to hold it does not
            // exist.
            unsafe { <Segment as crate::rcu::Retired>::free(untagged(segment)) };
            return Err(AllocError);
        };
        growth.segments = 1;
        // Release: pairs with the Acquire in `directory`.
        let ordering = if crate::mutated!("first_directory_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.directory.store(Box::into_raw(directory), ordering);
        Ok(())
    }

    /// Replaces a full segment by a larger one, or splits it into two.
    pub(super) fn grow(
        &self,
        segment: &mut LockedSegment<'_>,
        guard: &Guard,
        hasher: &impl Fn(&T) -> u64,
    ) -> Result<(), AllocError> {
        let objects = self.hashed(segment, hasher)?;
        let (class, header) = (segment.view().class(), segment.view().header());
        // The bit after the segment's prefix, by which a split separates the objects.
        let bit = |hash: u64| hash >> (63 - header.depth) & 1 != 0;
        if class >= CLASS_SPLIT && header.depth < DEPTH_MAX {
            let ones = objects.iter().filter(|object| bit(object.hash)).count();
            let least = ones.min(objects.len() - ones);
            if least * SIDE_PARTS >= objects.len() && self.may_split(header.depth) {
                let depth = header.depth + 1;
                let pool = self.pool_for(depth);
                let side = |one: bool, len: usize| {
                    let prefix = header.prefix | u64::from(one) << (63 - header.depth);
                    let of_side = objects.iter().copied().filter(move |object| bit(object.hash) == one);
                    filled(pool, class_for(len + 1), depth, prefix, of_side)
                };
                let both = [side(false, objects.len() - ones)?, side(true, ones)?];
                return self.replace_segment(segment, both.into_iter(), guard);
            }
        }
        if class >= CLASS_MAX {
            return Err(AllocError);
        }
        let class = class_for(objects.len() + 1).max(class + 1);
        let pool = self.pool_for(header.depth);
        let larger = filled(pool, class, header.depth, header.prefix, objects.into_iter())?;
        self.replace_segment(segment, core::iter::once(larger), guard)
    }

    /// Replaces a segment that is much too large by a smaller one.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink(
        &self,
        segment: &mut LockedSegment<'_>,
        guard: &Guard,
        hasher: &impl Fn(&T) -> u64,
    ) -> Result<(), AllocError> {
        // A little less than room for twice the objects, as classes are not exact multiples of each
        // other: the class for exactly twice could be one larger.
        let class = class_for(segment.len() * 2 - segment.len() / 8);
        let objects = self.hashed(segment, hasher)?;
        let header = segment.view().header();
        let pool = self.pool_for(header.depth);
        let smaller = filled(pool, class, header.depth, header.prefix, objects.into_iter())?;
        self.replace_segment(segment, core::iter::once(smaller), guard)
    }

    /// Moves the next segment that is to be evacuated from its chunk of the pool, so that the chunk
    /// becomes empty. Returns false if there is none. Must not be called under a segment's lock.
    #[cold]
    pub(super) fn tidy(&self, guard: &Guard) -> bool {
        let Some(pool) = self.pool() else { return false };
        let Some((at, prefix)) = pool.evacuating() else { return false };
        let Some(mut segment) = self.lock_if_any(prefix, guard) else { return false };
        // If the addresses differ, the segment at `at` was not published yet, or has been replaced
        // already.
        if ptr::eq(segment.view().as_ptr(), at) {
            // Without room in another chunk the segment stays.
            let _moved = self.move_out(&mut segment, Some(pool), guard);
        }
        true
    }

    /// Replaces a segment by a copy.
    pub(super) fn move_out(
        &self,
        segment: &mut LockedSegment<'_>,
        pool: Option<&SegmentPool>,
        guard: &Guard,
    ) -> Result<(), AllocError> {
        let copy = New::copy(segment, pool).ok_or(AllocError)?;
        self.replace_segment(segment, core::iter::once(copy), guard)
    }

    /// Returns the segment pool, if there is one.
    pub(super) fn pool(&self) -> Option<&SegmentPool> {
        let pool = self.growth.lock().pool?;
        // SAFETY: the pool exists until the index closes it, when the index is dropped.
        Some(unsafe { pool.as_ref() })
    }

    /// Returns the pool, if segments of this depth are allocated from one and there is memory for
    /// it.
    fn pool_for(&self, depth: u8) -> Option<&SegmentPool> {
        if depth < POOLED_DEPTH {
            return None;
        }
        let mut growth = self.growth.lock();
        growth.pool = growth.pool.or_else(SegmentPool::try_new);
        drop(growth);
        self.pool()
    }

    /// Returns the objects of a segment, with their hashes.
    fn hashed(&self, segment: &LockedSegment<'_>, hasher: &impl Fn(&T) -> u64) -> Result<Vec<Hashed>, AllocError> {
        let mut objects = Vec::new();
        objects.try_reserve_exact(segment.len()).map_err(|_| AllocError)?;
        let &Segment { prefix, depth, .. } = segment.view().header();
        // Spread over the segment, so that hidden objects are split as others are.
        let any = |number: u32| prefix | mix(u64::from(number)) >> depth;
        segment.view().each(|number, is_hidden| objects.push(Hashed { hash: any(number), number, is_hidden }));
        objects.iter().take(AHEAD).for_each(|object| prefetch(self.object(object.number)));
        for at in 0..objects.len() {
            if let Some(later) = objects.get(at + AHEAD) {
                prefetch(self.object(later.number));
            }
            let Hashed { hash, number, is_hidden } = &mut objects[at];
            if !*is_hidden {
                *hash = mix(hasher(self.object(*number)));
            }
        }
        Ok(objects)
    }

    /// Returns true if the directory permits a split of a segment of this depth.
    fn may_split(&self, depth: u8) -> bool {
        let growth = self.growth.lock();
        // Relaxed: the directory changes only under this lock.
        let directory = self.directory.load(Ordering::Relaxed);
        // SAFETY: the directory exists because a segment does, and it is retired only after its
        // replacement is published, under this lock.
        let directory = unsafe { &*directory };
        depth < directory.depth() || directory.len() <= growth.segments * PLACES_PER_SEGMENT
    }

    /// Publishes the segments that replace a segment, and retires the segment. Fails, without a
    /// change, only if the directory must be doubled and there is no memory.
    fn replace_segment(
        &self,
        segment: &mut LockedSegment<'_>,
        by: impl ExactSizeIterator<Item = New>,
        guard: &Guard,
    ) -> Result<(), AllocError> {
        let mut growth = self.growth.lock();
        // Relaxed: the directory changes only under this lock.
        let mut directory = self.directory.load(Ordering::Relaxed);
        let header = segment.view().header();
        let nr = by.len();
        let mut retired = segment_header::bytes(segment.view().class());
        // SAFETY: the directory exists because a segment does, and it is retired only below, under
        // this lock.
        let old = unsafe { &*directory };
        if nr == 2 && header.depth == old.depth() {
            let double = Directory::try_new(old.depth() + 1, |at| old.raw(at / 2)).ok_or(AllocError)?;
            let double = Box::into_raw(double);
            // Release: pairs with the Acquire in `directory`.
            let ordering = if crate::mutated!("directory_relaxed") { Ordering::Relaxed } else { Ordering::Release };
            self.directory.store(double, ordering);
            // SAFETY: the directory came from a box, and readers that enter from now on find the
            // new one.
            unsafe { guard.retire(directory) };
            retired += old.bytes();
            directory = double;
        }
        // SAFETY: the directory in use is retired only under this lock, which is held.
        let directory = unsafe { &*directory };
        for new in by {
            let (class, depth, prefix) = new.class_depth_prefix();
            let new = tagged(new.publish(), class);
            let first = directory.index(prefix);
            for at in first..first + (1 << (directory.depth() - depth)) {
                directory.set(at, new);
            }
        }
        growth.segments += nr - 1;
        segment.kill();
        // SAFETY: the directory has no entry for this segment any more, and a later directory is
        // copied from this one. After its lock is released, only readers use it.
        unsafe { guard.retire(segment.view().as_ptr()) };
        drop(growth);
        if let Some(shared) = self.slab.shared() {
            shared.retire_beside(retired);
        }
        Ok(())
    }

    /// Frees the memory of the index itself, without reading the objects. The index is not used
    /// afterwards.
    pub(super) fn free(&mut self) {
        // Relaxed: `&mut self`, no other thread has access.
        let directory = self.directory.swap(ptr::null_mut(), Ordering::Relaxed);
        if directory.is_null() {
            return;
        }
        // SAFETY: the directory came from a box, and `&mut self` is the only access.
        let directory = unsafe { Box::from_raw(directory) };
        let mut at = 0;
        while at < directory.len() {
            let segment = untagged(directory.raw(at));
            // SAFETY: the segment is freed only below.
            at += 1 << (directory.depth() - unsafe { &*segment }.depth);
            // SAFETY: `at` has passed all of the segment's entries in the directory, and `&mut
            // self` is the only access.
            unsafe { <Segment as crate::rcu::Retired>::free(segment) };
        }
        if let Some(pool) = self.growth.get_mut().pool.take() {
            // SAFETY: the pool came from `try_new`; nothing is allocated from it any more, and
            // retired segments are only put back.
            unsafe { SegmentPool::close(pool) };
        }
    }
}

/// Creates a segment with these objects in it.
fn filled(
    pool: Option<&SegmentPool>,
    class: Class,
    depth: u8,
    prefix: u64,
    objects: impl Iterator<Item = Hashed>,
) -> Result<New, AllocError> {
    let segment = New::try_new(pool, class, depth, prefix).ok_or(AllocError)?;
    let mut locked = segment.locked();
    for Hashed { hash, number, is_hidden } in objects {
        let place = locked.room(hash).expect("the class has room for the objects");
        match is_hidden {
            true => locked.put_hidden(place, number),
            false => locked.put(hash, place, number),
        }
    }
    drop(locked);
    Ok(segment)
}
