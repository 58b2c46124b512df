//! Model checks of the chains: two threads, one or two tables, and at most two objects, so that all
//! executions with at most three preemptions (`ci/loom.sh`) are checked within seconds.
//!
//! A `fails_with_` test repeats a check with one ordering weakened, or without the wait for
//! readers, and must fail. A change must keep one such test for each ordering that the checks
//! cover; docs/ORDERINGS.md lists them.

use super::*;
use crate::sync::{thread, with_mutant};

/// A reader walks a chain of one object, while a second object is inserted in front of the first,
/// and then the first is removed.
fn a_reader_beside_insert_and_remove() {
    crate::sync::model(|| {
        let table = Arc::new(HashChains::<Item>::new(1));
        let old = item(1);
        table.insert(0, old.clone()).ok().unwrap();
        let writer = {
            let table = table.clone();
            thread::spawn(move || {
                let new = item(2);
                // The model checker sees this as a write before the insert. If the insert is
                // published with Relaxed, the reader's read of `seen` races with it.
                new.link.seen.with_mut(|_| ());
                table.insert(0, new).ok().unwrap();
                assert!(table.remove(0, &old));
            })
        };
        {
            let reader = Reader::enter();
            for found in table.chain(0, &reader) {
                assert!(found.key == 1 || found.key == 2);
            }
        }
        writer.join().unwrap();
        let reader = Reader::enter();
        assert_eq!(table.chain(0, &reader).map(|item| item.key).sum::<u64>(), 2);
    });
}

#[test]
fn a_found_object_is_whole_and_alive() {
    a_reader_beside_insert_and_remove();
}

#[test]
#[should_panic]
fn fails_with_chain_publish_relaxed() {
    with_mutant("chain_publish_relaxed", a_reader_beside_insert_and_remove);
}

#[test]
#[should_panic]
fn fails_with_chain_release_at_once() {
    with_mutant("chain_release_at_once", a_reader_beside_insert_and_remove);
}

#[test]
#[should_panic]
fn fails_with_unpin_relaxed() {
    with_mutant("unpin_relaxed", a_reader_beside_insert_and_remove);
}

#[test]
#[should_panic]
fn fails_with_collect_relaxed() {
    with_mutant("collect_relaxed", a_reader_beside_insert_and_remove);
}

/// A reader of one table, while another thread moves the reader's object to another table and drops
/// that table. From the moved object the reader may follow to the object of the other table.
fn a_reader_beside_the_end_of_another_table() {
    let (table, other) = (Arc::new(HashChains::<Item>::new(1)), HashChains::<Item>::new(1));
    let moved = item(1);
    table.insert(0, moved.clone()).ok().unwrap();
    other.insert(0, item(2)).ok().unwrap();
    let writer = {
        let table = table.clone();
        thread::spawn(move || {
            assert!(table.remove(0, &moved));
            other.insert(0, moved).ok().unwrap();
            drop(other);
        })
    };
    {
        let reader = Reader::enter();
        for found in table.chain(0, &reader) {
            assert!(found.key == 1 || found.key == 2);
        }
    }
    writer.join().unwrap();
}

#[test]
fn a_reader_outlives_the_table_to_which_its_object_moved() {
    crate::sync::model(a_reader_beside_the_end_of_another_table);
}

#[test]
#[should_panic]
fn fails_with_chain_end_at_once() {
    with_mutant("chain_end_at_once", || crate::sync::model(a_reader_beside_the_end_of_another_table));
}

/// Two threads insert one object into two tables: exactly one insertion succeeds, and the object is
/// found in that table.
#[test]
fn an_object_is_claimed_once() {
    crate::sync::model(|| {
        let (a, b) = (Arc::new(HashChains::<Item>::new(1)), Arc::new(HashChains::<Item>::new(1)));
        let x = item(1);
        let other = {
            let (b, x) = (b.clone(), x.clone());
            thread::spawn(move || b.insert(0, x).is_ok())
        };
        let here = a.insert(0, x.clone()).is_ok();
        let there = other.join().unwrap();
        assert!(here != there);
        assert!(if here { a.remove(0, &x) } else { b.remove(0, &x) });
    });
}
