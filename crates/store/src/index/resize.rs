//! An index that grows and shrinks: a segment is replaced by another, or by two.

use super::class::{class_for, Class, CLASS_MAX, CLASS_MIN, CLASS_SPLIT};
use super::directory::{tagged, untagged, Directory};
use super::mix::mix;
use super::pool::SegmentPool;
use super::segment::{LockedSegment, New};
use super::segment_header::{self, Segment};
use super::ExtendibleIndex;
use crate::slab::Slotted;
use crate::sync::atomic::Ordering;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;
use lowwater_base::prefetch::prefetch;
use lowwater_lru_core::AllocError;
use lowwater_rcu::Guard;

/// Bits by which segments can be told apart. The rest of a hash chooses the bucket and the tag.
const DEPTH_MAX: u8 = 24;
/// A directory is not made longer than so many times the segments: hashes that begin alike are not worth it.
const PLACES_PER_SEGMENT: usize = 16;
/// A split that leaves less than this part on one side is none.
const SIDE_PARTS: usize = 16;
/// From so many segments on, at least, their memory is a pool's. Before, its chunks would be more than it spares.
const POOLED_DEPTH: u8 = 7;
/// How far ahead an object is asked for whose hash will be wanted.
const AHEAD: usize = 8;

/// A hash and its object's number.
type Hashed = (u64, u32);

impl<T: Slotted> ExtendibleIndex<T> {
    /// Makes the first segment, if there is none.
    #[cold]
    pub(super) fn begin(&self) -> Result<(), AllocError> {
        let segment = New::try_new(None, CLASS_MIN, 0, 0).ok_or(AllocError)?;
        let mut growth = self.growth.lock();
        // Relaxed: it changes under this lock.
        if !self.directory.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let segment = tagged(segment.publish(), CLASS_MIN);
        let Some(directory) = Directory::try_new(0, |_| segment) else {
            // SAFETY: nobody has seen it.
            unsafe { <Segment as crate::rcu::Retired>::free(untagged(segment)) };
            return Err(AllocError);
        };
        growth.segments = 1;
        // Release: meets the Acquire in `directory`.
        let ordering = if crate::mutated!("first_directory_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.directory.store(Box::into_raw(directory), ordering);
        Ok(())
    }

    /// Replaces a segment that is full by a larger one, or by two.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(
        &self,
        segment: &mut LockedSegment<'_>,
        guard: &Guard,
        hasher: &impl Fn(&T) -> u64,
    ) -> Result<(), AllocError> {
        let objects = self.hashed(segment, hasher)?;
        let (class, header) = (segment.view().class(), segment.view().header());
        let bit = |hash: u64| hash >> (63 - header.depth) & 1 != 0;
        if class >= CLASS_SPLIT && header.depth < DEPTH_MAX {
            let ones = objects.iter().filter(|(hash, _)| bit(*hash)).count();
            let least = ones.min(objects.len() - ones);
            if least * SIDE_PARTS >= objects.len() && self.may_split(header.depth) {
                let depth = header.depth + 1;
                let pool = self.pool_for(depth);
                let side = |one: bool, len: usize| {
                    let prefix = header.prefix | u64::from(one) << (63 - header.depth);
                    let of_side = objects.iter().copied().filter(move |(hash, _)| bit(*hash) == one);
                    filled(pool, class_for(len + 1), depth, prefix, of_side)
                };
                let both = [side(false, objects.len() - ones)?, side(true, ones)?];
                return self.replace(segment, both.into_iter(), guard);
            }
        }
        if class >= CLASS_MAX {
            return Err(AllocError);
        }
        let class = class_for(objects.len() + 1).max(class + 1);
        let pool = self.pool_for(header.depth);
        let larger = filled(pool, class, header.depth, header.prefix, objects.into_iter())?;
        self.replace(segment, core::iter::once(larger), guard)
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
        // Not quite room for as many again: a class is not twice another to the last object.
        let class = class_for(segment.len() * 2 - segment.len() / 8);
        let objects = self.hashed(segment, hasher)?;
        let header = segment.view().header();
        let pool = self.pool_for(header.depth);
        let smaller = filled(pool, class, header.depth, header.prefix, objects.into_iter())?;
        self.replace(segment, core::iter::once(smaller), guard)
    }

    /// Puts the next segment elsewhere whose chunk is to be emptied. Was there one? Not under a segment's lock.
    #[cold]
    pub(super) fn tidy(&self, guard: &Guard) -> bool {
        let Some(pool) = self.pool() else { return false };
        let Some((at, prefix)) = pool.evacuating() else { return false };
        let Some(mut segment) = self.lock_there(prefix, guard) else { return false };
        // Else it was not published yet, or replaced already.
        if ptr::eq(segment.view().as_ptr(), at) {
            // Without room elsewhere it stays.
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
        self.replace(segment, core::iter::once(copy), guard)
    }

    /// The pool, if there is one.
    pub(super) fn pool(&self) -> Option<&SegmentPool> {
        let pool = self.growth.lock().pool?;
        // SAFETY: it is there until the index closes it, at its end.
        Some(unsafe { pool.as_ref() })
    }

    /// The pool, if that is where segments of this depth should be, and there is memory for one.
    fn pool_for(&self, depth: u8) -> Option<&SegmentPool> {
        if depth < POOLED_DEPTH {
            return None;
        }
        let mut growth = self.growth.lock();
        growth.pool = growth.pool.or_else(SegmentPool::try_new);
        drop(growth);
        self.pool()
    }

    /// What is in a segment, with its hashes.
    fn hashed(&self, segment: &LockedSegment<'_>, hasher: &impl Fn(&T) -> u64) -> Result<Vec<Hashed>, AllocError> {
        let mut objects = Vec::new();
        objects.try_reserve_exact(segment.len()).map_err(|_| AllocError)?;
        segment.view().each(|number| objects.push((0, number)));
        objects.iter().take(AHEAD).for_each(|&(_, number)| prefetch(self.object(number)));
        for at in 0..objects.len() {
            if let Some(&(_, later)) = objects.get(at + AHEAD) {
                prefetch(self.object(later));
            }
            objects[at].0 = mix(hasher(self.object(objects[at].1)));
        }
        Ok(objects)
    }

    /// Is a segment of this depth to be split, as far as the directory is concerned?
    fn may_split(&self, depth: u8) -> bool {
        let growth = self.growth.lock();
        // Relaxed: it changes under this lock.
        let directory = self.directory.load(Ordering::Relaxed);
        // SAFETY: it is there, as it has a segment, and is not retired before another is published, under this lock.
        let directory = unsafe { &*directory };
        depth < directory.depth() || directory.len() <= growth.segments * PLACES_PER_SEGMENT
    }

    /// Publishes what takes a segment's place.
    fn replace(
        &self,
        segment: &mut LockedSegment<'_>,
        by: impl ExactSizeIterator<Item = New>,
        guard: &Guard,
    ) -> Result<(), AllocError> {
        let mut growth = self.growth.lock();
        // Relaxed: it changes under this lock.
        let mut directory = self.directory.load(Ordering::Relaxed);
        let header = segment.view().header();
        let nr = by.len();
        let mut retired = segment_header::bytes(segment.view().class());
        // SAFETY: as in `may_split`.
        let old = unsafe { &*directory };
        if nr == 2 && header.depth == old.depth() {
            let double = Directory::try_new(old.depth() + 1, |at| old.raw(at / 2)).ok_or(AllocError)?;
            let double = Box::into_raw(double);
            // Release: meets the Acquire in `directory`.
            let ordering = if crate::mutated!("directory_relaxed") { Ordering::Relaxed } else { Ordering::Release };
            self.directory.store(double, ordering);
            // SAFETY: it came from a box, and readers that enter from now on find the new one.
            unsafe { guard.retire(directory) };
            retired += old.bytes();
            directory = double;
        }
        // SAFETY: as above.
        let directory = unsafe { &*directory };
        for new in by {
            let (class, depth, prefix) = new.what();
            let new = tagged(new.publish(), class);
            let first = directory.index(prefix);
            for at in first..first + (1 << (directory.depth() - depth)) {
                directory.set(at, new);
            }
        }
        growth.segments += nr - 1;
        segment.kill();
        // SAFETY: the directory does not have it any more, nor does a later one; it is not used after its lock is given back, but
        // by readers.
        unsafe { guard.retire(segment.view().as_ptr()) };
        drop(growth);
        if let Some(shared) = self.slab.shared() {
            shared.retire_beside(retired);
        }
        Ok(())
    }

    /// Frees what the index has for itself, without looking at objects. It is not used afterwards.
    pub(super) fn free(&mut self) {
        // Relaxed: nobody else has access.
        let directory = self.directory.swap(ptr::null_mut(), Ordering::Relaxed);
        if directory.is_null() {
            return;
        }
        // SAFETY: it came from a box, and nobody else has access.
        let directory = unsafe { Box::from_raw(directory) };
        let mut at = 0;
        while at < directory.len() {
            let segment = untagged(directory.raw(at));
            // SAFETY: it is not freed yet.
            at += 1 << (directory.depth() - unsafe { &*segment }.depth);
            // SAFETY: the directory had it, in all of its places that were just passed, and nobody else has access.
            unsafe { <Segment as crate::rcu::Retired>::free(segment) };
        }
        if let Some(pool) = self.growth.get_mut().pool.take() {
            // SAFETY: it came from there, and nobody else has access; what was retired is put back alone.
            unsafe { SegmentPool::close(pool) };
        }
    }
}

/// A new segment with these in it.
fn filled(
    pool: Option<&SegmentPool>,
    class: Class,
    depth: u8,
    prefix: u64,
    objects: impl Iterator<Item = Hashed>,
) -> Result<New, AllocError> {
    let segment = New::try_new(pool, class, depth, prefix).ok_or(AllocError)?;
    let mut locked = segment.locked();
    for (hash, number) in objects {
        let place = locked.room(hash).expect("the class was chosen for them");
        locked.put(hash, place, number);
    }
    drop(locked);
    Ok(segment)
}
