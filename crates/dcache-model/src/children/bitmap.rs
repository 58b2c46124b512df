//! A hierarchical bitmap: the next set bit is found in O(levels).
//!
//! By it a walk over positives skips millions of negatives. `children.rs` keeps one bitmap for each
//! property of a page, with a bit for each page.
//!
//! A change must keep each level the summary of the level below, except for the bit of the first
//! word, which may be missing.

/// Levels of bits, the lowest first: a bit of an upper level is set if its word of the level below
/// has a set bit. The bit of the first word may be missing.
#[derive(Debug, Default)]
pub(super) struct HierarchicalBitmap {
    levels: Vec<Vec<u64>>,
}

const WORD: usize = u64::BITS as usize;

impl HierarchicalBitmap {
    pub(super) fn get(&self, n: usize) -> bool {
        self.levels.first().and_then(|level| level.get(n / WORD)).is_some_and(|word| word & 1 << (n % WORD) != 0)
    }

    /// Sets or clears bit `n`. O(levels).
    pub(super) fn set(&mut self, mut n: usize, on: bool) {
        let mut on = on;
        for l in 0.. {
            if l == self.levels.len() {
                // A level is added when a word of the level below turns empty or non-empty, and
                // that level has more than one word. The bit of the first word need not be set:
                // `next` reads the upper level only for words after the one it has searched.
                self.levels.push(Vec::new());
            }
            let level = &mut self.levels[l];
            if level.len() <= n / WORD {
                level.resize(n / WORD + 1, 0);
            }
            let (word, bit) = (&mut level[n / WORD], 1 << (n % WORD));
            let before = *word;
            *word = if on { before | bit } else { before & !bit };
            on = *word != 0;
            let single = level.len() == 1;
            let top = l + 1 == self.levels.len();
            if (before != 0) == on || top && single {
                return;
            }
            n /= WORD;
        }
    }

    /// Returns the first set bit at or after `n`. O(levels).
    pub(super) fn next(&self, n: usize) -> Option<usize> {
        let mut n = n;
        let mut l = 0;
        // Up, until a word has a set bit at or after `n`.
        loop {
            let level = self.levels.get(l)?;
            let here = level.get(n / WORD).map_or(0, |word| word & (u64::MAX << (n % WORD)));
            if here != 0 {
                n = n / WORD * WORD + here.trailing_zeros() as usize;
                break;
            }
            n = n / WORD + 1;
            l += 1;
        }
        // Down to the first set bit below.
        while l > 0 {
            l -= 1;
            n = n * WORD + self.levels[l][n].trailing_zeros() as usize;
        }
        Some(n)
    }

    /// Returns the last set bit. O(levels).
    pub(super) fn last(&self) -> Option<usize> {
        // Down from the single word of the top. An empty word is the first of its level, and so is
        // the word below it: only the bit of a first word may be missing.
        let last_in = |word: u64| word.checked_ilog2().map_or(0, |bit| bit as usize);
        let word_of_lowest = self.levels.iter().skip(1).rev().fold(0, |n, level| n * WORD + last_in(level[n]));
        let word = *self.levels.first()?.get(word_of_lowest)?;
        (word != 0).then(|| word_of_lowest * WORD + last_in(word))
    }

    /// Frees the memory for the bits from `len` on, which are clear.
    pub(super) fn truncate(&mut self, len: usize) {
        let mut words = len;
        for level in &mut self.levels {
            words = words.div_ceil(WORD);
            level.truncate(words);
            level.shrink_to_fit();
        }
        // A level above a single word holds nothing but that word's bit, which may be missing.
        let levels = self.levels.iter().take_while(|level| level.len() > 1).count() + 1;
        self.levels.truncate(levels);
        self.levels.shrink_to_fit();
    }

    pub(super) fn footprint(&self) -> usize {
        let words: usize = self.levels.iter().map(Vec::capacity).sum();
        self.levels.capacity() * size_of::<Vec<u64>>() + words * size_of::<u64>()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        // Numbers up to 300,000 need four levels: 4,688 words, 74, 2 and 1.
        #[test]
        fn is_a_set(ops in prop::collection::vec((0..300_000_usize, prop::bool::weighted(0.6)), 0..200)) {
            let (mut bits, mut model) = (HierarchicalBitmap::default(), BTreeSet::new());
            for (n, on) in ops {
                bits.set(n, on);
                if on { model.insert(n); } else { model.remove(&n); }
                prop_assert_eq!(bits.get(n), on);
                let from = n.saturating_sub(70_000);
                prop_assert_eq!(bits.next(from), model.range(from..).next().copied());
                prop_assert_eq!(bits.next(0), model.first().copied());
                prop_assert_eq!(bits.last(), model.last().copied());
                if n % 4 == 0 {
                    bits.truncate(model.last().map_or(0, |last| last + 1));
                    prop_assert_eq!(bits.last(), model.last().copied());
                    prop_assert_eq!(bits.next(from), model.range(from..).next().copied());
                    let words: usize = bits.levels.iter().map(Vec::len).sum();
                    prop_assert!(words <= model.last().map_or(0, |last| last / WORD * 66 / 64 + 4), "{} words", words);
                }
            }
        }
    }

    #[test]
    fn the_footprint_is_what_was_allocated_and_a_few_bits_a_number() {
        let mut bits = HierarchicalBitmap::default();
        let mut allocated = 0;
        for n in [0, 63, 64, 65, 500, 64 * 64 - 1, 64 * 64, 100_000, 300_000, 64] {
            allocated += allocation_counter::measure(|| bits.set(n, true)).bytes_current;
            assert_eq!(bits.footprint() as i64, allocated, "with {n}");
        }
        // A vector that grows may have up to half of its capacity unused.
        assert!(allocated < 2 * 300_000 / 8 * 65 / 64 + 1000, "{allocated}");
        assert_eq!(HierarchicalBitmap::default().footprint(), 0);
    }
}
