//! What the map knows of one group on one node.

use lowwater_lru_core::fallible::try_box;
use lowwater_lru_core::sync::atomic::AtomicBool;
use lowwater_lru_core::sync::Mutex;
use lowwater_lru_core::Memcg;
use once_cell::race::OnceBox;

use super::by_group::{ByGroup, OfGroup};
use crate::bitmap::Bitmap;
use crate::deferred::Debts;
use crate::stats::SeenBy;

/// A group's bits and debts on one node; there from its first bit to its last.
pub(super) struct Unit {
    pub(super) memcg: Memcg,
    pub(super) words: Bitmap,
    books: OnceBox<Books>,
}

/// What is kept of visits; nothing of a group that was not visited.
#[derive(Default)]
pub(super) struct Books {
    pub(super) debts: Mutex<Debts>,
    pub(super) seen: Mutex<SeenBy>,
    /// Were there ever debts? So that a pass need not lock them to learn that there are none.
    pub(super) indebted: AtomicBool,
}

impl Unit {
    pub(super) fn new(memcg: Memcg) -> Self {
        Self { memcg, words: Bitmap::default(), books: OnceBox::new() }
    }

    /// None as long as there is nothing in them.
    pub(super) fn books(&self) -> Option<&Books> {
        self.books.get()
    }

    /// To write in; none without memory.
    pub(super) fn books_to_write(&self) -> Option<&Books> {
        self.books.get_or_try_init(|| try_box(Books::default()).ok_or(())).ok()
    }

    /// Gives back what is kept of shrinkers that have no bit any more.
    pub(super) fn tidy_books(&mut self) {
        let Some(books) = self.books.get() else { return };
        let (mut debts, mut seen) = (books.debts.lock(), books.seen.lock());
        debts.retain(|id| self.words.contains(id));
        seen.retain(|id| self.words.contains(id));
    }

    fn bytes(&self) -> usize {
        let books = |books: &Books| size_of::<Books>() + books.debts.lock().bytes() + books.seen.lock().bytes();
        self.words.bytes() + self.books().map_or(0, books)
    }
}

impl OfGroup for Unit {
    fn memcg(&self) -> &Memcg {
        &self.memcg
    }
}

/// The units of one shard.
pub(super) type Units = ByGroup<Unit>;

/// Heap bytes of a shard.
pub(super) fn bytes(units: &Units) -> usize {
    units.iter().map(Unit::bytes).sum::<usize>() + units.bytes()
}
