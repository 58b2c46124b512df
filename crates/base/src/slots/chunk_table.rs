//! From a number to a chunk of slots, in the whole process, without a lock.
//!
//! ```text
//!     number:  first bits -> root -> leaf     the others -> chunk
//! ```
//!
//! One table for all slabs, so that who has a number needs to know nothing else: links in slots are four bytes by it, and a lookup does not
//! ask which slab. Where the system gives memory when it is first touched, one leaf is for all numbers, so that a lookup has one step
//! less to wait for: 32 MiB of addresses, of which a page is used for 32 MiB of chunks. Elsewhere leaves are made as they are needed,
//! 8 KiB for 64 MiB of chunks. They stay. Chunks that end leave their number to the next one that is made.

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

const LEAF: usize = 1 << LEAF_BITS;

/// See the module.
#[doc(alias = "PageMap")]
pub struct ChunkTable {
    root: [AtomicPtr<Leaf>; LEAVES],
    free: Mutex<Free>,
}

/// Numbers that nobody has.
struct Free {
    /// The first that was had and came back, 0 for none; the others are joined to it, each in its own place.
    back: u32,
    /// The first of those that nobody had yet. Not 0, which names nothing.
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
        Self { root: [const { AtomicPtr::new(ptr::null_mut()) }; LEAVES], free: Mutex::new(Free { back: 0, fresh: 1 }) }
    }

    #[cfg(lowwater_loom)]
    fn new() -> Self {
        let root = core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { root, free: Mutex::new(Free { back: 0, fresh: 1 }) }
    }

    /// Those of the process.
    #[inline]
    pub fn global() -> &'static Self {
        &CHUNKS
    }

    /// Returns how many different numbers the process has needed, for tests.
    #[doc(hidden)]
    #[cfg(not(lowwater_loom))]
    pub fn numbers_made() -> u32 {
        CHUNKS.free.lock().fresh
    }

    /// The chunk of a number.
    ///
    /// # Safety
    ///
    /// It was [taken](Self::register), and is not given back meanwhile.
    #[inline]
    pub unsafe fn get(&self, number: u32) -> *mut u8 {
        // Relaxed: whoever has the number of an object got it, by a Release and an Acquire or a lock, from somebody who had it after its
        // chunk was put here, and its leaf before.
        // SAFETY: a number that was taken is of a leaf that there can be.
        let leaf = unsafe { self.root.get_unchecked(leaf_of(number)) }.load(Ordering::Relaxed);
        // A mutant's number may come too early; it is to be found out, and not to end the model check.
        #[cfg(lowwater_loom)]
        assert!(!leaf.is_null(), "a number is not seen before its leaf");
        // SAFETY: its leaf was made before, and stays.
        let leaf = unsafe { &*leaf };
        // Relaxed: as above.
        let chunk = leaf[number as usize % LEAF].load(Ordering::Relaxed);
        #[cfg(lowwater_loom)]
        assert!(chunk.addr() > u32::MAX as usize, "a number is not seen before its chunk");
        chunk
    }

    /// A number below `end` for a chunk. `None`: there is none, nor memory for more.
    pub fn register(&self, chunk: *mut u8, end: u32) -> Option<u32> {
        let end = end.min((LEAVES * LEAF) as u32);
        let mut free = self.free.lock();
        let number = loop {
            if free.back != 0 {
                let number = free.back;
                if number >= end {
                    return None;
                }
                // Relaxed, here and below: the numbers that nobody has are guarded by the lock.
                free.back = self.place(number)?.load(Ordering::Relaxed).addr() as u32;
                break number;
            }
            if free.fresh >= end {
                return None;
            }
            if self.place(free.fresh).is_some() {
                free.fresh += 1;
                break free.fresh - 1;
            }
            free = self.make_leaf(free)?;
        };
        self.place(number)?.store(chunk, Ordering::Relaxed);
        Some(number)
    }

    /// Takes a number back.
    ///
    /// # Safety
    ///
    /// It was taken, and nobody uses it any more.
    pub unsafe fn unregister(&self, number: u32) {
        let mut free = self.free.lock();
        if let Some(place) = self.place(number) {
            place.store(ptr::without_provenance_mut(free.back as usize), Ordering::Relaxed);
            free.back = number;
        }
    }

    fn place(&self, number: u32) -> Option<&AtomicPtr<u8>> {
        let leaf = self.root.get(leaf_of(number))?.load(Ordering::Relaxed);
        // SAFETY: what is in the root is a leaf, and stays.
        let leaf = unsafe { leaf.as_ref() }?;
        leaf.get(number as usize % LEAF)
    }

    /// Makes the leaf of the first fresh number, without the lock.
    fn make_leaf<'a>(&'a self, free: MutexGuard<'a, Free>) -> Option<MutexGuard<'a, Free>> {
        drop(free);
        let leaf = leaf::make()?;
        let free = self.free.lock();
        let place = self.root.get(leaf_of(free.fresh));
        match place.filter(|place| place.load(Ordering::Relaxed).is_null()) {
            Some(place) => place.store(leaf.as_ptr(), Ordering::Relaxed),
            // SAFETY: it was made just now, and nobody saw it.
            None => unsafe { leaf::drop(leaf) },
        }
        Some(free)
    }
}

/// Which leaf a number is of.
#[inline]
fn leaf_of(number: u32) -> usize {
    // So that the compiler knows which where there is one.
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
                // SAFETY: it was made for this; the execution is over.
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

    /// An address to tell apart.
    fn chunk(n: usize) -> *mut u8 {
        ptr::without_provenance_mut(n << 16)
    }

    /// Its leaves are the process's for good; here a few.
    fn table() -> &'static ChunkTable {
        Box::leak(Box::new(ChunkTable::new()))
    }

    fn all(chunks: &ChunkTable, numbers: &[u32]) -> Vec<usize> {
        // SAFETY: they were taken.
        numbers.iter().map(|&number| unsafe { chunks.get(number) }.addr() >> 16).collect()
    }

    #[test]
    fn a_number_leads_to_its_chunk_whichever_leaf_it_is_of() {
        let chunks = table();
        // Of several leaves, where there are several.
        let count = (3 * LEAF).min(5_000);
        let numbers: Vec<_> = (1..=count).map(|n| chunks.register(chunk(n), u32::MAX).unwrap()).collect();
        assert!(numbers.iter().copied().eq(1..=count as u32), "each once, and none is 0");
        assert!(all(chunks, &numbers).into_iter().eq(1..=count));
    }

    #[test]
    fn numbers_that_came_back_are_given_out_before_new_ones() {
        let chunks = table();
        let mut numbers: Vec<_> = (1..=10).map(|n| chunks.register(chunk(n), u32::MAX).unwrap()).collect();
        for n in [3, 7, 5] {
            // SAFETY: it was taken, and is not used.
            unsafe { chunks.unregister(n) };
        }
        for n in [5, 7, 3, 11] {
            assert_eq!(chunks.register(chunk(100 + n as usize), u32::MAX), Some(n));
        }
        numbers.push(11);
        assert_eq!(all(chunks, &numbers), [1, 2, 103, 4, 105, 6, 107, 8, 9, 10, 111]);
    }

    #[test]
    fn there_is_an_end_to_numbers_and_what_came_back_goes_on() {
        let chunks = table();
        assert_eq!(chunks.register(chunk(1), 1), None, "0 is none");
        assert_eq!([1, 2, 3].map(|n| chunks.register(chunk(n), 3)), [Some(1), Some(2), None]);
        // SAFETY: it was taken, and is not used.
        unsafe { chunks.unregister(2) };
        assert_eq!([chunks.register(chunk(4), 2), chunks.register(chunk(4), 3)], [None, Some(2)]);
        assert_eq!(chunks.register(chunk(5), u32::MAX), Some(3));
    }

    #[test]
    fn threads_get_different_numbers() {
        let chunks = table();
        let take_and_give = |t: usize| {
            for n in 0..2_000 {
                let number = chunks.register(chunk(t * 10_000 + n + 1), u32::MAX).unwrap();
                assert_eq!(all(chunks, &[number]), [t * 10_000 + n + 1]);
                if n % 3 != 0 {
                    // SAFETY: it was taken, and is not used.
                    unsafe { chunks.unregister(number) };
                }
            }
        };
        std::thread::scope(|s| (0..3).for_each(|t| drop(s.spawn(move || take_and_give(t)))));
    }
}
