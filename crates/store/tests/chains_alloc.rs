//! Hash chains without `std` and without memory: objects that are removed while no reader is inside
//! are freed.
//!
//! A test program of its own, since readers of other tests would delay the free.
//!
//! A new case belongs into the one test, for the same reason.

#![cfg(all(not(feature = "std"), not(lowwater_loom)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::refused_after;
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use std::sync::Arc;

struct Name {
    link: HashLink<Name>,
}
lowwater_store::hash_node!(impl[] for Name { link });

#[test]
fn objects_are_freed_without_memory() {
    let table = HashChains::<Name>::new(1);
    let names = [(); 4].map(|()| Arc::new(Name { link: HashLink::new() }));
    let counts = || [0, 1, 2, 3].map(|n| Arc::strong_count(&names[n]));
    for name in &names {
        table.insert(0, name.clone()).ok().unwrap();
    }
    let (removed, _) = refused_after(0, || table.remove(0, &names[0]));
    assert!(removed);
    assert_eq!(counts(), [1, 2, 2, 2], "by `remove`");

    // A reader is inside: one object waits without memory, a second one with memory.
    let reader = Reader::enter();
    let (removed, _) = refused_after(0, || table.remove(0, &names[1]));
    assert!(removed && table.remove(0, &names[2]));
    assert_eq!(counts(), [1, 2, 2, 2]);
    drop(reader);
    assert_eq!(counts(), [1, 1, 1, 2], "by the reader that left");

    let ((), _) = refused_after(0, || drop(table));
    assert_eq!(counts(), [1; 4], "by the table's drop");
}
