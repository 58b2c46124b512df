//! Fullness groups (bins): chunks in lists by how full they are, each chunk in at most one.
//!
//! The owner of the chunks decides which group is for which fullness; the chunks are in an array of
//! the owner, and are linked by their indices in that array.
//!
//! A doubly linked list for each group makes a move O(1); indices instead of pointers let the array
//! grow. A change must ensure that the group of a chunk is recorded in its link: a move unlinks it
//! from there.

/// No chunk.
pub(crate) const NONE: u32 = u32::MAX;

/// The first chunk of each group; the other chunks of a group are linked to it.
#[derive(Clone)]
pub(crate) struct FullnessGroups<const N: usize>([u32; N]);

/// The link of a chunk in its group.
#[derive(Clone, Copy)]
pub(crate) struct GroupLink {
    /// The chunk's group; `None`: the chunk is in no group.
    bin: Option<u8>,
    prev: u32,
    /// While the chunk is in no group, its owner may use this field.
    pub(crate) next: u32,
}

/// A chunk that can be in a group.
pub(crate) trait HasGroupLink {
    fn group_link(&mut self) -> &mut GroupLink;
}

impl GroupLink {
    /// Creates the link of a chunk that is in no group.
    pub(crate) const fn new() -> Self {
        Self { bin: None, prev: NONE, next: NONE }
    }

    /// Returns the group of the chunk.
    pub(crate) fn bin(&self) -> Option<u8> {
        self.bin
    }
}

impl<const N: usize> FullnessGroups<N> {
    pub(crate) const fn new() -> Self {
        Self([NONE; N])
    }

    /// Returns a chunk of the last non-empty group, no group before `first`.
    pub(crate) fn last(&self, first: u8) -> Option<u32> {
        self.0.iter().skip(first.into()).rev().copied().find(|&at| at != NONE)
    }

    /// Returns a chunk of the first non-empty group, no group before `first`.
    pub(crate) fn first(&self, first: u8) -> Option<u32> {
        self.0.iter().skip(first.into()).copied().find(|&at| at != NONE)
    }

    /// Moves the chunk with the index `at` to the group `bin`, or to none. O(1).
    pub(crate) fn put(&mut self, chunks: &mut [impl HasGroupLink], at: u32, bin: Option<u8>) {
        let GroupLink { bin: was, prev, next } = *chunks[at as usize].group_link();
        if bin == was {
            return;
        }
        if let Some(was) = was {
            match prev {
                NONE => self.0[usize::from(was)] = next,
                prev => chunks[prev as usize].group_link().next = next,
            }
            if next != NONE {
                chunks[next as usize].group_link().prev = prev;
            }
        }
        let next = bin.map_or(NONE, |bin| core::mem::replace(&mut self.0[usize::from(bin)], at));
        if next != NONE {
            chunks[next as usize].group_link().prev = at;
        }
        *chunks[at as usize].group_link() = GroupLink { bin, prev: NONE, next };
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    impl HasGroupLink for GroupLink {
        fn group_link(&mut self) -> &mut GroupLink {
            self
        }
    }

    /// Random moves, compared with a plain list for each group.
    #[test]
    fn groups_contain_the_chunks_last_put_there() {
        const BINS: u8 = 3;
        let (mut bins, mut chunks) = (FullnessGroups::<3>::new(), [GroupLink::new(); 8]);
        let mut twin: [Vec<u32>; BINS as usize] = Default::default();
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (at, bin) = ((random >> 40) as u32 % 8, (random >> 50) as u8 % (BINS + 1));
            let bin = (bin < BINS).then_some(bin);
            if chunks[at as usize].bin() != bin {
                twin.iter_mut().for_each(|all| all.retain(|&other| other != at));
                bin.iter().for_each(|&bin| twin[usize::from(bin)].push(at));
            }
            bins.put(&mut chunks, at, bin);
            for (bin, all) in (0..).zip(&twin) {
                let mut here = bins.0[usize::from(bin)];
                for &expected in all.iter().rev() {
                    assert_eq!((here, chunks[here as usize].bin()), (expected, Some(bin)));
                    here = chunks[here as usize].next;
                }
                assert_eq!(here, NONE);
            }
            for first in 0..BINS {
                let from = || twin[usize::from(first)..].iter().filter_map(|all| all.last().copied());
                assert_eq!((bins.first(first), bins.last(first)), (from().next(), from().next_back()));
            }
        }
    }
}
