//! Objects that a thread holds: until a step releases them, or in thread-locals until the thread
//! ends.
//!
//! Thread-locals are destroyed in the reverse order of their first use. `EARLY` is created before
//! the library's and outlives them; `LATE` is mostly created after them.
//!
//! A change must ensure that `EARLY` is created first on each thread (`begin`).

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use lowwater::{Charge, Charged, Memcg};
use lowwater_rcu::Guard;
use lowwater_store::hash_chains::Reader;

use crate::cache::{AnyCache, KeptValue};
use crate::callback::{enter, Callback};
use crate::item::Shared;
use crate::step::{Storage, KEYS};
use crate::token::Token;

/// An object that a thread keeps.
pub enum Stored {
    Guard(#[expect(dead_code, reason = "held")] Guard),
    Reader(#[expect(dead_code, reason = "held")] Reader),
    Cache(Box<dyn AnyCache>),
    Group(Memcg),
    Item(Arc<Shared>),
    Charge(#[expect(dead_code, reason = "held")] Charge),
    Charged(Charged<Token>),
    Value(Box<dyn KeptValue>),
}

/// The objects of a thread-local. Each is used once more and dropped when the thread ends.
struct Last(Vec<Stored>);

impl Drop for Last {
    fn drop(&mut self) {
        // A panic that leaves the destructor of a thread-local would abort the process, and the
        // steps that run here may panic on purpose.
        let _panicked = catch_unwind(|| enter(Callback::ThreadLocal));
        for kept in self.0.drain(..) {
            let _panicked = catch_unwind(AssertUnwindSafe(|| kept.end()));
        }
    }
}

impl Stored {
    /// Uses the object once more, and drops it.
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
            Self::Charged(value) => value.check("kept in a thread-local"),
            Self::Value(value) => value.check(),
            Self::Guard(_) | Self::Reader(_) | Self::Charge(_) => {}
        }
    }
}

thread_local! {
    static HELD: RefCell<Vec<Stored>> = const { RefCell::new(Vec::new()) };
    static EARLY: RefCell<Last> = const { RefCell::new(Last(Vec::new())) };
    static LATE: RefCell<Last> = const { RefCell::new(Last(Vec::new())) };
}

/// Creates [`EARLY`]: must be called first on each thread of a program.
pub fn begin() {
    EARLY.with_borrow(|_| ());
}

/// Keeps an object on this thread; leaks it for [`Storage::Leak`].
pub fn keep(kept: Stored, storage: Storage) {
    match storage {
        Storage::Held => drop(HELD.try_with(|held| held.borrow_mut().push(kept))),
        Storage::Early => drop(EARLY.try_with(|last| last.borrow_mut().0.push(kept))),
        Storage::Late => drop(LATE.try_with(|last| last.borrow_mut().0.push(kept))),
        Storage::Leak => std::mem::forget(kept),
    }
}

/// Drops this thread's [`Storage::Held`] objects in the order in which they were stored.
pub fn release() {
    let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
    drop(held);
}
