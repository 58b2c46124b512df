//! The children of a directory: places that do not move, and marks of those that are positive.
//!
//! ```text
//!     place   0  1  2  3  ...  63 | 64 ...            a page has 64 places, two words of marks
//!     used    1  1  0  1        1 |
//!     positive 0  1  0  0       0 |                   pages that have a used, positive, negative place: a HierarchicalBitmap each
//! ```
//!
//! The kernel's patch (seed 002) keeps negatives behind the positives on one list, by moving them. A walker that let go of the
//! locks on a child may then find that child moved, and miss all that lay between (CVE-2014-8559 was one of these). Here a
//! child keeps its place for as long as it is a child, and "positives first" is a mark:
//!
//! * A walk is a number: the next place. Nothing that happens between two steps can make it miss a child that stays, or see it
//!   twice (D14).
//! * A walk over positives goes from mark to mark: O(positives + 1), whatever the number of negatives (D16).
//! * A child turns positive by setting its mark *first*, negative by clearing it *last*, both under this lock: an unmarked child
//!   is negative whenever the lock is free (D15).
//!
//! What it costs: 8 bytes and two bits a child; the kernel's two pointers are 16.

mod bitmap;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use bitmap::HierarchicalBitmap;

/// Places of a page.
const PAGE: usize = 64;
/// A page with no more children than this takes new ones again.
const REOPEN_AT: u32 = PAGE as u32 / 2;

/// Which children a walk wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    Positive,
    Negative,
}

/// What is on a page.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Has {
    used: bool,
    positive: bool,
    negative: bool,
}

struct Page<T> {
    slots: Vec<Option<T>>,
    used: u64,
    positive: u64,
    /// Is it in `open`, or the page that is being filled?
    open: bool,
}

impl<T> Page<T> {
    fn has(&self) -> Has {
        Has { used: self.used != 0, positive: self.positive != 0, negative: self.used & !self.positive != 0 }
    }
}

/// The children of one directory, each a `T`, at indices that do not change. The directory's lock guards them.
#[doc(alias = "d_children")]
#[doc(alias = "d_subdirs")]
pub(crate) struct Children<T> {
    pages: Vec<Page<T>>,
    used: HierarchicalBitmap,
    positive: HierarchicalBitmap,
    negative: HierarchicalBitmap,
    /// The page that is being filled.
    filling: Option<u32>,
    /// Pages with room.
    open: Vec<u32>,
    len: usize,
    positives: usize,
    /// Negatives that came off probation.
    pub(crate) kept: usize,
    /// Where the next trim of negatives begins.
    hand: u32,
    /// Who watches: while there is one, children that turn positive are marked as watched.
    pub(crate) watchers: u32,
}

impl<T> Children<T> {
    pub(crate) fn new() -> Self {
        Self {
            pages: Vec::new(),
            used: HierarchicalBitmap::default(),
            positive: HierarchicalBitmap::default(),
            negative: HierarchicalBitmap::default(),
            filling: None,
            open: Vec::new(),
            len: 0,
            positives: 0,
            kept: 0,
            hand: 0,
            watchers: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn positives(&self) -> usize {
        self.positives
    }

    pub(crate) fn negatives(&self) -> usize {
        self.len - self.positives
    }

    /// Takes a child in, as a negative one; its place.
    pub(crate) fn insert(&mut self, child: T) -> u32 {
        let p = self.page_with_room();
        let page = &mut self.pages[p];
        let before = page.has();
        let at = (!page.used).trailing_zeros() as usize;
        if at == page.slots.len() {
            page.slots.push(None);
        }
        page.slots[at] = Some(child);
        page.used |= 1 << at;
        self.len += 1;
        self.mark(p, before);
        (p * PAGE + at) as u32
    }

    /// Lets a child go.
    pub(crate) fn remove(&mut self, place: u32) -> Option<T> {
        let (p, at) = split(place);
        let page = self.pages.get_mut(p)?;
        let before = page.has();
        let child = page.slots.get_mut(at)?.take()?;
        page.used &= !(1 << at);
        self.len -= 1;
        if page.positive & 1 << at != 0 {
            page.positive &= !(1 << at);
            self.positives -= 1;
        }
        if page.used == 0 {
            page.slots = Vec::new();
        }
        if !page.open && page.used.count_ones() <= REOPEN_AT {
            page.open = true;
            self.open.push(p as u32);
        }
        self.mark(p, before);
        Some(child)
    }

    /// Marks a child as positive, or not.
    #[doc(alias = "sweep_negative")]
    #[doc(alias = "recycle_negative")]
    pub(crate) fn set_positive(&mut self, place: u32, positive: bool) {
        let (p, at) = split(place);
        let page = &mut self.pages[p];
        debug_assert!(page.used & 1 << at != 0, "only a child is marked");
        let was = page.positive & 1 << at != 0;
        if was != positive {
            let before = page.has();
            page.positive ^= 1 << at;
            self.positives = if positive { self.positives + 1 } else { self.positives - 1 };
            self.mark(p, before);
        }
    }

    /// The first child at `place` or behind it.
    pub(crate) fn next(&self, place: u32, which: Which) -> Option<(u32, &T)> {
        let (p, at) = split(place);
        let marks = |page: &Page<T>| match which {
            Which::All => page.used,
            Which::Positive => page.positive,
            Which::Negative => page.used & !page.positive,
        };
        let pages = match which {
            Which::All => &self.used,
            Which::Positive => &self.positive,
            Which::Negative => &self.negative,
        };
        let mut here = self.pages.get(p).map_or(0, |page| marks(page) & (u64::MAX << at));
        let mut p = p;
        if here == 0 {
            p = pages.next(p + 1)?;
            here = marks(&self.pages[p]);
        }
        let at = here.trailing_zeros() as usize;
        let child = self.pages[p].slots[at].as_ref()?;
        Some(((p * PAGE + at) as u32, child))
    }

    /// The negative under the clock's hand, which moves on. `None` if there is none.
    pub(crate) fn next_negative(&mut self) -> Option<&T> {
        let from = if self.next(self.hand, Which::Negative).is_some() { self.hand } else { 0 };
        let place = self.next(from, Which::Negative)?.0;
        self.hand = place + 1;
        self.next(place, Which::Negative).map(|(_, child)| child)
    }

    /// Bytes of the places and marks.
    pub(crate) fn footprint(&self) -> usize {
        let slots: usize = self.pages.iter().map(|page| page.slots.capacity() * size_of::<Option<T>>()).sum();
        let bits = self.used.footprint() + self.positive.footprint() + self.negative.footprint();
        slots + self.pages.capacity() * size_of::<Page<T>>() + self.open.capacity() * size_of::<u32>() + bits
    }

    /// # Panics
    ///
    /// When marks, counts and children do not agree.
    pub(crate) fn assert_valid(&self) {
        let (mut len, mut positives) = (0, 0);
        for (p, page) in self.pages.iter().enumerate() {
            assert_eq!(page.positive & !page.used, 0, "only a child is marked as positive");
            for (at, slot) in page.slots.iter().enumerate() {
                assert_eq!(slot.is_some(), page.used & 1 << at != 0, "a place is used if and only if a child is there");
            }
            len += page.used.count_ones() as usize;
            positives += page.positive.count_ones() as usize;
            assert_eq!(self.used.get(p), page.used != 0, "a page with children is marked");
            assert_eq!(self.positive.get(p), page.positive != 0, "a page with positive children is marked");
            assert_eq!(self.negative.get(p), page.used & !page.positive != 0, "a page with negatives is marked");
        }
        assert_eq!((self.len, self.positives), (len, positives), "children are counted");
        let mut open: Vec<u32> = self.open.iter().copied().chain(self.filling).collect();
        open.sort_unstable();
        let flagged: Vec<u32> = (0..).zip(&self.pages).filter(|(_, page)| page.open).map(|(p, _)| p).collect();
        assert_eq!(open, flagged, "a page is noted once as one with room, or as the one that is being filled");
    }

    /// Marks a page for what it has now, and had not `before`, or the other way.
    fn mark(&mut self, p: usize, before: Has) {
        let now = self.pages[p].has();
        if now == before {
            return;
        }
        self.used.set(p, now.used);
        self.positive.set(p, now.positive);
        self.negative.set(p, now.negative);
    }

    fn page_with_room(&mut self) -> usize {
        loop {
            if let Some(p) = self.filling {
                if self.pages[p as usize].used != u64::MAX {
                    return p as usize;
                }
                self.pages[p as usize].open = false;
            }
            self.filling = Some(self.open.pop().unwrap_or_else(|| {
                self.pages.push(Page { slots: Vec::new(), used: 0, positive: 0, open: true });
                (self.pages.len() - 1) as u32
            }));
        }
    }
}

fn split(place: u32) -> (usize, usize) {
    (place as usize / PAGE, place as usize % PAGE)
}
