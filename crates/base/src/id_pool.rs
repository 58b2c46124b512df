//! A pool of small ids: the lowest free id is taken first.
//!
//! # Layout
//!
//! A bitmap with summaries, 64 to 1. A bit on level 0 is set if an id is used, a bit on a higher
//! level if the corresponding word of the level below is full. The top level is one word.
//!
//! ```text
//!     level 1            1 0                     word 0 of level 0 is full, word 1 is not
//!     level 0   1111...1111  1011...0000         id 65 is the lowest that is free
//! ```
//!
//! Taking and releasing an id cost one word per level: 2 words for up to 4,096 ids, 4 for 16
//! million. The memory is one bit for each id up to the highest that was ever in use, plus a 63rd
//! of that, and the room that vectors grow ahead; [`IdPool::shrink_to`] frees it.
//!
//! A change must ensure that the lowest free id is taken: tables are indexed by ids, and are as
//! long as the highest id.

use crate::fallible::{try_push, try_shrink};
use alloc::vec::Vec;

/// The reason why no id could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoId {
    /// All ids are in use.
    AllUsed,
    /// There is no memory for the bitmap.
    NoMemory,
}

/// The number of bits in a word of the bitmap: the number of words that a word one level up covers.
const WORD_BITS: usize = u64::BITS as usize;

/// The set of ids in use.
///
/// # Invariants
///
/// 1. Level `k + 1` has a bit for each word of level `k`, and no bit set beyond.
/// 2. This bit is set if and only if the word is all ones.
/// 3. The top level is one word.
#[derive(Debug)]
pub struct IdPool {
    /// The words of each level, from level 0 up; empty before the first id is taken.
    levels: Vec<Vec<u64>>,
    /// The number of ids in use.
    used: u32,
    /// The exclusive upper bound of the ids.
    end: u32,
}

impl IdPool {
    /// Creates a pool of the ids below `end`, none of them in use.
    pub fn new(end: u32) -> Self {
        Self { levels: Vec::new(), used: 0, end }
    }

    /// Takes the lowest free id. O(log highest id), and may allocate. Returns [`NoId`] if all ids
    /// are in use or there is no memory.
    pub fn take(&mut self) -> Result<u32, NoId> {
        let full = self.levels.last().map(|top| top.first() == Some(&u64::MAX));
        if full != Some(false) {
            // By invariant 2 the new level's only bit is set if there is a word below it, which is
            // full.
            let mut level = Vec::new();
            let room = level.try_reserve_exact(1).and_then(|()| self.levels.try_reserve_exact(1));
            room.map_err(|_| NoId::NoMemory)?;
            try_push(&mut level, u64::from(full.is_some())).map_err(|_| NoId::NoMemory)?;
            try_push(&mut self.levels, level).map_err(|_| NoId::NoMemory)?;
        }
        let mut at = 0;
        for level in self.levels.iter_mut().rev() {
            if at == level.len() {
                // If a lower level finds no memory after this, the new word has no words below it,
                // and is zero: the invariants hold.
                try_push(level, 0).map_err(|_| NoId::NoMemory)?;
            }
            // By invariant 2 this word has a zero bit: either it is the top (checked above), or its
            // bit one level up is zero.
            at = at * WORD_BITS + level[at].trailing_ones() as usize;
        }
        let id = u32::try_from(at).ok().filter(|id| *id < self.end).ok_or(NoId::AllUsed)?;
        for level in &mut self.levels {
            let word = &mut level[at / WORD_BITS];
            *word |= 1 << (at % WORD_BITS);
            // INVARIANT 2: a word that just became full is marked one level up.
            if *word != u64::MAX {
                break;
            }
            at /= WORD_BITS;
        }
        self.used += 1;
        Ok(id)
    }

    /// Releases an id, which must be in use (checked with debug assertions). The memory is kept.
    /// O(log highest id).
    pub fn put(&mut self, id: u32) {
        debug_assert!(self.is_used(id), "id {id} is released, but is not in use");
        self.used -= 1;
        let mut at = id as usize;
        for level in &mut self.levels {
            let word = &mut level[at / WORD_BITS];
            let was_full = *word == u64::MAX;
            *word &= !(1 << (at % WORD_BITS));
            // INVARIANT 2: only a word that was full is marked one level up.
            if !was_full {
                break;
            }
            at /= WORD_BITS;
        }
    }

    /// Frees all memory if no id is in use. O(1), besides freeing.
    pub fn shrink_if_empty(&mut self) {
        if self.used == 0 {
            self.levels = Vec::new();
        }
    }

    /// Returns whether the id is in use.
    pub fn is_used(&self, id: u32) -> bool {
        let at = id as usize;
        let words = self.levels.first().map_or(&[][..], |words| words);
        words.get(at / WORD_BITS).is_some_and(|word| word & 1 << (at % WORD_BITS) != 0)
    }

    /// Frees the memory for the ids that are at least `len`, none of which may be in use.
    pub fn shrink_to(&mut self, len: usize) {
        let mut words = len.div_ceil(WORD_BITS).max(1);
        let mut height = 0;
        for level in &mut self.levels {
            debug_assert!(level.iter().skip(words).all(|word| *word == 0), "ids beyond {len} are in use");
            level.truncate(words);
            try_shrink(level, words);
            height += 1;
            if words == 1 {
                break;
            }
            words = words.div_ceil(WORD_BITS);
        }
        // INVARIANT 3: the first level of one word is the top. If that word is full, `take` adds
        // the level above again.
        self.levels.truncate(height);
        try_shrink(&mut self.levels, height);
    }

    /// Returns the bytes that this pool has allocated.
    pub fn allocated(&self) -> usize {
        let words: usize = self.levels.iter().map(Vec::capacity).sum();
        words * size_of::<u64>() + self.levels.capacity() * size_of::<Vec<u64>>()
    }

    /// Checks the invariants, for tests.
    ///
    /// # Panics
    ///
    /// If an invariant does not hold.
    pub fn assert_valid(&self) {
        assert!(self.levels.last().is_none_or(|top| top.len() == 1), "the top level is one word");
        let used: u32 = self.levels.first().into_iter().flatten().map(|word| word.count_ones()).sum();
        assert_eq!(used, self.used, "the number of ids in use");
        for pair in self.levels.windows(2) {
            for bit in 0..pair[1].len() * WORD_BITS {
                let marked = pair[1][bit / WORD_BITS] & 1 << (bit % WORD_BITS) != 0;
                let full = pair[0].get(bit).is_some_and(|word| *word == u64::MAX);
                assert_eq!(marked, full, "the summary of word {bit} does not agree with the word");
            }
        }
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    fn exhausted_ids_can_be_released_and_taken_again() {
        let mut pool = IdPool::new(3);
        let none = Err(NoId::AllUsed);
        assert_eq!([pool.take(), pool.take(), pool.take(), pool.take()], [Ok(0), Ok(1), Ok(2), none]);
        pool.put(1);
        assert_eq!([pool.take(), pool.take()], [Ok(1), none]);
    }

    #[test]
    fn an_empty_pool_frees_its_memory_and_restarts_at_zero() {
        let mut pool = IdPool::new(u32::MAX);
        for id in 0..200 {
            assert_eq!(pool.take(), Ok(id));
        }
        for id in 0..200 {
            assert!(pool.allocated() > 0);
            pool.put(id);
            pool.shrink_if_empty();
        }
        assert_eq!((pool.allocated(), pool.take()), (0, Ok(0)));
        pool.assert_valid();
    }

    #[test]
    fn a_pool_that_grew_two_summaries_shrinks_to_one_word() {
        let mut pool = IdPool::new(u32::MAX);
        for id in 0..5_000 {
            assert_eq!(pool.take(), Ok(id));
        }
        pool.assert_valid();
        assert_eq!(pool.levels.len(), 3);
        for id in (10..5_000).rev() {
            pool.put(id);
        }
        pool.shrink_to(10);
        pool.assert_valid();
        assert_eq!(pool.allocated(), 8 + size_of::<Vec<u64>>());
        assert_eq!(pool.take(), Ok(10));
    }

    proptest! {
        /// Compares with a reference implementation: a set, searched from 0.
        #[test]
        fn the_lowest_free_id_is_given(steps in prop::collection::vec(prop::option::of(0..200_u32), 1..400)) {
            let (mut pool, mut used) = (IdPool::new(150), BTreeSet::new());
            for step in steps {
                match step {
                    Some(id) if used.remove(&id) => pool.put(id),
                    Some(_) => {}
                    None => {
                        let lowest = (0..150).find(|id| !used.contains(id));
                        prop_assert_eq!(pool.take().ok(), lowest);
                        used.extend(lowest);
                    }
                }
                pool.assert_valid();
                prop_assert!((0..210).all(|id| pool.is_used(id) == used.contains(&id)));
                if used.len() % 7 == 0 {
                    pool.shrink_to(used.last().map_or(0, |id| *id as usize + 1));
                    pool.assert_valid();
                }
            }
        }
    }
}
