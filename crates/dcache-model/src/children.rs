//! The children of a directory, at indices that do not change, and a bit for each child that is
//! positive.
//!
//! ```text
//!     index   0  1  2  3  ...  63 | 64 ...            a page has 64 slots, two words of bits
//!     used      1  1  0  1       1 |
//!     positive  0  1  0  0       0 |                  pages with a used, positive, negative slot: a bitmap each
//! ```
//!
//! A proposed kernel patch (`sweep_negative`) keeps negatives behind the positives on one list of
//! siblings, by moving them. A walker that drops the locks while it visits a child may then find
//! that the child was moved, and miss all siblings in between (CVE-2014-8559 was a bug of this
//! kind). Here a child keeps its index for as long as it is a child, and one bit separates
//! positives from negatives:
//!
//! * The position of a walk is a number: the next index. No change between two steps can make the
//!   walk miss a child that stays, or visit it twice (D14).
//! * A walk over positives goes from set bit to set bit: O(positives + 1), independent of the
//!   number of negatives (D16).
//! * A child turns positive by setting its bit *first*, and negative by clearing it *last*, both
//!   under the children lock: while the lock is free, a child with a clear bit is negative (D15).
//!
//! The cost is 8 bytes and two bits per child; the kernel's two list pointers take 16 bytes.
//!
//! A change must keep a child's index for as long as it is a child, and the order of D15.
//!
//! Numbers such as D14 are those of docs/INVARIANTS.md.

mod bitmap;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use bitmap::HierarchicalBitmap;

/// Slots of a page.
const PAGE: usize = 64;
/// A page takes new children until it is full, and again when it has no more than this.
const REOPEN_AT: u32 = PAGE as u32 / 2;

/// A directory with no more pages than this keeps them when they are empty.
const SPARE_PAGES: usize = 8;

/// The children that a walk visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildFilter {
    All,
    Positive,
    Negative,
}

/// Whether a page has used, positive and negative slots.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PageSummary {
    used: bool,
    positive: bool,
    negative: bool,
}

/// 64 slots for children.
struct ChildPage<T> {
    slots: Vec<Option<T>>,
    /// One bit for each slot with a child.
    used: u64,
    /// One bit for each slot with a positive child.
    positive: u64,
    /// The page is in `open`, or is the page that is being filled.
    open: bool,
}

impl<T> ChildPage<T> {
    fn summary(&self) -> PageSummary {
        PageSummary { used: self.used != 0, positive: self.positive != 0, negative: self.used & !self.positive != 0 }
    }
}

/// The children of one directory, each a `T`, at indices that do not change. The directory's
/// `children` lock protects them.
#[doc(alias = "d_children")]
#[doc(alias = "d_subdirs")]
pub(crate) struct Children<T> {
    pages: Vec<ChildPage<T>>,
    /// One bit for each page: it has a child.
    used: HierarchicalBitmap,
    /// One bit for each page: it has a positive child.
    positive: HierarchicalBitmap,
    /// One bit for each page: it has a negative child.
    negative: HierarchicalBitmap,
    /// The page that is being filled.
    filling: Option<u32>,
    /// The pages to fill next: those that have fallen to [`REOPEN_AT`] children.
    open: Vec<u32>,
    /// The number of children.
    len: usize,
    /// The number of positive children.
    positives: usize,
    /// Negatives on the protected list.
    pub(crate) protected: usize,
    /// The index at which the next trim of negatives begins (the hand of CLOCK).
    clock_hand: u32,
    /// The number of watches of the directory. While it is not 0, children that turn positive are
    /// marked as watched.
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
            protected: 0,
            clock_hand: 0,
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

    /// Inserts a child as a negative one, and returns its index.
    pub(crate) fn insert(&mut self, child: T) -> u32 {
        let p = self.page_with_free_slot();
        let page = &mut self.pages[p];
        let before = page.summary();
        let at = (!page.used).trailing_zeros() as usize;
        if at == page.slots.len() {
            page.slots.push(None);
        }
        page.slots[at] = Some(child);
        page.used |= 1 << at;
        self.len += 1;
        self.update_summary(p, before);
        (p * PAGE + at) as u32
    }

    /// Removes the child at `index`; `None` if there is none. Its index may be used again.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let (p, at) = page_and_slot(index);
        let page = self.pages.get_mut(p)?;
        let before = page.summary();
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
        self.update_summary(p, before);
        if self.pages[p].used == 0 {
            self.shrink();
        }
        Some(child)
    }

    /// Sets or clears the bit of a positive child.
    #[doc(alias = "sweep_negative")]
    #[doc(alias = "recycle_negative")]
    pub(crate) fn set_positive(&mut self, index: u32, positive: bool) {
        let (p, at) = page_and_slot(index);
        let page = &mut self.pages[p];
        debug_assert!(page.used & 1 << at != 0, "the index is a child's");
        let was = page.positive & 1 << at != 0;
        if was != positive {
            let before = page.summary();
            page.positive ^= 1 << at;
            self.positives = if positive { self.positives + 1 } else { self.positives - 1 };
            self.update_summary(p, before);
        }
    }

    /// Returns the first child at or after `index` that `filter` selects, and its index.
    pub(crate) fn next(&self, index: u32, filter: ChildFilter) -> Option<(u32, &T)> {
        let (p, at) = page_and_slot(index);
        let marks = |page: &ChildPage<T>| match filter {
            ChildFilter::All => page.used,
            ChildFilter::Positive => page.positive,
            ChildFilter::Negative => page.used & !page.positive,
        };
        let pages = match filter {
            ChildFilter::All => &self.used,
            ChildFilter::Positive => &self.positive,
            ChildFilter::Negative => &self.negative,
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

    /// Returns the negative at the clock hand, and advances the hand. `None` if there is no
    /// negative.
    pub(crate) fn next_negative(&mut self) -> Option<&T> {
        let from = if self.next(self.clock_hand, ChildFilter::Negative).is_some() { self.clock_hand } else { 0 };
        let index = self.next(from, ChildFilter::Negative)?.0;
        self.clock_hand = index + 1;
        self.next(index, ChildFilter::Negative).map(|(_, child)| child)
    }

    /// Returns the bytes of the slots and bitmaps.
    pub(crate) fn footprint(&self) -> usize {
        let slots: usize = self.pages.iter().map(|page| page.slots.capacity() * size_of::<Option<T>>()).sum();
        let bits = self.used.footprint() + self.positive.footprint() + self.negative.footprint();
        slots + self.pages.capacity() * size_of::<ChildPage<T>>() + self.open.capacity() * size_of::<u32>() + bits
    }

    /// Checks that bitmaps, counts and children agree.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub(crate) fn assert_valid(&self) {
        let (mut len, mut positives) = (0, 0);
        for (p, page) in self.pages.iter().enumerate() {
            assert_eq!(page.positive & !page.used, 0, "only a child is marked as positive");
            for (at, slot) in page.slots.iter().enumerate() {
                assert_eq!(slot.is_some(), page.used & 1 << at != 0, "a slot is used if and only if a child is there");
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
        assert_eq!(open, flagged, "a page is recorded once: as open, or as the page that is being filled");
    }

    /// Updates the bitmaps of pages if the summary of page `p` differs from `before`.
    fn update_summary(&mut self, p: usize, before: PageSummary) {
        let now = self.pages[p].summary();
        if now == before {
            return;
        }
        self.used.set(p, now.used);
        self.positive.set(p, now.positive);
        self.negative.set(p, now.negative);
    }

    /// Frees the pages behind the last child, if they are at least half of all. So the amortized
    /// cost of a removal is O(levels of the bitmaps).
    fn shrink(&mut self) {
        let end = self.used.last().map_or(0, |p| p + 1);
        if self.pages.len() <= SPARE_PAGES || end > self.pages.len() / 2 {
            return;
        }
        self.pages.truncate(end);
        self.pages.shrink_to_fit();
        self.open.retain(|&p| (p as usize) < end);
        self.open.shrink_to_fit();
        self.filling = self.filling.filter(|&p| (p as usize) < end);
        for bits in [&mut self.used, &mut self.positive, &mut self.negative] {
            bits.truncate(end);
        }
    }

    /// Returns the number of the page that takes the next child.
    fn page_with_free_slot(&mut self) -> usize {
        loop {
            if let Some(p) = self.filling {
                if self.pages[p as usize].used != u64::MAX {
                    return p as usize;
                }
                self.pages[p as usize].open = false;
            }
            self.filling = Some(self.open.pop().unwrap_or_else(|| {
                self.pages.push(ChildPage { slots: Vec::new(), used: 0, positive: 0, open: true });
                (self.pages.len() - 1) as u32
            }));
        }
    }
}

/// Splits an index into the number of its page and of its slot there.
fn page_and_slot(index: u32) -> (usize, usize) {
    (index as usize / PAGE, index as usize % PAGE)
}
