//! What a thread keeps: until it lets go of it, or in thread-locals that end with the thread.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use lowwater::Memcg;
use lowwater_lru_core::chains::Reader;
use lowwater_lru_core::Guard;

use crate::cache::AnyCache;
use crate::callback::{enter, Callback};
use crate::item::Shared;
use crate::step::{Shelf, KEYS};

/// A thing that is kept.
pub enum Kept {
    Guard(#[expect(dead_code, reason = "held")] Guard),
    Reader(#[expect(dead_code, reason = "held")] Reader),
    Cache(Box<dyn AnyCache>),
    Group(Memcg),
    Item(Arc<Shared>),
}

/// Used once more when the thread ends.
struct Last(Vec<Kept>);

impl Drop for Last {
    fn drop(&mut self) {
        // A panic here would end the process: what is done here may have others panic.
        let _panicked = catch_unwind(|| enter(Callback::ThreadLocal));
        for kept in self.0.drain(..) {
            let _panicked = catch_unwind(AssertUnwindSafe(|| kept.end()));
        }
    }
}

impl Kept {
    /// Uses it once more, and drops it.
    fn end(self) {
        match &self {
            Self::Cache(cache) => {
                for key in 0..KEYS / 4 {
                    cache.get(key);
                }
                cache.collect();
            }
            Self::Group(group) => drop((group.path(), group.usage())),
            Self::Item(item) => item.token.check("kept in a thread-local"),
            Self::Guard(_) | Self::Reader(_) => {}
        }
    }
}

thread_local! {
    static HELD: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
    static EARLY: RefCell<Last> = const { RefCell::new(Last(Vec::new())) };
    static LATE: RefCell<Last> = const { RefCell::new(Last(Vec::new())) };
}

/// Called first on each thread of a program.
pub fn begin() {
    EARLY.with_borrow(|_| ());
}

pub fn keep(kept: Kept, shelf: Shelf) {
    match shelf {
        Shelf::Held => drop(HELD.try_with(|held| held.borrow_mut().push(kept))),
        Shelf::Early => drop(EARLY.try_with(|last| last.borrow_mut().0.push(kept))),
        Shelf::Late => drop(LATE.try_with(|last| last.borrow_mut().0.push(kept))),
        Shelf::Leak => std::mem::forget(kept),
    }
}

/// Lets go of what is held, the first first.
pub fn release() {
    let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
    drop(held);
}
