//! A sparse bitmap: words that are there only where a bit is, or was a moment ago.
//!
//! A flat array of words would be the obvious thing, and costs every group a bit for every shrinker in the system: 3.2 GB
//! for ten thousand groups and mounts (KERNEL 1.1). Here a group that two shrinkers know has one or two words.
//!
//! Bits change under a shared reference. Words come and go only under `&mut`; whoever owns a bitmap keeps it in a
//! reader-writer lock, so a reader never sees a short one (S16), and a word found empty under `&mut` is empty.

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use lowwater_lru_core::sync::atomic::{AtomicU64, Ordering};

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
    words: Vec<(u32, AtomicU64)>,
}

impl Bitmap {
    /// The place of bit `id`, if its word is there. O(log words).
    pub(crate) fn find(&self, id: u32) -> Option<Bit<'_>> {
        let at = self.words.binary_search_by_key(&(id / BITS), |w| w.0).ok()?;
        Some(Bit { word: &self.words[at].1, mask: 1 << (id % BITS) })
    }

    /// The place of bit `id`; makes its word if need be. O(words).
    pub(crate) fn make(&mut self, id: u32) -> Bit<'_> {
        let at = match self.words.binary_search_by_key(&(id / BITS), |w| w.0) {
            Ok(at) => at,
            Err(at) => {
                // A group that one word serves, which most are, shall not pay for the four that a `Vec` begins with.
                if self.words.is_empty() {
                    self.words.reserve_exact(1);
                }
                self.words.insert(at, (id / BITS, AtomicU64::new(0)));
                at
            }
        };
        Bit { word: &self.words[at].1, mask: 1 << (id % BITS) }
    }

    /// Is bit `id` set?
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.find(id).is_some_and(|bit| bit.is_set())
    }

    /// Adds the set bits in `range` to `ids`, in order. O(words + bits).
    pub(crate) fn collect(&self, range: RangeInclusive<u32>, ids: &mut Vec<u32>) {
        if range.is_empty() {
            return;
        }
        let from = self.words.partition_point(|w| w.0 < range.start() / BITS);
        for (index, word) in &self.words[from..] {
            if *index > range.end() / BITS {
                break;
            }
            // Relaxed: a bit missed here was set during this pass, and waits for the next.
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let id = index * BITS + bits.trailing_zeros();
                bits &= bits - 1;
                if range.contains(&id) {
                    ids.push(id);
                }
            }
        }
    }

    /// Gives the words without bits back.
    pub(crate) fn tidy(&mut self) {
        // Relaxed: `&mut` comes from a write lock, which orders every earlier access.
        self.words.retain(|w| w.1.load(Ordering::Relaxed) != 0);
        if self.words.is_empty() {
            self.words = Vec::new();
        }
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
        self.words.capacity() * core::mem::size_of::<(u32, AtomicU64)>()
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
        Tidy,
    }

    fn op() -> impl Strategy<Value = Op> {
        // A few words near each other, and the far end.
        let id = prop_oneof![0..200_u32, (u32::MAX - 130)..=u32::MAX];
        prop_oneof![4 => id.clone().prop_map(Op::Set), 3 => id.prop_map(Op::Clear), 1 => Just(Op::Tidy)]
    }

    proptest! {
        #[test]
        fn s16_a_bitmap_is_a_set_of_numbers(ops in proptest::collection::vec(op(), 1..200), low: u32, high: u32) {
            let (mut map, mut model) = (Bitmap::default(), BTreeSet::new());
            for op in ops {
                match op {
                    Op::Set(id) => {
                        let bit = map.make(id);
                        bit.word.fetch_or(bit.mask, Ordering::Relaxed);
                        model.insert(id);
                    }
                    Op::Clear(id) => {
                        if let Some(bit) = map.find(id) {
                            bit.word.fetch_and(!bit.mask, Ordering::Relaxed);
                        }
                        model.remove(&id);
                    }
                    Op::Tidy => {
                        map.tidy();
                        prop_assert_eq!(map.is_empty(), model.is_empty());
                    }
                }
                prop_assert!(map.words.is_sorted_by(|a, b| a.0 < b.0), "words are sorted, each index once");
                prop_assert_eq!(map.len(), model.len());
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
