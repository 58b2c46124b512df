//! Hash chains that are read without a lock: the table of a dentry cache, where a lookup must not write a shared line.
//!
//! ```text
//!     heads[hash >> shift] --> object --> object --> null        each object carries its HashLink, and the table one Arc on it
//! ```
//!
//! A reader holds a [`Reader`], follows the chain, and compares. A writer takes the bucket's lock. What is removed stays as it is, with
//! its `next`, for readers that are on it; the table's `Arc` on it is dropped when they are gone. So it is with what is in a table when
//! that is dropped: an object that was moved there takes readers of other tables along, and they borrow those only.
//!
//! Objects are dropped without a lock, on a thread that happens to enter or leave the read side. With `std` a panic of their `Drop`
//! ends there; it is reported by the panic hook, and nowhere else.
//!
//! **A miss proves little.** An object that is removed and inserted elsewhere (a rename) takes readers that stand on it along to
//! its new chain, so they may miss what lies behind on the old one. Whoever needs to be sure keeps a sequence count of such moves
//! and looks again. A hit is an object that was in the table at some time after the [`Reader`] was made; what it holds is checked by
//! the owner, with a sequence count of its own.
//!
//! Why not `hashbrown` under a lock: a reader would write the lock's line, and all lookups of a machine would share it. Why not a
//! lock-free map from a crate: its nodes are a second allocation and a second cache line for each object.
//!
//! # Invariants
//!
//! 1. Bit 0 of an object's `next` (`LINKED`) is set exactly while it is on a chain of some table. Only the one who set it there
//!    put it on that chain, so an object is on one chain at most.
//! 2. `heads` and the `next` of objects on a chain change only under the lock of that chain's bucket.
//! 3. An object on a chain has one strong count that belongs to the chain. It is given up only after every reader that was inside
//!    when the object left the chain, whether it was removed or its table dropped.
//! 4. A reader never arrives at an object whose count of invariant 3 was given up: where it stands was on a chain after the reader
//!    came in, and so was, when it left it, what its `next` names.
//!
//! # Orderings
//!
//! A head or `next` is published with Release and followed with Acquire, so that who arrives at an object sees it as it was
//! inserted. Held by `tests/loom.rs`: `a_found_object_is_whole_and_alive`, `a_reader_outlives_the_table_that_it_was_taken_along_to`,
//! and their twins.

mod chain_iter;
mod hash_link;
mod read;
mod reader;

#[cfg(test)]
mod tests;

pub use chain_iter::{ChainIter, Found};
pub use hash_link::{HashLink, HashNode};
pub use reader::Reader;

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::raw::RawLock;
use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use chain_iter::follow;
use core::fmt;
use core::ptr;
use crossbeam_utils::CachePadded;
use hash_link::untagged;
use lowwater_base::prefetch::prefetch_at;
use lowwater_base::ByteSize;

/// Locks for the buckets of one table, at most: enough that two writers seldom meet, few enough to cost nothing.
const STRIPES_MAX: usize = 256;

/// The table. The number of buckets is fixed.
#[doc(alias = "hlist_bl_head")]
pub struct HashChains<T: HashNode> {
    heads: Box<[AtomicPtr<T>]>,
    locks: Box<[CachePadded<RawLock>]>,
    /// Buckets are chosen by the hash's high bits.
    shift: u32,
}

// SAFETY: the table owns its objects by `Arc`s of a type that is Send and Sync.
unsafe impl<T: HashNode> Send for HashChains<T> {}
// SAFETY: as for Send; heads are atomic and change under their bucket's lock.
unsafe impl<T: HashNode> Sync for HashChains<T> {}

impl<T: HashNode> HashChains<T> {
    /// A table of `buckets` chains, rounded up to a power of two; 1 at least. 8 bytes each. Where there is no memory for them, the
    /// process ends.
    ///
    /// # Panics
    ///
    /// If there are no addresses for so many.
    pub fn new(buckets: usize) -> Self {
        let buckets = buckets.max(1).checked_next_power_of_two().expect("there are no addresses for so many buckets");
        let heads: Vec<_> = core::iter::repeat_with(|| AtomicPtr::new(ptr::null_mut())).take(buckets).collect();
        let locks: Vec<_> =
            core::iter::repeat_with(|| CachePadded::new(RawLock::new())).take(buckets.min(STRIPES_MAX)).collect();
        Self {
            heads: heads.into_boxed_slice(),
            locks: locks.into_boxed_slice(),
            shift: u64::BITS - buckets.trailing_zeros(),
        }
    }

    /// How many chains there are.
    pub fn buckets(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of the table without its objects.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new((size_of::<Self>() + size_of_val(&*self.heads) + size_of_val(&*self.locks)) as u64)
    }

    /// Puts an object at the head of its chain. O(1).
    ///
    /// # Errors
    ///
    /// The object comes back if it is on a chain already, of this table or another.
    #[doc(alias = "__d_rehash")]
    pub fn insert(&self, hash: u64, object: Arc<T>) -> Result<(), Arc<T>> {
        let at = self.bucket(hash);
        let locked = self.lock(at);
        // Relaxed: we hold the bucket's lock (invariant 2).
        let head = self.heads[at].load(Ordering::Relaxed);
        if !object.link().claim(head) {
            drop(locked);
            return Err(object);
        }
        // INVARIANT: the count that the `Arc` held belongs to the chain from here on (3).
        let raw = Arc::into_raw(object).cast_mut();
        // Release: meets the Acquire in `follow`, so that the object is seen as it was inserted.
        let publish = if crate::mutated!("chain_publish_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.heads[at].store(raw, publish);
        Ok(())
    }

    /// Takes an object off its chain; `false` if it is not on this one. O(length of the chain).
    ///
    /// Readers that stand on it may still look at it; the table's `Arc` on it is dropped after them.
    #[doc(alias = "__d_drop")]
    pub fn remove(&self, hash: u64, object: &T) -> bool {
        let at = self.bucket(hash);
        let reader = Reader::enter();
        // As it was inserted: `object` may reach no more than the object, this pointer also the counts before it.
        let raw = {
            let _locked = self.lock(at);
            let mut before = &self.heads[at];
            loop {
                // Relaxed: we hold the bucket's lock (invariant 2).
                let here = untagged(before.load(Ordering::Relaxed));
                if here.is_null() {
                    return false;
                }
                // SAFETY: it is on the chain, whose lock we hold, so the chain has a count on it (invariant 3).
                let link = unsafe { &*here }.link();
                if ptr::eq(here, object) {
                    link.leave(before, ptr::eq(before, &self.heads[at]));
                    break here;
                }
                before = &link.next;
            }
        };
        #[cfg(lowwater_loom)]
        if crate::mutated!("chain_release_at_once") {
            object.link().seen.with_mut(|_| ());
        }
        // SAFETY: the object left the chain just now, by us alone, so its count is ours to give up (invariant 3), and it came from
        // `Arc::into_raw` of a `T`.
        unsafe { reader.0.retire_by(raw.cast(), release::<T>) };
        true
    }

    /// The first object of a chain for which `is` says yes. O(length of the chain), without a lock.
    #[inline]
    #[doc(alias = "__d_lookup_rcu")]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        reader: &'g Reader,
        mut is: impl FnMut(&'g T) -> bool,
    ) -> Option<Found<'g, T>> {
        let mut chain = self.chain(hash, reader);
        chain.find(|found| is(found.get()))
    }

    /// The objects of a chain, youngest first, without a lock.
    #[inline]
    pub fn chain<'g>(&'g self, hash: u64, reader: &'g Reader) -> ChainIter<'g, T> {
        self.chain_at(self.bucket(hash), reader)
    }

    /// The objects of the `n`-th chain.
    ///
    /// # Panics
    ///
    /// If there is no such chain.
    #[inline]
    pub fn chain_at<'g>(&'g self, n: usize, _reader: &'g Reader) -> ChainIter<'g, T> {
        // SAFETY: the table holds what the head names (invariant 3), and we are in the read side.
        ChainIter { next: unsafe { follow(&self.heads[n]) } }
    }

    /// Begins to fetch the head of a chain that will be wanted soon. No more than a hint.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_at(ptr::from_ref(&self.heads[self.bucket(hash)]).cast());
    }

    /// Begins to fetch the first object of a chain, whose head was [prefetched](Self::prefetch). No more than a hint.
    #[inline]
    pub fn prefetch_first(&self, hash: u64) {
        // Relaxed: the object is not looked at.
        let first = untagged(self.heads[self.bucket(hash)].load(Ordering::Relaxed));
        prefetch_at(first.cast_const().cast());
    }

    /// The chain of a hash: its high bits.
    #[inline]
    pub fn bucket(&self, hash: u64) -> usize {
        // `checked_shr` is for the table of one chain, whose shift is all bits.
        hash.checked_shr(self.shift).unwrap_or(0) as usize
    }

    fn lock(&self, bucket: usize) -> LockedBucket<'_> {
        let lock = &self.locks[bucket & (self.locks.len() - 1)];
        lock.lock();
        LockedBucket(lock)
    }
}

impl<T: HashNode> Drop for HashChains<T> {
    /// Takes every object off its chain. The table's `Arc`s on them are dropped after the readers that may stand on them, as in
    /// [`remove`](HashChains::remove). O(objects).
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        for head in &self.heads {
            // Relaxed: nobody else has the table any more.
            let mut here = untagged(head.load(Ordering::Relaxed));
            while !here.is_null() {
                // One for each object: with one for all nothing could be freed until the last.
                let reader = Reader::enter();
                // SAFETY: it is on the chain, which has a count on it (invariant 3).
                let link = unsafe { &*here }.link();
                let next = link.take_off();
                #[cfg(lowwater_loom)]
                if crate::mutated!("chain_end_at_once") {
                    link.seen.with_mut(|_| ());
                }
                // SAFETY: the object left the chain just now, by us alone, so its count is ours to give up (invariant 3), and it came
                // from `Arc::into_raw` of a `T`.
                unsafe { reader.0.retire_by(here.cast(), release::<T>) };
                here = next;
            }
        }
        Reader::enter().0.flush();
    }
}

impl<T: HashNode> fmt::Debug for HashChains<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashChains").field("buckets", &self.buckets()).finish_non_exhaustive()
    }
}

/// Drops the count that a chain had on an object.
///
/// # Safety
///
/// `raw` came from `Arc::<T>::into_raw`, and its count is given up once.
unsafe fn release<T: HashNode>(raw: *mut ()) {
    // SAFETY: the caller says so.
    let object = unsafe { Arc::from_raw(raw.cast_const().cast::<T>()) };
    #[cfg(lowwater_loom)]
    object.link().seen.with_mut(|_| ());
    // The thread that entered or left the read side has nothing to do with the object, nor have the others that are freed with it.
    let _panicked = crate::unwind::caught(|| drop(object));
}

/// A bucket's lock, held.
struct LockedBucket<'a>(&'a RawLock);

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        // SAFETY: `HashChains::lock` took it, and this alone gives it back.
        unsafe { self.0.unlock() };
    }
}
