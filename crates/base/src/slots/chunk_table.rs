//! The process-wide table from chunk numbers to chunks of slots, read without a lock.
//!
//! ```text
//!     number:  high bits -> root -> leaf     low bits -> chunk
//! ```
//!
//! There is one table for all slabs, so that a number alone identifies an object: links in slots
//! take four bytes, and a lookup does not need the slab. Where the system allocates memory on first
//! access, one leaf covers all numbers, so that a lookup has one dependent load less: 32 MiB of
//! address space, of which a page is used for 32 MiB of chunks. Elsewhere leaves are allocated as
//! needed, 8 KiB for 64 MiB of chunks. Leaves are never freed. The number of a chunk that is freed
//! is reused for the next chunk.
//!
//! A change must ensure that a number is given out again only after its chunk was unregistered, and
//! that a reader never finds a leaf before it is initialized.

#[cfg_attr(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)), path = "chunk_table/mapped.rs")]
#[cfg_attr(
    not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))),
    path = "chunk_table/boxed.rs"
)]
mod leaf;

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Mutex, MutexGuard};
use core::ptr;
use leaf::{Leaf, LEAF_BITS, LEAVES};

/// The number of entries of a leaf.
const LEAF: usize = 1 << LEAF_BITS;

/// The table from chunk numbers to chunks; see the module.
#[doc(alias = "PageMap")]
pub struct ChunkTable {
    /// The leaves, by the high bits of a number; null until the leaf is needed.
    root: [AtomicPtr<Leaf>; LEAVES],
    free: Mutex<Free>,
}

/// The free numbers.
struct Free {
    /// The head of the free list: the number that was released last, 0 for none. The entry of a
    /// free number has the next free number.
    released: u32,
    /// The lowest number that was never used. Starts at 1, since 0 means none.
    fresh: u32,
}

#[cfg(not(lowwater_loom))]
static CHUNKS: ChunkTable = ChunkTable::new();

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref CHUNKS: ChunkTable = ChunkTable::new();
}

impl ChunkTable {
    #[cfg(not(lowwater_loom))]
    const fn new() -> Self {
        Self {
            root: [const { AtomicPtr::new(ptr::null_mut()) }; LEAVES],
            free: Mutex::new(Free { released: 0, fresh: 1 }),
        }
    }

    #[cfg(lowwater_loom)]
    fn new() -> Self {
        let root = core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { root, free: Mutex::new(Free { released: 0, fresh: 1 }) }
    }

    /// Returns the table of the process.
    #[inline]
    pub fn global() -> &'static Self {
        &CHUNKS
    }

    /// Returns the lowest number that was never used, for tests.
    #[doc(hidden)]
    #[cfg(not(lowwater_loom))]
    pub fn numbers_made() -> u32 {
        CHUNKS.free.lock().fresh
    }

    /// Returns the chunk of a number.
    ///
    /// # Safety
    ///
    /// The number was [registered](Self::register), and is not unregistered meanwhile.
    #[inline]
    pub unsafe fn get(&self, number: u32) -> *mut u8 {
        // Relaxed: leaf and chunk were stored before `register` returned the number, and a number
        // reaches another thread only by a Release and an Acquire, or by a lock.
        // SAFETY: a registered number belongs to a leaf whose index is less than `LEAVES`.
        let leaf = unsafe { self.root.get_unchecked(leaf_of(number)) }.load(Ordering::Relaxed);
        // In a mutant the number may arrive too early; that must fail the assertion, not crash the
        // model check.
        #[cfg(lowwater_loom)]
        assert!(!leaf.is_null(), "a number is not seen before its leaf");
        // SAFETY: the leaf was created before the number was registered, and is never freed.
        let leaf = unsafe { &*leaf };
        // Relaxed: ordered like the leaf's load above.
        let chunk = leaf[number as usize % LEAF].load(Ordering::Relaxed);
        #[cfg(lowwater_loom)]
        assert!(chunk.addr() > u32::MAX as usize, "a number is not seen before its chunk");
        chunk
    }

    /// Registers a chunk under a number below `end`. `None`: all numbers below `end` are taken; or
    /// there is no memory for a leaf. O(released numbers that are not below `end`).
    pub fn register(&self, chunk: *mut u8, end: u32) -> Option<u32> {
        let end = end.min((LEAVES * LEAF) as u32);
        let mut free = self.free.lock();
        let number = loop {
            if let Some(number) = self.take_released(&mut free, end) {
                break number;
            }
            if free.fresh >= end {
                return None;
            }
            if self.entry(free.fresh).is_some() {
                free.fresh += 1;
                break free.fresh - 1;
            }
            free = self.make_leaf(free)?;
        };
        self.entry(number)?.store(chunk, Ordering::Relaxed);
        Some(number)
    }

    /// Releases a number, which is reused before all others.
    ///
    /// # Safety
    ///
    /// The number is registered, and no code uses it any more.
    pub unsafe fn unregister(&self, number: u32) {
        let mut free = self.free.lock();
        if let Some(place) = self.entry(number) {
            place.store(ptr::without_provenance_mut(free.released as usize), Ordering::Relaxed);
            free.released = number;
        }
    }

    /// Takes the number below `end` that was released last, if there is one.
    fn take_released(&self, free: &mut Free, end: u32) -> Option<u32> {
        // Relaxed, all: entries of free numbers are guarded by the lock.
        let next = |number: u32| Some(self.entry(number)?.load(Ordering::Relaxed).addr() as u32);
        let (mut before, mut number) = (0, free.released);
        // Mostly the first one is below `end`.
        while number != 0 && number >= end {
            (before, number) = (number, next(number)?);
        }
        if number == 0 {
            return None;
        }
        let after = next(number)?;
        match before {
            0 => free.released = after,
            _ => self.entry(before)?.store(ptr::without_provenance_mut(after as usize), Ordering::Relaxed),
        }
        Some(number)
    }

    /// Returns the entry of a number; `None` if its leaf does not exist yet.
    fn entry(&self, number: u32) -> Option<&AtomicPtr<u8>> {
        let leaf = self.root.get(leaf_of(number))?.load(Ordering::Relaxed);
        // SAFETY: a pointer in the root is null or that of a leaf, which is never freed.
        let leaf = unsafe { leaf.as_ref() }?;
        leaf.get(number as usize % LEAF)
    }

    /// Creates the leaf of the lowest number that was never used. Releases the lock while the leaf
    /// is allocated: another thread may create it meanwhile, and then this one is freed. `None`
    /// without memory.
    fn make_leaf<'a>(&'a self, free: MutexGuard<'a, Free>) -> Option<MutexGuard<'a, Free>> {
        drop(free);
        let leaf = leaf::make()?;
        let free = self.free.lock();
        let place = self.root.get(leaf_of(free.fresh));
        match place.filter(|place| place.load(Ordering::Relaxed).is_null()) {
            Some(place) => place.store(leaf.as_ptr(), Ordering::Relaxed),
            // SAFETY: the leaf was created just now, and not published.
            None => unsafe { leaf::drop(leaf) },
        }
        Some(free)
    }
}

/// Returns the index of the leaf that has the number.
#[inline]
fn leaf_of(number: u32) -> usize {
    // Makes the index a constant for the compiler where there is one leaf.
    if LEAVES == 1 {
        return 0;
    }
    (number >> LEAF_BITS) as usize
}

#[cfg(lowwater_loom)]
impl Drop for ChunkTable {
    fn drop(&mut self) {
        if crate::sync::unwinding() {
            return;
        }
        for leaf in &mut self.root {
            let leaf = leaf.with_mut(|leaf| *leaf);
            if let Some(leaf) = ptr::NonNull::new(leaf) {
                // SAFETY: the leaf was created for this table, and the execution is over.
                unsafe { leaf::drop(leaf) };
            }
        }
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    /// A distinct address.
    fn chunk(n: usize) -> *mut u8 {
        ptr::without_provenance_mut(n << 16)
    }

    /// Leaked, since leaves live as long as the process.
    fn table() -> &'static ChunkTable {
        Box::leak(Box::new(ChunkTable::new()))
    }

    fn all(chunks: &ChunkTable, numbers: &[u32]) -> Vec<usize> {
        // SAFETY: the numbers are registered.
        numbers.iter().map(|&number| unsafe { chunks.get(number) }.addr() >> 16).collect()
    }

    #[test]
    fn a_number_leads_to_its_chunk_whichever_leaf_it_is_of() {
        let chunks = table();
        // Enough for several leaves, where there are several.
        let count = (3 * LEAF).min(5_000);
        let numbers: Vec<_> = (1..=count).map(|n| chunks.register(chunk(n), u32::MAX).unwrap()).collect();
        assert!(numbers.iter().copied().eq(1..=count as u32), "each once, and none is 0");
        assert!(all(chunks, &numbers).into_iter().eq(1..=count));
    }

    #[test]
    fn released_numbers_are_reused_before_fresh_ones() {
        let chunks = table();
        let mut numbers: Vec<_> = (1..=10).map(|n| chunks.register(chunk(n), u32::MAX).unwrap()).collect();
        for n in [3, 7, 5] {
            // SAFETY: the number is registered, and not used any more.
            unsafe { chunks.unregister(n) };
        }
        for n in [5, 7, 3, 11] {
            assert_eq!(chunks.register(chunk(100 + n as usize), u32::MAX), Some(n));
        }
        numbers.push(11);
        assert_eq!(all(chunks, &numbers), [1, 2, 103, 4, 105, 6, 107, 8, 9, 10, 111]);
    }

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    fn exhausted_numbers_can_be_released_and_registered_again() {
        let chunks = table();
        assert_eq!(chunks.register(chunk(1), 1), None, "0 is none");
        assert_eq!([1, 2, 3].map(|n| chunks.register(chunk(n), 3)), [Some(1), Some(2), None]);
        // SAFETY: the number is registered, and not used any more.
        unsafe { chunks.unregister(2) };
        assert_eq!([chunks.register(chunk(4), 2), chunks.register(chunk(4), 3)], [None, Some(2)]);
        assert_eq!(chunks.register(chunk(5), u32::MAX), Some(3));
    }

    #[test]
    fn a_released_number_that_is_too_high_hides_no_lower_one() {
        let chunks = table();
        (1..=5).for_each(|n| assert!(chunks.register(chunk(n), u32::MAX).is_some()));
        for n in [2, 1, 5, 4] {
            // SAFETY: the number is registered, and not used any more.
            unsafe { chunks.unregister(n) };
        }
        assert_eq!([4, 4, 4].map(|end| chunks.register(chunk(6), end)), [Some(1), Some(2), None]);
        assert_eq!([4, 5, 6].map(|n| chunks.register(chunk(n), u32::MAX)), [Some(4), Some(5), Some(6)]);
    }

    #[test]
    fn threads_get_different_numbers() {
        let chunks = table();
        let take_and_give = |t: usize| {
            for n in 0..2_000 {
                let number = chunks.register(chunk(t * 10_000 + n + 1), u32::MAX).unwrap();
                assert_eq!(all(chunks, &[number]), [t * 10_000 + n + 1]);
                if n % 3 != 0 {
                    // SAFETY: the number is registered, and not used any more.
                    unsafe { chunks.unregister(number) };
                }
            }
        };
        std::thread::scope(|s| (0..3).for_each(|t| drop(s.spawn(move || take_and_give(t)))));
    }
}
