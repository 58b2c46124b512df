//! Hash chains that are read without a lock: the table of a dentry cache, where a lookup must not
//! write to a shared cache line.
//!
//! ```text
//!     heads[hash >> shift] --> object --> object --> null        each object carries its HashLink, and the table one Arc on it
//! ```
//!
//! A reader holds a [`Reader`], follows the chain and compares. A writer takes the bucket's lock. A
//! removed object keeps its `next` for the readers that stand on it; the table's `Arc` on it is
//! dropped after those readers have left. The objects of a dropped table are treated the same way:
//! an object that was moved into the table may have taken along readers of other tables, and those
//! readers borrow only their own table. [`Reader`] states what happens without memory.
//!
//! Objects are dropped on any thread that enters or leaves the read side, without a lock of the
//! table. But the thread may hold locks of its own, and those of a `lowwater_dcache_model::Mount`
//! or another library that enters the read side: the `Drop` of an object must take none of these,
//! or the thread waits for itself. With `std`, a panic of an object's `Drop` is caught there; it is
//! reported by the panic hook only.
//!
//! **A miss proves little.** An object that is removed and inserted elsewhere (a rename) takes the
//! readers that stand on it along to its new chain, so they may miss objects further back on the
//! old chain. A caller that needs certainty maintains a sequence count of such moves and retries
//! the lookup. A hit is an object that was on a chain, of this table or of one to which an object
//! was moved, at some time after the [`Reader`] was created; the owner checks the object's contents
//! with a sequence count of its own.
//!
//! Alternatives: with `hashbrown` under a lock, every reader would write the lock's cache line, and
//! all lookups of a machine would contend for it. The nodes of existing lock-free maps are a second
//! allocation and a second cache line for each object.
//!
//! # Invariants
//!
//! 1. Bit 0 of an object's `next` (`LINKED`) is set exactly while the object is on a chain of some
//!    table. Only the thread that set the bit links the object into that chain, so an object is on
//!    at most one chain.
//! 2. `heads` and the `next` of objects on a chain change only under the lock of that chain's
//!    bucket.
//! 3. A chain holds one strong count on each of its objects. The count is dropped only after every
//!    reader has left that was inside when the object left the chain, by removal or because its
//!    table was dropped.
//! 4. A reader never reaches an object after its count of invariant 3 has been dropped: the object
//!    on which it stands was on a chain after the reader entered, and so was the object named by
//!    `next` at the time when the first one left its chain.
//!
//! # Orderings
//!
//! A head or `next` is published with Release and followed with Acquire, so that a reader that
//! reaches an object sees it as it was inserted. Checked by `tests/loom.rs`:
//! `a_found_object_is_whole_and_alive`, `a_reader_outlives_the_table_to_which_its_object_moved`,
//! and their mutants.

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

/// The maximum number of locks of one table: enough that two writers rarely contend, few enough to
/// take little memory.
const STRIPES_MAX: usize = 256;

/// A hash table with a fixed number of buckets, each a chain of objects.
#[doc(alias = "hlist_bl_head")]
pub struct HashChains<T: HashNode> {
    heads: Box<[AtomicPtr<T>]>,
    locks: Box<[CachePadded<RawLock>]>,
    /// Buckets are chosen by the hash's high bits.
    shift: u32,
}

// SAFETY: the table owns its objects by `Arc`s of a type that is Send and Sync.
unsafe impl<T: HashNode> Send for HashChains<T> {}
// SAFETY: shared access hands out `&T` and `Arc<T>` of a type that is Send and Sync; heads are
// atomic and change only under their bucket's lock.
unsafe impl<T: HashNode> Sync for HashChains<T> {}

impl<T: HashNode> HashChains<T> {
    /// Creates a table of `buckets` chains, rounded up to a power of two, at least 1. 8 bytes per
    /// chain. Without memory the process aborts.
    ///
    /// # Panics
    ///
    /// If the address space has no room for the buckets.
    pub fn new(buckets: usize) -> Self {
        let buckets =
            buckets.max(1).checked_next_power_of_two().expect("the address space has no room for so many buckets");
        let heads: Vec<_> = core::iter::repeat_with(|| AtomicPtr::new(ptr::null_mut())).take(buckets).collect();
        let locks: Vec<_> =
            core::iter::repeat_with(|| CachePadded::new(RawLock::new())).take(buckets.min(STRIPES_MAX)).collect();
        Self {
            heads: heads.into_boxed_slice(),
            locks: locks.into_boxed_slice(),
            shift: u64::BITS - buckets.trailing_zeros(),
        }
    }

    /// Returns the number of chains: a power of two, which does not change.
    pub fn buckets(&self) -> usize {
        self.heads.len()
    }

    /// Returns the bytes of the table, without its objects.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new((size_of::<Self>() + size_of_val(&*self.heads) + size_of_val(&*self.locks)) as u64)
    }

    /// Inserts an object at the head of its chain. O(1).
    ///
    /// # Errors
    ///
    /// Returns the object if it is already on a chain, of this table or another.
    #[doc(alias = "__d_rehash")]
    pub fn insert(&self, hash: u64, object: Arc<T>) -> Result<(), Arc<T>> {
        let at = self.bucket(hash);
        let locked = self.lock(at);
        // Relaxed: the bucket's lock is held (invariant 2).
        let head = self.heads[at].load(Ordering::Relaxed);
        if !object.link().claim(head) {
            drop(locked);
            return Err(object);
        }
        // INVARIANT: from here on the chain owns the `Arc`'s count (3).
        let raw = Arc::into_raw(object).cast_mut();
        // Release: pairs with the Acquire in `follow`, so that the object is seen as it was
        // inserted.
        let publish = if crate::mutated!("chain_publish_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.heads[at].store(raw, publish);
        Ok(())
    }

    /// Removes an object from its chain; returns `false` if it is not on this chain. O(length of
    /// the chain).
    ///
    /// Readers that stand on the object may still use it; the table's `Arc` on it is dropped after
    /// they have left. Without memory it may leak, or the process abort: see [`Reader`].
    #[doc(alias = "__d_drop")]
    pub fn remove(&self, hash: u64, object: &T) -> bool {
        let at = self.bucket(hash);
        let reader = Reader::enter();
        // The pointer from the chain, not from `object`: its provenance includes the counts in
        // front of the object.
        let raw = {
            let _locked = self.lock(at);
            let mut before = &self.heads[at];
            loop {
                // Relaxed: the bucket's lock is held (invariant 2).
                let here = untagged(before.load(Ordering::Relaxed));
                if here.is_null() {
                    return false;
                }
                // SAFETY: the object is on the chain, the chain's lock is held, and so the chain
                // has a count on it (invariant 3).
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
        // SAFETY: this thread alone removed the object from the chain just now, so the chain's
        // count is this call's to drop (invariant 3), and the pointer came from `Arc::into_raw` of
        // a `T`.
        unsafe { reader.0.retire_by(raw.cast(), release::<T>) };
        true
    }

    /// Returns the first object of a chain for which `is` returns true. O(length of the chain),
    /// without a lock.
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

    /// Iterates over the objects of a chain, the last inserted first, without a lock.
    #[inline]
    pub fn chain<'g>(&'g self, hash: u64, reader: &'g Reader) -> ChainIter<'g, T> {
        self.chain_at(self.bucket(hash), reader)
    }

    /// Iterates over the objects of chain number `n`.
    ///
    /// # Panics
    ///
    /// If there is no such chain.
    #[inline]
    pub fn chain_at<'g>(&'g self, n: usize, _reader: &'g Reader) -> ChainIter<'g, T> {
        // SAFETY: the table has a count on the object that the head names (invariant 3), and the
        // reader is inside.
        ChainIter::new(unsafe { follow(&self.heads[n]) })
    }

    /// Prefetches the head of a chain. A hint.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_at(ptr::from_ref(&self.heads[self.bucket(hash)]).cast());
    }

    /// Prefetches the first object of a chain, after its head was [prefetched](Self::prefetch). A
    /// hint.
    #[inline]
    pub fn prefetch_first(&self, hash: u64) {
        // Relaxed: the object is not dereferenced.
        let first = untagged(self.heads[self.bucket(hash)].load(Ordering::Relaxed));
        prefetch_at(first.cast_const().cast());
    }

    /// Returns the chain of a hash, selected by the hash's high bits.
    #[inline]
    pub fn bucket(&self, hash: u64) -> usize {
        // `checked_shr`: in a table of one chain the shift is 64, all bits.
        hash.checked_shr(self.shift).unwrap_or(0) as usize
    }

    fn lock(&self, bucket: usize) -> LockedBucket<'_> {
        let lock = &self.locks[bucket & (self.locks.len() - 1)];
        lock.lock();
        LockedBucket(lock)
    }
}

impl<T: HashNode> Drop for HashChains<T> {
    /// Removes every object from its chain. The table's `Arc`s are dropped after the readers that
    /// may stand on the objects, as in [`remove`](HashChains::remove), also without memory.
    /// O(objects).
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        for head in &self.heads {
            // Relaxed: `&mut self`, no other thread uses the table.
            let mut here = untagged(head.load(Ordering::Relaxed));
            while !here.is_null() {
                // One reader per object: with one reader for all objects nothing could be freed
                // until the last object.
                let reader = Reader::enter();
                // SAFETY: the object is on the chain, which has a count on it (invariant 3).
                let link = unsafe { &*here }.link();
                let next = link.take_off();
                #[cfg(lowwater_loom)]
                if crate::mutated!("chain_end_at_once") {
                    link.seen.with_mut(|_| ());
                }
                // SAFETY: this thread alone removed the object from the chain just now, so the
                // chain's count is this call's to drop (invariant 3), and the pointer came from
                // `Arc::into_raw` of a `T`.
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
/// `raw` came from `Arc::<T>::into_raw`, and its count is dropped only once.
unsafe fn release<T: HashNode>(raw: *mut ()) {
    // SAFETY: the caller's clause: `raw` came from `Arc::into_raw`, and this call owns its count.
    let object = unsafe { Arc::from_raw(raw.cast_const().cast::<T>()) };
    #[cfg(lowwater_loom)]
    object.link().seen.with_mut(|_| ());
    // A panic is caught: the thread that entered or left the read side is not responsible for the
    // object, and other objects are freed with it.
    let _panicked = crate::unwind::caught(|| drop(object));
}

/// The lock of a bucket, held; dropping this releases it.
struct LockedBucket<'a>(&'a RawLock);

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        // SAFETY: `HashChains::lock` acquired the lock, and only this guard releases it.
        unsafe { self.0.unlock() };
    }
}
