//! A listener does not miss a non-empty list (L10): one thread adds the first item while another
//! clears the listener's bit, counts the items, and sets the bit again if there are any. Afterwards
//! either the bit is set or the list is empty, which needs a full fence on each side
//! ([`Occupancy`]).
//!
//! Numbers such as L10 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a bit that stays clear beside a non-empty list fails the check.

use super::{world_heard_by, N0};
use crate::list_lru::tests::{item, Item};
use crate::sync::atomic::{fence, AtomicBool, Ordering};
use crate::sync::{model, with_mutant};
use crate::{ListLru, Memcg, NodeId, Occupancy};
use alloc::sync::Arc;
use loom::thread;

/// A minimal listener, with one bit.
pub(super) struct Bit(pub(super) AtomicBool);

impl Occupancy for Bit {
    fn occupied(&self, _memcg: &Memcg, _node: NodeId) {
        if !crate::mutated!("listener_without_fence") {
            // SeqCst: orders the count (stored by the list) before the bit; pairs with the fence in
            // `clear_if_empty`.
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Bit {
    pub(super) fn clear_if_empty(&self, lru: &ListLru<Item>, memcg: &Memcg) {
        // Relaxed: ordered by the fence.
        self.0.store(false, Ordering::Relaxed);
        // SeqCst: orders the bit before the count; pairs with the fence in `occupied`. It has no
        // mutant: `count_one` enters the read side, which contains a fence that happens to have the
        // same effect. Listeners must not rely on that.
        fence(Ordering::SeqCst);
        if !crate::mutated!("clear_without_count") && lru.count_one(memcg, N0) != 0 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// L10: the bit after an add concurrent with a clear.
fn add_beside_clear() {
    let bit = Arc::new(Bit(AtomicBool::new(true)));
    let w = world_heard_by(Some(bit.clone()));
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    let other = thread::spawn(move || w.lru.add(item(0), w.tree.root(), N0).unwrap());
    bit.clear_if_empty(&w.lru, w.tree.root());
    other.join().unwrap();
    assert!(bit.0.load(Ordering::Relaxed), "an object must not be hidden");
    w.end();
}

#[test]
fn l10_a_listener_does_not_miss_an_item_added_during_its_clear() {
    model(add_beside_clear);
}

#[test]
#[should_panic]
fn l10_fails_with_listener_without_fence() {
    with_mutant("listener_without_fence", || model(add_beside_clear));
}

#[test]
#[should_panic]
fn l10_fails_with_clear_without_count() {
    with_mutant("clear_without_count", || model(add_beside_clear));
}
