//! Sweeps of a list, concurrent with its users.
//!
//! Numbers such as L6 are those of docs/INVARIANTS.md.
//!
//! A list that the last sweep found empty is freed by the next one: these are the races of that
//! second sweep with an add, a creation, an offline and a `Prepared`.
//!
//! A change must ensure that the list is idle before the race begins, so that the sweep may free
//! it.

use super::{world, World, N0};
use crate::list_lru::tests::item;
use crate::list_lru::{sweep::sweep_group, Swept};
use crate::sync::{model, with_mutant};
use loom::thread;

/// Creates a world whose root has an empty list that the last sweep marked.
fn idle_world() -> &'static World {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    sweep_group(w.tree.root(), &mut Swept::default());
    w
}

fn add_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    w.lru.add(item(0), w.tree.root(), N0).unwrap();
    other.join().unwrap();
    assert_eq!((w.lru.count_one(w.tree.root(), N0), w.lru.pairs()), (1, 1));
    w.end();
}

#[test]
fn an_add_during_a_sweep_finds_or_creates_a_list() {
    model(add_beside_sweep);
}

/// R5: the parent's list is swept while the child's is created.
fn populate_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    w.lru.assert_valid(); // L6
    w.child.offline().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

#[test]
fn r5_l6_a_list_has_its_parents_list_during_a_sweep() {
    model(populate_beside_sweep);
}

#[test]
#[should_panic]
fn r5_fails_with_populate_without_parent() {
    with_mutant("populate_without_parent", || model(populate_beside_sweep));
}

#[test]
fn an_offline_during_a_sweep_frees_the_idle_list_once() {
    model(|| {
        let w = world();
        drop(w.lru.prepare(&w.child, N0).unwrap());
        sweep_group(&w.child, &mut Swept::default());
        let other = thread::spawn(move || {
            sweep_group(&w.child, &mut Swept::default());
        });
        w.child.offline().unwrap();
        other.join().unwrap();
        assert_eq!(w.lru.pairs(), 1);
        w.end();
    });
}

fn prepare_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    let prepared = w.lru.prepare(w.tree.root(), N0).unwrap();
    other.join().unwrap();
    sweep_group(w.tree.root(), &mut Swept::default());
    assert_eq!(w.lru.pairs(), 1);
    drop(prepared);
    w.end();
}

#[test]
fn a_prepared_list_survives_a_concurrent_sweep() {
    model(prepare_beside_sweep);
}

#[test]
#[should_panic]
fn fails_with_swept_means_dying() {
    with_mutant("swept_means_dying", || model(prepare_beside_sweep));
}
