//! A small hash table with a lock: those objects whose hashes begin with the same bits.
//!
//! An object stays in the way where it was put. A segment that must grow, shrink or split is replaced by another, under its lock,
//! and stays as it is for the readers that have it.

use super::bucket::{overflow_class, tag, Bucket, OVERFLOW_COUNTS};
use super::class::{buckets, len_max, Class, CLASS_MIN};
use super::first_probe::FirstProbe;
use super::pool::{Room, SegmentPool};
use super::segment_header::{layout, Segment};
use crate::rcu::{Retired, RetiredKind};
use crate::sync::UnsafeCell;
use alloc::alloc::{alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::NonNull;

// SAFETY: one static; nobody uses the link of a retired Segment.
unsafe impl Retired for Segment {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<Segment>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: it is live until now.
        let &Self { class, pooled, .. } = unsafe { &*this };
        if pooled {
            // SAFETY: it came from a pool, and nobody uses it, says the caller.
            return unsafe { SegmentPool::put(this) };
        }
        // SAFETY: a segment has a header that may need to be dropped; nobody reads it, says the caller. (Buckets have nothing to drop.)
        unsafe { this.drop_in_place() };
        let layout = layout(class).expect("as when it was made");
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(this.cast(), layout) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        let first = this.wrapping_add(1).cast::<Bucket>();
        // SAFETY: it is live, says the caller, who alone has it.
        let class = unsafe { &*this }.class;
        for bucket in 0..buckets(class) {
            // SAFETY: it is the caller's alone.
            unsafe { &mut *first.wrapping_add(bucket) }.assert_unread();
        }
    }
}

/// A segment that was not published yet.
pub(super) struct New(NonNull<Segment>);

impl New {
    /// An empty segment, in the pool's memory if it is for such; none without memory.
    pub(super) fn try_new(pool: Option<&SegmentPool>, class: Class, depth: u8, prefix: u64) -> Option<Self> {
        let pool = pool.filter(|_| SegmentPool::is_for(class)).map(|pool| (pool, Room::Any));
        Self::try_with(pool, Segment::new(class, depth, prefix), |_| Bucket::new())
    }

    /// What is in `of`, in a chunk of the pool that stays, or else in the allocator's memory; none without memory.
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
                // SAFETY: the size is not 0.
                let this = NonNull::new(unsafe { alloc(layout(class)?) }.cast::<Segment>())?;
                // SAFETY: it is fresh memory of the right layout.
                unsafe { this.write(header) };
                this
            }
        };
        let first = this.as_ptr().wrapping_add(1).cast::<Bucket>();
        for at in 0..buckets(class) {
            // SAFETY: there is room for so many behind the segment, by the layout, or as the pool promises.
            let place = unsafe { first.add(at) };
            // SAFETY: it is fresh memory, aligned as the segment is.
            unsafe { place.write(bucket(at)) };
        }
        Some(Self(this))
    }

    /// Its class, depth and prefix.
    pub(super) fn what(&self) -> (Class, u8, u64) {
        // SAFETY: it is ours.
        let header = unsafe { self.0.as_ref() };
        (header.class, header.depth, header.prefix)
    }

    pub(super) fn publish(self) -> *mut Segment {
        let this = self.0.as_ptr();
        core::mem::forget(self);
        this
    }

    /// It, while nobody else sees it.
    pub(super) fn locked(&self) -> LockedSegment<'_> {
        // SAFETY: it is not freed while `self` is there.
        let header = unsafe { self.0.as_ref() };
        // SAFETY: as above.
        unsafe { View::new(self.0, header.class) }.lock()
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // SAFETY: it was not published.
        unsafe { Segment::free(self.0.as_ptr()) };
    }
}

/// A segment that stays at least as long as `'g`.
#[derive(Clone, Copy)]
pub(super) struct View<'g> {
    at: NonNull<Segment>,
    /// Its class, which a reader has from the directory.
    class: Class,
    guard: PhantomData<&'g Segment>,
}

impl<'g> View<'g> {
    /// # Safety
    ///
    /// The segment is of this class and not freed during `'g`.
    #[inline]
    pub(super) unsafe fn new(at: NonNull<Segment>, class: Class) -> Self {
        Self { at, class, guard: PhantomData }
    }

    /// For who retires it: a reference to the header is no right to its buckets, nor to free it.
    pub(super) fn as_ptr(self) -> *mut Segment {
        self.at.as_ptr()
    }

    pub(super) fn header(self) -> &'g Segment {
        // SAFETY: it is not freed meanwhile.
        unsafe { self.at.as_ref() }
    }

    pub(super) fn class(self) -> Class {
        self.class
    }

    #[inline]
    fn bucket(self, at: usize) -> &'g Bucket {
        let buckets = self.at.as_ptr().wrapping_add(1).cast::<Bucket>();
        // SAFETY: its buckets come behind it, and callers count modulo how many there are.
        let bucket = unsafe { buckets.add(at) };
        // SAFETY: it was made with the segment, which is not freed meanwhile; all in it is atomic.
        unsafe { &*bucket }
    }

    /// Buckets from that of `hash` on, all of them once.
    #[inline]
    fn probe(self, hash: u64) -> Probe {
        let nr = buckets(self.class);
        Probe { at: home(hash, nr), nr, left: nr }
    }

    /// The first object of `hash` that `is_wanted` in its own bucket, for a reader.
    #[inline]
    pub(super) fn probe_first<R>(self, hash: u64, is_wanted: impl FnMut(u32) -> Option<R>) -> FirstProbe<R> {
        #[cfg(lowwater_loom)]
        self.header().made.with(|_| ());
        self.bucket(home(hash, buckets(self.class))).find(hash, is_wanted)
    }

    /// [`near`](Self::near), in the buckets behind that. Of its own, so that what mostly happens is short.
    #[cold]
    pub(super) fn beyond<R>(self, hash: u64, mut is_wanted: impl FnMut(u32) -> Option<R>) -> Option<R> {
        for at in self.probe(hash).skip(1) {
            match self.bucket(at).find(hash, &mut is_wanted) {
                FirstProbe::Found(found) => return Some(found),
                FirstProbe::Overflowed => {}
                FirstProbe::Absent => break,
            }
        }
        None
    }

    /// Every number, for a reader.
    pub(super) fn each(self, mut f: impl FnMut(u32)) {
        (0..buckets(self.class)).for_each(|at| self.bucket(at).each(&mut f));
    }

    /// Brings the lines closer that who puts in or takes out an object of `hash` needs first: the lock, and its bucket.
    #[inline]
    pub(super) fn prefetch(self, hash: u64) {
        lowwater_base::prefetch::prefetch(self.header());
        lowwater_base::prefetch::prefetch(self.bucket(home(hash, buckets(self.class))));
    }

    #[inline]
    pub(super) fn lock(self) -> LockedSegment<'g> {
        self.header().lock.lock();
        LockedSegment(self)
    }
}

/// See [`View::probe`]. Not two ranges joined: here the first step, which mostly is the only one, asks nothing that is not needed.
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

/// A segment whose lock is held; given back on drop.
pub(super) struct LockedSegment<'g>(View<'g>);

/// Where in a segment.
#[derive(Clone, Copy)]
pub(super) struct WayIndex {
    bucket: usize,
    way: usize,
}

impl<'g> LockedSegment<'g> {
    pub(super) fn view(&self) -> View<'g> {
        self.0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        // SAFETY: the lock is held.
        self.0.header().state.with(|state| unsafe { (*state).len })
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        // SAFETY: the lock is held.
        self.0.header().state.with_mut(|state| unsafe { (*state).len = len });
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        // SAFETY: the lock is held.
        self.0.header().state.with(|state| unsafe { (*state).dead })
    }

    /// It was replaced; nothing in it changes any more.
    pub(super) fn kill(&mut self) {
        // SAFETY: the lock is held.
        self.0.header().state.with_mut(|state| unsafe { (*state).dead = true });
    }

    /// Is it time for a larger one?
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() >= len_max(self.0.class)
    }

    /// Is it much too large?
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.0.class > CLASS_MIN && self.len() * 4 < len_max(self.0.class)
    }

    /// Where the object of `hash` is that `is_wanted`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_wanted: impl FnMut(u32) -> bool) -> Option<WayIndex> {
        let tag = tag(hash);
        for at in self.0.probe(hash) {
            let bucket = self.0.bucket(at);
            if let Some(way) = bucket.way_of(tag, &mut is_wanted) {
                return Some(WayIndex { bucket: at, way });
            }
            if bucket.overflow_count(hash) == 0 {
                break;
            }
        }
        None
    }

    pub(super) fn number(&self, at: WayIndex) -> u32 {
        self.0.bucket(at.bucket).number(at.way)
    }

    /// A free place for `hash`.
    #[inline]
    pub(super) fn room(&self, hash: u64) -> Option<WayIndex> {
        self.0.probe(hash).find_map(|bucket| Some(WayIndex { bucket, way: self.0.bucket(bucket).free_way()? }))
    }

    /// Puts a number into a place that [`room`](Self::room) gave for this hash.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, at: WayIndex, number: u32) {
        for passed in self.0.probe(hash).take_while(|&bucket| bucket != at.bucket) {
            self.0.bucket(passed).pass(hash);
        }
        self.0.bucket(at.bucket).put(at.way, tag(hash), number);
        self.set_len(self.len() + 1);
    }

    #[inline]
    pub(super) fn replace(&mut self, at: WayIndex, number: u32) {
        self.0.bucket(at.bucket).replace(at.way, number);
    }

    /// Empties the place where an object of `hash` is.
    #[inline]
    pub(super) fn take(&mut self, hash: u64, at: WayIndex) {
        self.0.bucket(at.bucket).take(at.way);
        for passed in self.0.probe(hash).take_while(|&bucket| bucket != at.bucket) {
            self.0.bucket(passed).unpass(hash);
        }
        self.set_len(self.len() - 1);
    }

    /// Where the object is that `is_wanted`, whatever its hash.
    pub(super) fn find_anywhere(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Option<WayIndex> {
        (0..buckets(self.0.class)).find_map(|bucket| {
            let way = self.0.bucket(bucket).any_way(&mut is_wanted)?;
            Some(WayIndex { bucket, way })
        })
    }

    /// Empties a place. Which buckets counted its object as further on nobody knows: they go on
    /// doing so, which costs a look.
    pub(super) fn take_anywhere(&mut self, at: WayIndex) {
        self.0.bucket(at.bucket).take(at.way);
        self.set_len(self.len() - 1);
    }

    /// Panics unless what is in it is where it should be; `hash` of a number.
    pub(super) fn assert_valid(&self, hash: impl Fn(u32) -> u64) {
        let nr = buckets(self.0.class);
        let mut passed = alloc::vec![[0_u32; OVERFLOW_COUNTS]; nr];
        let mut len = 0;
        let header = self.0.header();
        assert_eq!(header.class, self.0.class, "a directory knows its segments' classes");
        for at in 0..nr {
            self.0.bucket(at).each(|number| {
                let hash = hash(number);
                assert_eq!(
                    hash >> 1 >> (63 - header.depth) << 1 << (63 - header.depth),
                    header.prefix,
                    "the prefix is shared"
                );
                for before in self.0.probe(hash).take_while(|&bucket| bucket != at) {
                    passed[before][overflow_class(hash)] += 1;
                }
                len += 1;
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
        // SAFETY: the lock is held.
        unsafe { self.0.header().lock.unlock() };
    }
}

/// The bucket of a hash among so many.
#[inline]
fn home(hash: u64, nr: usize) -> usize {
    // The middle bits, that is the first ones of the second half: the first ones of all choose the segment, the last ones are the tag.
    (((hash & 0xffff_ffff) * nr as u64) >> 32) as usize
}
