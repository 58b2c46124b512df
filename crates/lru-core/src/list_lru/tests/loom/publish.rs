//! A structure published by one thread is found without a lock by another, with its contents
//! visible.
//!
//! The test that passes and its `fails_with_` twins share one function, which runs the two threads
//! and reads the published memory; loom reports a read that is not ordered after the write.
//!
//! A change must ensure that each published structure is read without a lock, and has a twin with a
//! weaker store.

use super::{world, N0};
use crate::list_lru::tests::item;
use crate::sync::{model, with_mutant};
use crate::NodeId;
use loom::thread;

/// A list that one thread creates is found by another without a lock.
fn publish_beside_lookup() {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    let other = { thread::spawn(move || drop(w.lru.prepare(w.tree.root(), NodeId::new(1)).unwrap())) };
    w.lru.walk_one(w.tree.root(), NodeId::new(1), &mut 1, |it| it.skip());
    other.join().unwrap();
    w.end();
}

#[test]
fn a_list_found_in_a_new_table_is_initialized() {
    model(publish_beside_lookup);
}

#[test]
#[should_panic]
fn fails_with_table_relaxed() {
    with_mutant("table_relaxed", || model(publish_beside_lookup));
}

/// As `publish_beside_lookup`, but the list goes into a free slot of the same table, which with
/// three lists has four slots.
fn insert_beside_lookup() {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    drop(w.lru.prepare(w.tree.root(), NodeId::new(1)).unwrap());
    drop(w.lru.prepare(w.tree.root(), NodeId::new(2)).unwrap());
    let other = { thread::spawn(move || drop(w.lru.prepare(w.tree.root(), NodeId::new(3)).unwrap())) };
    w.lru.walk_one(w.tree.root(), NodeId::new(3), &mut 1, |it| it.skip());
    other.join().unwrap();
    w.end();
}

#[test]
fn a_list_found_in_a_free_slot_is_initialized() {
    model(insert_beside_lookup);
}

#[test]
#[should_panic]
fn fails_with_publish_relaxed() {
    with_mutant("publish_relaxed", || model(insert_beside_lookup));
}

/// An item is removed from one list and added to another by two threads.
fn from_list_to_list() {
    let w = world();
    let second = world();
    drop(second.lru.prepare(w.tree.root(), N0).unwrap());
    let it = item(0);
    w.lru.add(it.clone(), w.tree.root(), N0).unwrap();
    let other = {
        let it = it.clone();
        thread::spawn(move || assert!(w.lru.del(&it).is_some()))
    };
    let moved = second.lru.add(it.clone(), w.tree.root(), N0).is_ok();
    other.join().unwrap();
    assert_eq!(second.lru.count_node(N0), u64::from(moved));
    second.end();
    w.end();
}

#[test]
fn an_item_moves_between_lists_without_a_data_race_on_its_links() {
    model(from_list_to_list);
}

#[test]
#[should_panic]
fn fails_with_unlink_relaxed() {
    with_mutant("unlink_relaxed", || model(from_list_to_list));
}

/// An item is found through its home, on a list that another thread just created.
fn del_beside_first_add() {
    let w = world();
    let it = item(0);
    let other = {
        let it = it.clone();
        thread::spawn(move || w.lru.add(it, w.tree.root(), N0).unwrap())
    };
    let removed = w.lru.del(&it).is_some();
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), u64::from(!removed));
    w.end();
}

#[test]
fn a_list_found_through_an_items_home_is_initialized() {
    model(del_beside_first_add);
}

#[test]
#[should_panic]
fn fails_with_claim_relaxed() {
    with_mutant("claim_relaxed", || model(del_beside_first_add));
}
