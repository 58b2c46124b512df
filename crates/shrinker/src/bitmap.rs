//! A sparse bitmap: words that are there only where a bit is, or was a moment ago.
//!
//! A flat array of words would be the obvious thing, and costs every group a bit for every shrinker in the system: 3.2 GB
//! for ten thousand groups and mounts. Here a group that two shrinkers know has one or two words.
//!
//! Bits change under a shared reference. Words come and go only under `&mut`; whoever owns a bitmap keeps it in a
//! reader-writer lock, so a reader never sees a short one (S16), and a word found empty under `&mut` is empty.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::RangeInclusive;
use lowwater_base::fallible;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};

use crate::thin_vec::ThinVec;

/// Bits in a word.
const BITS: u32 = u64::BITS;

/// One bit's place: its word, and the mask that picks it.
#[derive(Clone, Copy)]
pub(crate) struct Bit<'a> {
    /// The word the bit is in.
    pub(crate) word: &'a AtomicU64,
    /// One bit.
    pub(crate) mask: u64,
}

impl Bit<'_> {
    /// Is the bit set?
    pub(crate) fn is_set(&self) -> bool {
        // Relaxed: what must come before or after this load is ordered by the caller's fence or lock.
        self.word.load(Ordering::Relaxed) & self.mask != 0
    }
}

/// The words of one group on one node, sorted by index.
#[derive(Debug, Default)]
pub(crate) struct Bitmap {
    words: Words,
}

/// 64 bits, and which: the number of the word, less one than it says, so that a list of words fits in the place of one.
#[derive(Debug)]
struct Word(NonZeroU32, AtomicU64);

/// Words in order. A single one, which is what most groups have, needs no memory of its own.
#[derive(Debug)]
enum Words {
    One([Word; 1]),
    /// None, or several.
    Many(ThinVec<Word>),
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () = assert!(size_of::<Words>() == 16, "as large as one word");

impl Word {
    fn new(index: u32, bits: u64) -> Self {
        // The largest index is that of the largest id.
        Self(NonZeroU32::MIN.saturating_add(index), AtomicU64::new(bits))
    }

    fn index(&self) -> u32 {
        self.0.get() - 1
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::Many(ThinVec::default())
    }
}

impl Words {
    /// False without memory; then nothing has changed.
    fn try_insert(&mut self, at: usize, word: Word) -> bool {
        match self {
            Self::One([other]) => {
                let mut words = ThinVec::default();
                // Relaxed: under `&mut` nobody else is here.
                let other = Word::new(other.index(), other.1.load(Ordering::Relaxed));
                if !words.try_insert(0, other) || !words.try_insert(at, word) {
                    return false;
                }
                *self = Self::Many(words);
            }
            Self::Many(words) if words.is_empty() => *self = Self::One([word]),
            Self::Many(words) => return words.try_insert(at, word),
        }
        true
    }

    fn retain(&mut self, mut stays: impl FnMut(&Word) -> bool) {
        match self {
            Self::One([word]) => {
                if !stays(word) {
                    *self = Self::default();
                }
            }
            Self::Many(words) => words.retain(stays),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(words) => words.bytes(),
        }
    }
}

impl core::ops::Deref for Words {
    type Target = [Word];

    #[inline]
    fn deref(&self) -> &[Word] {
        match self {
            Self::One(word) => word,
            Self::Many(words) => words,
        }
    }
}

impl Bitmap {
    /// The place of bit `id`, if its word is there. O(log words).
    pub(crate) fn find(&self, id: u32) -> Option<Bit<'_>> {
        let at = self.words.binary_search_by_key(&(id / BITS), Word::index).ok()?;
        Some(Bit { word: &self.words[at].1, mask: 1 << (id % BITS) })
    }

    /// The place of bit `id`; makes its word if need be. None without memory. O(words).
    pub(crate) fn make(&mut self, id: u32) -> Option<Bit<'_>> {
        let at = match self.words.binary_search_by_key(&(id / BITS), Word::index) {
            Ok(at) => at,
            Err(at) => {
                if !self.words.try_insert(at, Word::new(id / BITS, 0)) {
                    return None;
                }
                at
            }
        };
        Some(Bit { word: &self.words.get(at)?.1, mask: 1 << (id % BITS) })
    }

    /// Is bit `id` set?
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.find(id).is_some_and(|bit| bit.is_set())
    }

    /// Adds the set bits in `range` to `ids`, in order, as far as there is memory for them. O(words + bits).
    pub(crate) fn collect(&self, range: RangeInclusive<u32>, ids: &mut Vec<u32>) {
        if range.is_empty() {
            return;
        }
        let from = self.words.partition_point(|w| w.index() < range.start() / BITS);
        for word in self.words.iter().skip(from) {
            let (index, word) = (word.index(), &word.1);
            if index > range.end() / BITS {
                break;
            }
            // Relaxed: a bit missed here was set during this pass, and waits for the next.
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let id = index * BITS + bits.trailing_zeros();
                bits &= bits - 1;
                if range.contains(&id) && fallible::try_push(ids, id).is_err() {
                    return;
                }
            }
        }
    }

    /// Sets bit `id`; false without memory. O(words) where its word is new.
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        let Some(bit) = self.make(id) else { return false };
        // Relaxed: under `&mut` nobody else is here.
        bit.word.fetch_or(bit.mask, Ordering::Relaxed);
        true
    }

    /// Clears bit `id`, and gives its word back if that was the last in it. O(words) then.
    pub(crate) fn remove(&mut self, id: u32) {
        let Ok(at) = self.words.binary_search_by_key(&(id / BITS), Word::index) else { return };
        let mask = 1 << (id % BITS);
        let Some(word) = self.words.get(at) else { return };
        // Relaxed: as in `insert`.
        if word.1.fetch_and(!mask, Ordering::Relaxed) & !mask == 0 {
            self.words.retain(|word| word.index() != id / BITS);
        }
    }

    /// The lowest set bit above `id`; the lowest of all for `None`. O(log words) where no word is empty.
    pub(crate) fn next_after(&self, id: Option<u32>) -> Option<u32> {
        let from = match id {
            None => 0,
            Some(id) => id.checked_add(1)?,
        };
        let at = self.words.partition_point(|w| w.index() < from / BITS);
        self.words.iter().skip(at).find_map(|word| {
            let (index, word) = (word.index(), &word.1);
            // Relaxed: bits come and go under a lock that the caller has, or else what is missed waits for the next pass.
            let mut bits = word.load(Ordering::Relaxed);
            if index == from / BITS {
                bits &= u64::MAX << (from % BITS);
            }
            (bits != 0).then(|| index * BITS + bits.trailing_zeros())
        })
    }

    /// Gives the words without bits back.
    pub(crate) fn tidy(&mut self) {
        // Relaxed: `&mut` comes from a write lock, which orders every earlier access.
        self.words.retain(|w| w.1.load(Ordering::Relaxed) != 0);
    }

    /// Are there no words? After [`tidy`](Self::tidy): are there no bits?
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The set bits, counted.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a number to look at.
        self.words.iter().map(|w| w.1.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.bytes()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Set(u32),
        Clear(u32),
        Insert(u32),
        Remove(u32),
        Tidy,
    }

    fn op() -> impl Strategy<Value = Op> {
        // A few words near each other, and the far end.
        let id = prop_oneof![0..200_u32, (u32::MAX - 130)..=u32::MAX];
        prop_oneof![4 => id.clone().prop_map(Op::Set), 3 => id.clone().prop_map(Op::Clear), 1 => Just(Op::Tidy), 2 => id.clone().prop_map(Op::Insert), 2 => id.prop_map(Op::Remove)]
    }

    proptest! {
        #[test]
        fn s16_a_bitmap_is_a_set_of_numbers(ops in proptest::collection::vec(op(), 1..200), low: u32, high: u32) {
            let (mut map, mut model) = (Bitmap::default(), BTreeSet::new());
            for op in ops {
                match op {
                    Op::Set(id) => {
                        let bit = map.make(id).unwrap();
                        bit.word.fetch_or(bit.mask, Ordering::Relaxed);
                        model.insert(id);
                    }
                    Op::Clear(id) => {
                        if let Some(bit) = map.find(id) {
                            bit.word.fetch_and(!bit.mask, Ordering::Relaxed);
                        }
                        model.remove(&id);
                    }
                    Op::Insert(id) => {
                        map.insert(id);
                        model.insert(id);
                    }
                    Op::Remove(id) => {
                        map.remove(id);
                        model.remove(&id);
                    }
                    Op::Tidy => {
                        map.tidy();
                        prop_assert_eq!(map.is_empty(), model.is_empty());
                    }
                }
                prop_assert!(map.words.is_sorted_by(|a, b| a.index() < b.index()), "words are sorted, each index once");
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.next_after(None), model.first().copied());
            }
            for id in [0, 63, 64, low, u32::MAX - 1, u32::MAX] {
                let above = model.iter().copied().find(|other| *other > id);
                prop_assert_eq!(map.next_after(Some(id)), above);
            }
            for range in [0..=u32::MAX, low..=high, 0..=100, 64..=127] {
                let mut ids = Vec::new();
                map.collect(range.clone(), &mut ids);
                let want: Vec<u32> = model.iter().copied().filter(|id| range.contains(id)).collect();
                prop_assert_eq!(ids, want);
            }
        }
    }
}
