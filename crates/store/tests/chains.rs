//! Hash chains in programs that are careless, unlucky or hostile, but use only safe code.
//!
//! A table's objects are shared, may panic in `Drop`, and may move to another table while readers
//! stand on them: none of that may be unsound, hang, or need more stack for more objects.
//!
//! A change must ensure that each object counts its drop: an object that is dropped twice, or
//! never, must fail its test.
#![forbid(unsafe_code)]

#[path = "../../base/tests/hazard/mod.rs"]
mod hazard;

use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

type OnDrop = Box<dyn FnOnce() + Send>;

struct Name {
    link: HashLink<Name>,
    key: u64,
    on_drop: Mutex<Option<OnDrop>>,
}
lowwater_store::hash_node!(impl[] for Name { link });

impl Drop for Name {
    fn drop(&mut self) {
        if let Some(call) = self.on_drop.get_mut().unwrap().take() {
            call();
        }
    }
}

fn name(key: u64, on_drop: impl FnOnce() + Send + 'static) -> Arc<Name> {
    Arc::new(Name { link: HashLink::new(), key, on_drop: Mutex::new(Some(Box::new(on_drop))) })
}

/// A name that adds one to `dropped` when it is dropped.
fn counted(key: u64, dropped: &Arc<AtomicUsize>) -> Arc<Name> {
    let dropped = Arc::clone(dropped);
    name(key, move || _ = dropped.fetch_add(1, Ordering::Relaxed))
}

fn insert(table: &HashChains<Name>, name: Arc<Name>) {
    table.insert(0, name).map_err(|_| "it is on a chain").unwrap();
}

/// Enters the read side, by dropping empty tables, until `count` objects are dropped. Objects of a
/// dropped table are freed by threads that enter later.
fn wait_for(dropped: &AtomicUsize, count: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while dropped.load(Ordering::Relaxed) != count {
        drop(HashChains::<Name>::new(1));
        assert!(std::time::Instant::now() < deadline, "{dropped:?} of {count} objects were dropped");
    }
}

/// A reader of one table stands on an object that is moved to another table, and follows it there.
/// Dropping the other table frees no object that the reader can reach.
#[test]
fn a_reader_that_was_taken_along_to_a_table_outlives_its_objects() {
    let (first, second) = (HashChains::new(1), HashChains::new(1));
    let dropped = Arc::default();
    let moved = counted(1, &dropped);
    insert(&first, moved.clone());
    (2..5).for_each(|key| insert(&second, counted(key, &dropped)));

    let reader = Reader::enter();
    let mut chain = first.chain(0, &reader);
    assert!(first.remove(0, &moved));
    insert(&second, moved);
    let found = chain.next().map(|name| name.key);
    drop(second);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "the reader has not left");
    assert_eq!((found, chain.map(|name| name.key).collect::<Vec<_>>()), (Some(1), vec![4, 3, 2]));

    drop(reader);
    drop(first);
    wait_for(&dropped, 4);
}

/// An `Arc` that a reader makes of an object keeps the object alive, whichever tables are dropped.
#[test]
fn a_handle_from_a_table_that_ended_is_good() {
    let (first, second) = (HashChains::new(1), HashChains::new(1));
    let dropped = Arc::default();
    let moved = counted(1, &dropped);
    insert(&first, moved.clone());
    insert(&second, counted(2, &dropped));
    let reader = Reader::enter();
    let mut chain = first.chain(0, &reader);
    assert!(first.remove(0, &moved));
    insert(&second, moved);
    chain.next();
    drop(second);
    let kept = chain.next().expect("the reader stood on it").to_arc();
    drop(reader);
    drop(first);
    wait_for(&dropped, 1);
    assert_eq!(kept.key, 2);
    drop(kept);
    wait_for(&dropped, 2);
}

#[test]
fn objects_of_a_table_that_ended_can_be_on_another() {
    let (first, second) = (HashChains::new(4), HashChains::new(1));
    let dropped = Arc::default();
    let names: Vec<_> = (0..100).map(|key| counted(key, &dropped)).collect();
    names.iter().for_each(|name| first.insert(name.key << 62, name.clone()).ok().unwrap());
    drop(first);
    names.into_iter().for_each(|name| insert(&second, name));
    let reader = Reader::enter();
    assert_eq!(second.chain(0, &reader).count(), 100);
    drop(reader);
    drop(second);
    wait_for(&dropped, 100);
}

// Without `std` the panic cannot be caught.
#[cfg(feature = "std")]
/// An object with a `Drop` that panics affects neither other objects nor the thread that enters the
/// read side.
#[test]
fn an_object_whose_drop_panics_leaves_the_others_to_be_dropped() {
    let table = HashChains::new(2);
    let dropped = Arc::<AtomicUsize>::default();
    for key in 0..200 {
        let name = if key % 3 == 0 {
            let dropped = Arc::clone(&dropped);
            name(key, move || {
                dropped.fetch_add(1, Ordering::Relaxed);
                std::panic::resume_unwind(Box::new("the object's own fault"));
            })
        } else {
            counted(key, &dropped)
        };
        table.insert(key << 63, name).ok().unwrap();
    }
    drop(table);
    wait_for(&dropped, 200);
}

/// Drops a chain of objects, each of which removes the next one from the table when it is dropped.
fn drop_a_row_of_names() {
    const NAMES: u64 = 10_000;
    let table = Arc::new(HashChains::<Name>::new(1 << 16));
    let dropped = Arc::new(AtomicUsize::new(0));
    // Only the table owns them: objects that own each other would need stack in proportion to their
    // depth, as boxes do.
    let remove = |table: &HashChains<Name>, key: u64| {
        let reader = Reader::enter();
        let found = table.find(key << 48, &reader, |name| name.key == key);
        assert!(found.is_none_or(|found| table.remove(key << 48, &found)));
    };
    for key in 0..NAMES {
        let (dropped, table_too) = (dropped.clone(), Arc::downgrade(&table));
        let name = name(key, move || {
            dropped.fetch_add(1, Ordering::Relaxed);
            if let Some(table) = table_too.upgrade() {
                remove(&table, key + 1);
            }
        });
        table.insert(key << 48, name).ok().unwrap();
    }
    remove(&table, 0);
    wait_for(&dropped, NAMES as usize);
}

/// Drops many objects at once, each of which enters the read side.
fn drop_names_that_use_the_read_side() {
    const NAMES: usize = 10_000;
    let table = HashChains::<Name>::new(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let outer = Reader::enter();
    for _ in 0..NAMES {
        let theirs = dropped.clone();
        let name = name(0, move || {
            drop(Reader::enter());
            theirs.fetch_add(1, Ordering::Relaxed);
        });
        insert(&table, name.clone());
        assert!(table.remove(0, &name));
    }
    drop(outer);
    wait_for(&dropped, NAMES);
}

fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(f).unwrap().join().unwrap();
}

#[test]
fn a_drop_that_removes_the_next_object_needs_little_stack() {
    on_a_small_stack(drop_a_row_of_names);
}

#[test]
fn late_drops_of_thread_locals_need_little_stack() {
    struct Late(bool);
    impl Drop for Late {
        fn drop(&mut self) {
            if self.0 {
                drop_names_that_use_the_read_side();
            }
        }
    }
    std::thread_local! { static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(false)) }; }
    on_a_small_stack(|| {
        LATE.with_borrow_mut(|late| late.0 = true);
        // Thread-local state of the read side is created later, and destroyed earlier.
        drop(Reader::enter());
    });
}

/// A closure of `find` panics, or changes the table, during a lookup.
#[test]
fn a_closure_of_find_may_change_the_table_and_panic() {
    let table = HashChains::<Name>::new(1);
    let dropped = Arc::default();
    (0..3).for_each(|key| insert(&table, counted(key, &dropped)));
    let reader = Reader::enter();
    let found = table.find(0, &reader, |name| {
        assert!(table.remove(0, name));
        name.key == 0
    });
    assert_eq!(found.map(|found| found.key), Some(0));
    (10..13).for_each(|key| insert(&table, counted(key, &dropped)));
    let panics =
        std::panic::AssertUnwindSafe(|| table.find(0, &reader, |_| panic!("the closure's own fault")).is_some());
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(reader);
    let reader = Reader::enter();
    assert_eq!(table.chain(0, &reader).count(), 3);
    drop((reader, table));
    wait_for(&dropped, 6);
}

/// A leaked reader keeps the objects that it may see for good.
#[test]
fn a_leaked_reader_outlives_its_thread() {
    // In a separate process, because no object that chains retire is dropped afterwards.
    hazard::in_a_process("a_leaked_reader_outlives_its_thread", || {
        let table: &'static HashChains<Name> = Box::leak(Box::new(HashChains::new(1)));
        let dropped: Arc<AtomicUsize> = Arc::default();
        insert(table, counted(7, &dropped));
        let found = std::thread::spawn(move || {
            let reader: &'static Reader = Box::leak(Box::new(Reader::enter()));
            table.find(0, reader, |name| name.key == 7).unwrap()
        });
        let found = found.join().unwrap();
        assert!(table.remove(0, &found));
        for _ in 0..10_000 {
            drop(Reader::enter());
        }
        assert_eq!((dropped.load(Ordering::Relaxed), found.key), (0, 7));
    });
}
