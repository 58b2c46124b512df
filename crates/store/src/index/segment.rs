//! A segment: a small hash table with a lock, for objects with hashes that begin with the same
//! bits.
//!
//! A segment is an array of [buckets](super::bucket), each with twelve *ways*: a tag and an
//! object's number. An object stays in the way where it was inserted. A segment that must grow,
//! shrink or split is replaced by another, under its lock; from then on it is *dead*, and stays
//! unchanged for the readers that hold a reference to it.
//!
//! A change must ensure that a dead segment is never changed, that a writer that locked a dead
//! segment looks the directory up again, and that each bucket from an object's home bucket to the
//! one before the object counts the object: a search ends at a bucket whose overflow count is 0.

use super::bucket::{overflow_class, Bucket, OVERFLOW_COUNTS};
use super::class::{buckets, len_max, Class, CLASS_MIN};
use super::first_probe::FirstProbe;
use super::pool::{Room, SegmentPool};
use super::segment_header::{layout, Segment};
use super::tag::tag;
use crate::rcu::{Retired, RetiredKind};
use crate::sync::UnsafeCell;
use alloc::alloc::{alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::NonNull;

// SAFETY: `kind` returns one static, and no other code uses the link of a retired Segment.
unsafe impl Retired for Segment {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<Segment>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: the caller's contract: the segment is live, and freed only here.
        let &Self { class, pooled, .. } = unsafe { &*this };
        if pooled {
            // SAFETY: a pooled segment came from `SegmentPool::take`; the caller's contract: no
            // other code uses it.
            return unsafe { SegmentPool::put(this) };
        }
        // SAFETY: the caller's contract: no other code reads the segment. Its header may need a
        // drop; buckets do not.
        unsafe { this.drop_in_place() };
        let layout = layout(class).expect("the segment has the layout of its allocation");
        // SAFETY: the segment was allocated by the allocator with this layout (`try_with`).
        unsafe { dealloc(this.cast(), layout) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        let first = this.wrapping_add(1).cast::<Bucket>();
        // SAFETY: the caller's contract: the segment is live, and the caller has exclusive access.
        let class = unsafe { &*this }.class;
        for bucket in 0..buckets(class) {
            // SAFETY: the segment has `buckets(class)` buckets behind its header, and the caller
            // has exclusive access.
            unsafe { &mut *first.wrapping_add(bucket) }.assert_unread();
        }
    }
}

/// A segment that is not published yet.
pub(super) struct New(NonNull<Segment>);

impl New {
    /// Creates an empty segment, in the pool's memory if its class is pooled; `None` without
    /// memory.
    pub(super) fn try_new(pool: Option<&SegmentPool>, class: Class, depth: u8, prefix: u64) -> Option<Self> {
        let pool = pool.filter(|_| SegmentPool::is_for(class)).map(|pool| (pool, Room::Any));
        Self::try_with(pool, Segment::new(class, depth, prefix), |_| Bucket::new())
    }

    /// Copies the segment `of` into a chunk of the pool that is not being evacuated, or without a
    /// pool into the allocator's memory; `None` without memory.
    pub(super) fn copy(of: &LockedSegment<'_>, pool: Option<&SegmentPool>) -> Option<Self> {
        let Segment { class, depth, prefix, .. } = *of.view().header();
        let pool = pool.map(|pool| (pool, Room::Staying));
        let copy = Self::try_with(pool, Segment::new(class, depth, prefix), |at| of.view().bucket(at).copy())?;
        copy.locked().set_len(of.len());
        Some(copy)
    }

    fn try_with(pool: Option<(&SegmentPool, Room)>, header: Segment, bucket: impl Fn(usize) -> Bucket) -> Option<Self> {
        let class = header.class;
        let this = match pool {
            Some((pool, room)) => pool.take(Segment { pooled: true, ..header }, room)?,
            None => {
                // SAFETY: the size is not 0, because a segment has a header.
                let this = NonNull::new(unsafe { alloc(layout(class)?) }.cast::<Segment>())?;
                // SAFETY: `this` is fresh memory of a segment's layout.
                unsafe { this.write(header) };
                this
            }
        };
        let first = this.as_ptr().wrapping_add(1).cast::<Bucket>();
        for at in 0..buckets(class) {
            // SAFETY: the layout, or the contract of the pool, has room for `buckets(class)`
            // buckets behind the segment.
            let place = unsafe { first.add(at) };
            // SAFETY: the place is fresh memory, aligned as the segment is.
            unsafe { place.write(bucket(at)) };
        }
        Some(Self(this))
    }

    /// Returns the segment's class, depth and prefix.
    pub(super) fn class_depth_prefix(&self) -> (Class, u8, u64) {
        // SAFETY: `self` owns the segment.
        let header = unsafe { self.0.as_ref() };
        (header.class, header.depth, header.prefix)
    }

    /// Passes the segment to the caller, who stores the pointer in the directory.
    pub(super) fn publish(self) -> *mut Segment {
        let this = self.0.as_ptr();
        core::mem::forget(self);
        this
    }

    /// Locks the segment. No other thread can contend, because it is not published.
    pub(super) fn locked(&self) -> LockedSegment<'_> {
        // SAFETY: the segment is not freed while `self` exists.
        let header = unsafe { self.0.as_ref() };
        // SAFETY: the header's class is the segment's, and the segment is not freed while `self`
        // exists.
        unsafe { View::new(self.0, header.class) }.lock()
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // SAFETY: the segment was not published, so `self` is its only user.
        unsafe { Segment::free(self.0.as_ptr()) };
    }
}

/// A reference to a segment that is not freed during `'g`.
#[derive(Clone, Copy)]
pub(super) struct View<'g> {
    at: NonNull<Segment>,
    /// The segment's class, which a reader has from the directory's entry.
    class: Class,
    guard: PhantomData<&'g Segment>,
}

impl<'g> View<'g> {
    /// Creates a reference to the segment at `at`.
    ///
    /// # Safety
    ///
    /// The segment has this class and is not freed during `'g`.
    #[inline]
    pub(super) unsafe fn new(at: NonNull<Segment>, class: Class) -> Self {
        Self { at, class, guard: PhantomData }
    }

    /// Returns the segment's address, for retiring it: a reference to the header gives access
    /// neither to the buckets nor to the allocation.
    pub(super) fn as_ptr(self) -> *mut Segment {
        self.at.as_ptr()
    }

    pub(super) fn header(self) -> &'g Segment {
        // SAFETY: the contract of `new`: the segment is not freed during `'g`.
        unsafe { self.at.as_ref() }
    }

    pub(super) fn class(self) -> Class {
        self.class
    }

    #[inline]
    fn bucket(self, at: usize) -> &'g Bucket {
        let buckets = self.at.as_ptr().wrapping_add(1).cast::<Bucket>();
        // SAFETY: the buckets follow the header, and callers pass `at` below the number of buckets.
        let bucket = unsafe { buckets.add(at) };
        // SAFETY: the bucket was initialized with the segment, which is not freed during `'g`
        // (`new`); all its fields are atomic.
        unsafe { &*bucket }
    }

    /// Returns the indices of all buckets, from the home bucket of `hash` on and around, each once.
    #[inline]
    fn probe(self, hash: u64) -> Probe {
        let nr = buckets(self.class);
        Probe { at: home(hash, nr), nr, left: nr }
    }

    /// Probes the first way with the tag of `hash` in its home bucket for a number for which
    /// `is_wanted` returns a value. For readers.
    #[inline]
    pub(super) fn probe_first<R>(self, hash: u64, is_wanted: impl FnOnce(u32) -> Option<R>) -> FirstProbe<R> {
        #[cfg(lowwater_loom)]
        self.header().made.with(|_| ());
        self.bucket(home(hash, buckets(self.class))).find_first(hash, is_wanted)
    }

    /// Probes all ways, after [`probe_first`](Self::probe_first) returned
    /// [`FirstProbe::Undecided`]. A function of its own, so that the common case stays short.
    #[cold]
    #[inline(never)]
    pub(super) fn probe_all<R>(self, hash: u64, mut is_wanted: impl FnMut(u32) -> Option<R>) -> Option<R> {
        for at in self.probe(hash) {
            match self.bucket(at).find(hash, &mut is_wanted) {
                FirstProbe::Found(found) => return Some(found),
                FirstProbe::Undecided => {}
                FirstProbe::Absent => break,
            }
        }
        None
    }

    /// Calls `f` with the number of every object, and whether it is hidden. For readers.
    pub(super) fn each(self, mut f: impl FnMut(u32, bool)) {
        (0..buckets(self.class)).for_each(|at| self.bucket(at).each(&mut f));
    }

    /// Prefetches the cache lines that an insert or a removal of `hash` needs first: the lock, and
    /// the home bucket.
    #[inline]
    pub(super) fn prefetch(self, hash: u64) {
        lowwater_base::prefetch::prefetch(self.header());
        lowwater_base::prefetch::prefetch(self.bucket(home(hash, buckets(self.class))));
    }

    /// Locks the segment, which may be [dead](LockedSegment::is_dead).
    #[inline]
    pub(super) fn lock(self) -> LockedSegment<'g> {
        self.header().lock.lock();
        LockedSegment(self)
    }

    // === Functions that require the segment's lock, for `LockedSegment`. ===
    //
    // Not methods of that type, which take a reference: `View` is passed in registers, so that the
    // callers need not keep theirs in memory.

    /// As [`find`](LockedSegment::find), in the buckets behind the home bucket.
    #[cold]
    #[inline(never)]
    fn find_beyond(self, hash: u64, mut is_wanted: impl FnMut(u32) -> bool) -> Option<WayIndex> {
        for at in self.probe(hash).skip(1) {
            let bucket = self.bucket(at);
            if let Some(way) = bucket.way_of(tag(hash), &mut is_wanted) {
                return Some(WayIndex { bucket: at, way, is_home: false });
            }
            if bucket.overflow_count(hash) == 0 {
                break;
            }
        }
        None
    }

    /// As [`room`](LockedSegment::room), in the buckets behind the home bucket.
    #[cold]
    #[inline(never)]
    fn room_beyond(self, hash: u64) -> Option<WayIndex> {
        let mut beyond = self.probe(hash).skip(1);
        beyond.find_map(|bucket| Some(WayIndex { bucket, way: self.bucket(bucket).free_way()?, is_home: false }))
    }

    /// Calls `f` with the buckets that an object with `hash` passes on its way to `at`.
    #[cold]
    #[inline(never)]
    fn each_passed(self, hash: u64, at: WayIndex, f: impl Fn(&Bucket)) {
        let passed = self.probe(hash).take_while(|&bucket| bucket != at.bucket);
        passed.for_each(|bucket| f(self.bucket(bucket)));
    }
}

/// The iterator of [`View::probe`]. Not two chained ranges: here the first step, which mostly is
/// the only one, evaluates nothing that it does not need.
struct Probe {
    at: usize,
    nr: usize,
    left: usize,
}

impl Iterator for Probe {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = if at + 1 == self.nr { 0 } else { at + 1 };
        Some(at)
    }
}

/// A locked segment; dropping this releases the lock.
pub(super) struct LockedSegment<'g>(View<'g>);

/// The position of an object in a segment.
#[derive(Clone, Copy)]
pub(super) struct WayIndex {
    bucket: usize,
    way: usize,
    /// Whether the bucket is known to be the home bucket of the object's hash.
    is_home: bool,
}

impl<'g> LockedSegment<'g> {
    pub(super) fn view(&self) -> View<'g> {
        self.0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        // SAFETY: the segment's lock, which guards `state`, is held.
        self.0.header().state.with(|state| unsafe { (*state).len })
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        // SAFETY: the segment's lock, which guards `state`, is held.
        self.0.header().state.with_mut(|state| unsafe { (*state).len = len });
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        // SAFETY: the segment's lock, which guards `state`, is held.
        self.0.header().state.with(|state| unsafe { (*state).dead })
    }

    /// Marks the segment as replaced; nothing in it changes any more.
    pub(super) fn kill(&mut self) {
        // SAFETY: the segment's lock, which guards `state`, is held.
        self.0.header().state.with_mut(|state| unsafe { (*state).dead = true });
    }

    /// Returns true if the segment should be replaced by a larger one.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() >= len_max(self.0.class)
    }

    /// Returns true if a smaller segment should replace this one: it is less than a quarter full.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.0.class > CLASS_MIN && self.len() * 4 < len_max(self.0.class)
    }

    /// Finds the object with `hash` and a number for which `is_wanted` returns true. Mostly the
    /// home bucket decides; the following buckets are searched out of line.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_wanted: impl FnMut(u32) -> bool) -> Option<WayIndex> {
        let home = self.home(hash);
        let bucket = self.0.bucket(home);
        match bucket.way_of(tag(hash), &mut is_wanted) {
            Some(way) => Some(WayIndex { bucket: home, way, is_home: true }),
            None if bucket.overflow_count(hash) == 0 => None,
            None => self.0.find_beyond(hash, is_wanted),
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        home(hash, buckets(self.0.class))
    }

    #[inline]
    pub(super) fn number(&self, at: WayIndex) -> u32 {
        self.0.bucket(at.bucket).number(at.way)
    }

    /// Returns a free way for `hash`: in its home bucket, or in the first bucket after it that has
    /// one.
    #[inline]
    pub(super) fn room(&self, hash: u64) -> Option<WayIndex> {
        let home = self.home(hash);
        match self.0.bucket(home).free_way() {
            Some(way) => Some(WayIndex { bucket: home, way, is_home: true }),
            None => self.0.room_beyond(hash),
        }
    }

    /// Stores a number in a way that [`room`](Self::room) returned for this hash.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, at: WayIndex, number: u32) {
        if !at.is_home {
            self.0.each_passed(hash, at, |bucket| bucket.count_overflow(hash));
        }
        self.0.bucket(at.bucket).put(at.way, tag(hash), number);
        self.set_len(self.len() + 1);
    }

    /// Stores the number of an object of unknown hash in a free way: no lookup finds it, so no
    /// bucket counts it.
    pub(super) fn put_hidden(&mut self, at: WayIndex, number: u32) {
        self.0.bucket(at.bucket).put_hidden(at.way, number);
        self.set_len(self.len() + 1);
    }

    /// Hides the object in a way from lookups. The overflow counts that include it remain too high,
    /// as for [`take_anywhere`](Self::take_anywhere).
    pub(super) fn hide(&mut self, at: WayIndex) {
        self.0.bucket(at.bucket).hide(at.way);
    }

    /// Stores the number of an object that replaces the one in a way, under the same hash.
    #[inline]
    pub(super) fn replace(&mut self, at: WayIndex, number: u32) {
        self.0.bucket(at.bucket).replace(at.way, number);
    }

    /// Removes the number in a way; `hash` is the hash under which it was inserted.
    #[inline]
    pub(super) fn take(&mut self, hash: u64, at: WayIndex) {
        self.0.bucket(at.bucket).take(at.way);
        if !at.is_home {
            self.0.each_passed(hash, at, |bucket| bucket.uncount_overflow(hash));
        }
        self.set_len(self.len() - 1);
    }

    /// Returns the position of the number for which `is_wanted` returns true, under any hash.
    pub(super) fn find_anywhere(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Option<WayIndex> {
        (0..buckets(self.0.class)).find_map(|bucket| {
            let way = self.0.bucket(bucket).any_way(&mut is_wanted)?;
            Some(WayIndex { bucket, way, is_home: false })
        })
    }

    /// Removes the number in a way, without knowing its hash. The overflow counts that include the
    /// object are unknown and remain too high, which costs later lookups a probe, and which
    /// [`assert_valid`](Self::assert_valid) reports.
    pub(super) fn take_anywhere(&mut self, at: WayIndex) {
        self.0.bucket(at.bucket).take(at.way);
        self.set_len(self.len() - 1);
    }

    /// Panics unless every object that is not hidden is where its hash requires; `hash` returns the
    /// hash of a number.
    pub(super) fn assert_valid(&self, hash: impl Fn(u32) -> u64) {
        let nr = buckets(self.0.class);
        let mut passed = alloc::vec![[0_u32; OVERFLOW_COUNTS]; nr];
        let mut len = 0;
        let header = self.0.header();
        assert_eq!(header.class, self.0.class, "the directory entry has the segment's class");
        for at in 0..nr {
            self.0.bucket(at).each(|number, is_hidden| {
                len += 1;
                if is_hidden {
                    return;
                }
                let hash = hash(number);
                assert_eq!(
                    hash >> 1 >> (63 - header.depth) << 1 << (63 - header.depth),
                    header.prefix,
                    "the prefix is shared"
                );
                for before in self.0.probe(hash).take_while(|&bucket| bucket != at) {
                    passed[before][overflow_class(hash)] += 1;
                }
            });
        }
        assert_eq!(len, self.len(), "objects are counted");
        for (at, passed) in passed.into_iter().enumerate() {
            self.0.bucket(at).assert_overflow(passed);
        }
    }
}

impl Drop for LockedSegment<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard holds the segment's lock.
        unsafe { self.0.header().lock.unlock() };
    }
}

/// Returns the home bucket of a hash among `nr` buckets.
#[inline]
fn home(hash: u64, nr: usize) -> usize {
    // The middle bits, that is, the highest bits of the lower half: the highest bits of the hash
    // select the segment, the lowest are the tag.
    (((hash & 0xffff_ffff) * nr as u64) >> 32) as usize
}
