//! A sparse bitmap: a word is allocated only while one of its bits is set, or until the next
//! [`tidy`](Bitmap::tidy).
//!
//! A flat array of words would cost every group a bit for every shrinker in the system: 25 MB per
//! node for 10,000 groups on 10,000 mounts with two shrinkers each. In the sparse bitmap, a group
//! that two shrinkers use has one or two words.
//!
//! Bits change under a shared reference; words are added and removed only under `&mut`. The owner
//! of a bitmap keeps it in a reader-writer lock, so a reader never sees a word disappear (S16), and
//! a word that is found empty under `&mut` stays empty.
//!
//! Numbers such as S16 are those of docs/INVARIANTS.md.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::RangeInclusive;
use lowwater_base::fallible;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};

use crate::thin_vec::ThinVec;

/// Bits in a word.
const BITS: u32 = u64::BITS;

/// The position of one bit: its word, and the mask that selects it.
#[derive(Clone, Copy)]
pub(crate) struct Bit<'a> {
    /// The word of the bit.
    pub(crate) word: &'a AtomicU64,
    /// A mask with one bit set.
    pub(crate) mask: u64,
}

impl Bit<'_> {
    /// Returns true if the bit is set.
    pub(crate) fn is_set(&self) -> bool {
        // Relaxed: the caller's fence or lock provides the ordering.
        self.word.load(Ordering::Relaxed) & self.mask != 0
    }
}

/// A set of ids: the shrinkers of a group on one node, a group's children in the summary, or the
/// groups of a shrinker on one node.
#[derive(Debug, Default)]
pub(crate) struct Bitmap {
    /// Sorted by index, each index once.
    words: Words,
}

/// A word of 64 bits and its index. The index is stored plus one, so that the niche of `NonZeroU32`
/// holds the other variant of [`Words`].
#[derive(Debug)]
struct Word(NonZeroU32, AtomicU64);

/// Words in order of their index. A single word, the most frequent case, needs no heap memory.
#[derive(Debug)]
enum Words {
    One([Word; 1]),
    /// No words, or several.
    Many(ThinVec<Word>),
}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () = assert!(size_of::<Words>() == 16, "as large as one word");

impl Word {
    fn new(index: u32, bits: u64) -> Self {
        // The largest id has the largest index, 2^26 - 1, so this does not saturate.
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
    /// Inserts a word. Returns false, without a change, if there is no memory.
    fn try_insert(&mut self, at: usize, word: Word) -> bool {
        match self {
            Self::One([other]) => {
                let mut words = ThinVec::default();
                // Relaxed: `&mut` excludes other threads.
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
    /// Returns the position of bit `id`, if its word is allocated. O(log words).
    pub(crate) fn find(&self, id: u32) -> Option<Bit<'_>> {
        let at = self.words.binary_search_by_key(&(id / BITS), Word::index).ok()?;
        Some(Bit { word: &self.words[at].1, mask: 1 << (id % BITS) })
    }

    /// Returns the position of bit `id`; allocates its word if necessary. `None` without memory.
    /// O(words).
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

    /// Returns true if bit `id` is set.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.find(id).is_some_and(|bit| bit.is_set())
    }

    /// Appends the set bits in `range` to `ids`, in order, as far as there is memory. O(words +
    /// bits).
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
            // Relaxed: a bit that is missed here was set during this pass; the next pass sees it.
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

    /// Sets bit `id`; returns false without memory. O(words) if its word is new.
    pub(crate) fn insert(&mut self, id: u32) -> bool {
        let Some(bit) = self.make(id) else { return false };
        // Relaxed: `&mut` excludes other threads.
        bit.word.fetch_or(bit.mask, Ordering::Relaxed);
        true
    }

    /// Clears bit `id`, and frees its word if no other bit of it is set, which is O(words).
    pub(crate) fn remove(&mut self, id: u32) {
        let Ok(at) = self.words.binary_search_by_key(&(id / BITS), Word::index) else { return };
        let mask = 1 << (id % BITS);
        let Some(word) = self.words.get(at) else { return };
        // Relaxed: `&mut` excludes other threads.
        if word.1.fetch_and(!mask, Ordering::Relaxed) & !mask == 0 {
            self.words.retain(|word| word.index() != id / BITS);
        }
    }

    /// Returns the lowest set bit above `id`; the lowest set bit of all for `None`. O(log words) if
    /// no word is empty.
    pub(crate) fn next_after(&self, id: Option<u32>) -> Option<u32> {
        let from = match id {
            None => 0,
            Some(id) => id.checked_add(1)?,
        };
        let at = self.words.partition_point(|w| w.index() < from / BITS);
        self.words.iter().skip(at).find_map(|word| {
            let (index, word) = (word.index(), &word.1);
            // Relaxed: the caller holds the lock under which bits change, or the next pass sees a
            // bit that is missed here.
            let mut bits = word.load(Ordering::Relaxed);
            if index == from / BITS {
                bits &= u64::MAX << (from % BITS);
            }
            (bits != 0).then(|| index * BITS + bits.trailing_zeros())
        })
    }

    /// Iterates over the set bits, each once, from somewhere in the middle: from the `start`th part
    /// of 2^32 of the words on, and around. Allocates nothing.
    pub(crate) fn iter_around(&self, start: u32) -> impl Iterator<Item = u32> + '_ {
        let first = (self.words.len() as u64 * u64::from(BITS) * u64::from(start)) >> 32;
        let from = u64::MAX << (first % u64::from(BITS));
        let words = self.words.iter().cycle().skip((first / u64::from(BITS)) as usize);
        // The first word is also the last one, with the bits before the start.
        words.zip(0..=self.words.len()).flat_map(move |(word, n)| {
            let is_visited = match n {
                0 => from,
                _ if n == self.words.len() => !from,
                _ => u64::MAX,
            };
            // Relaxed: as in `collect`.
            let mut bits = word.1.load(Ordering::Relaxed) & is_visited;
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word.index() * BITS + bit)
            })
        })
    }

    /// Frees the words without a set bit.
    pub(crate) fn tidy(&mut self) {
        // Relaxed: `&mut` comes from a write lock, which orders every earlier access.
        self.words.retain(|w| w.1.load(Ordering::Relaxed) != 0);
    }

    /// Returns true if there are no words. A word whose bits were cleared under a shared reference
    /// counts until [`tidy`](Self::tidy).
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the number of set bits.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a statistic.
        self.words.iter().map(|w| w.1.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Returns the bytes on the heap.
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
        // A few adjacent words, and the last ones.
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
            for start in [0, low, high, u32::MAX] {
                let mut ids: Vec<u32> = map.iter_around(start).collect();
                let descents = ids.windows(2).filter(|pair| pair[0] > pair[1]).count();
                prop_assert!(descents <= 1 && (start > 0 || descents == 0), "{:?}", ids);
                ids.sort_unstable();
                prop_assert_eq!(ids, Vec::from_iter(model.iter().copied()));
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
