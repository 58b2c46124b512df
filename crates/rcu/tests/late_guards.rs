//! Guards that outlive their thread's registration with the read side: in thread-locals that are
//! destroyed later, and leaked.
//!
//! Each test with a late or leaked guard was a use after free before the last guard of an ended
//! thread took over the thread's registration (`local_epoch.rs`, flag `ENDED`).
//!
//! Each must stay: a sanitizer run finds the defect if it comes back.
#![forbid(unsafe_code)]
#![cfg(not(lowwater_loom))]

mod alone;

use alone::{alone, for_ever};
use lowwater_rcu::{pin, Guard, RcuCell};
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// crossbeam-epoch frees at unspecified times.
const FREES_SOON: bool = cfg!(all(not(lowwater_epoch), any(not(feature = "std"), target_os = "linux")));

struct Counted(u32, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a leaked cell with the value 7, and the number of its values that were dropped.
fn cell() -> (&'static RcuCell<Counted>, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let cell = for_ever(RcuCell::new());
    put(cell, 7, &dropped);
    (cell, dropped)
}

fn put(cell: &RcuCell<Counted>, value: u32, dropped: &Arc<AtomicUsize>) {
    let guard = pin();
    assert!(cell.replace(cell.load(&guard), Counted(value, dropped.clone()), &guard));
}

/// Waits until `count` values are dropped. Replaces values of another cell meanwhile, as each
/// replacement checks the waiting ones.
fn until_dropped(dropped: &AtomicUsize, count: usize) {
    let (other, others) = (RcuCell::new(), Arc::default());
    let begin = Instant::now();
    while FREES_SOON && dropped.load(Ordering::Relaxed) != count {
        put(&other, 0, &others);
        assert!(begin.elapsed() < alone::PATIENCE / 2, "{} of {count} are dropped", dropped.load(Ordering::Relaxed));
    }
}

/// A thread-local that is destroyed after those of the library, as it is created first.
struct Late {
    guards: Vec<Guard>,
    at_end: Box<dyn FnOnce(Vec<Guard>)>,
}

impl Drop for Late {
    fn drop(&mut self) {
        let at_end = std::mem::replace(&mut self.at_end, Box::new(|_| ()));
        at_end(std::mem::take(&mut self.guards));
    }
}

thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }

/// Spawns a thread that creates `guards` guards, and passes them to `at_end` at its end, after the
/// library's thread-locals were destroyed.
fn ends_with(guards: usize, at_end: impl FnOnce(Vec<Guard>) + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        LATE.set(Some(Late { guards: Vec::new(), at_end: Box::new(at_end) }));
        drop(pin());
        LATE.with_borrow_mut(|late| late.as_mut().unwrap().guards.extend((0..guards).map(|_| pin())));
    })
}

/// Returns a function that signals its arrival and waits for an answer, and the two channel ends
/// for that.
fn meeting() -> (impl FnOnce() + Send, Receiver<()>, Sender<()>) {
    let (tell, told) = channel();
    let (end, ended) = channel();
    let meet = move || {
        tell.send(()).unwrap();
        ended.recv().unwrap();
    };
    (meet, told, end)
}

#[test]
fn a_guard_in_a_thread_local_that_is_destroyed_late_is_a_reader_until_then() {
    let (cell, dropped) = cell();
    let (meet, told, end) = meeting();
    let reader = ends_with(2, move |mut guards| {
        let first = guards.pop().unwrap();
        let value = cell.load(&first).unwrap();
        drop(guards);
        meet();
        assert_eq!(value.0, 7);
        drop(first);
    });
    told.recv().unwrap();
    put(cell, 8, &dropped);
    put(cell, 9, &dropped);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "a reader may still look at the first");
    end.send(()).unwrap();
    reader.join().unwrap();
    until_dropped(&dropped, 2);
}

#[test]
fn pins_beside_a_late_guard_are_readers_as_well() {
    let (cell, dropped) = cell();
    let (meet, told, end) = meeting();
    let reader = ends_with(1, move |guards| {
        let later = pin();
        drop(guards);
        let value = cell.load(&later).unwrap();
        meet();
        assert_eq!(value.0, 7);
        drop(later);
        drop(pin());
    });
    told.recv().unwrap();
    put(cell, 8, &dropped);
    put(cell, 9, &dropped);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "a reader may still look at the first");
    end.send(()).unwrap();
    reader.join().unwrap();
    until_dropped(&dropped, 2);
}

#[test]
fn objects_retired_under_late_guards_are_dropped() {
    for guards in 0..3 {
        let (cell, dropped) = cell();
        let theirs = dropped.clone();
        ends_with(guards, move |guards| {
            put(cell, 8, &theirs);
            drop(guards);
            put(cell, 9, &theirs);
        })
        .join()
        .unwrap();
        until_dropped(&dropped, 2);
    }
}

#[test]
fn cells_may_be_dropped_late() {
    let (made, dropped) = cell();
    put(made, 8, &dropped);
    let (owned, theirs) = (RcuCell::new(), dropped.clone());
    assert!(owned.replace(None, Counted(1, dropped.clone()), &pin()));
    ends_with(1, move |guards| {
        put(&owned, 2, &theirs);
        assert_eq!(owned.load(&guards[0]).unwrap().0, 2);
        drop(owned);
    })
    .join()
    .unwrap();
    until_dropped(&dropped, 3);
}

// The leaked guard holds memory back for ever, so the test runs in a process of its own.
#[test]
fn objects_seen_by_a_leaked_guard_are_never_freed() {
    alone("objects_seen_by_a_leaked_guard_are_never_freed", || {
        let (cell, dropped) = cell();
        let leak = move || cell.load(for_ever(pin())).unwrap();
        let nested = move || {
            let outer = pin();
            let value = leak();
            drop(outer);
            value
        };
        let replace = |count| (0..count).for_each(|n| put(cell, n, &dropped));
        let value = thread::spawn(nested).join().unwrap();
        replace(100);
        assert_eq!((value.0, dropped.load(Ordering::Relaxed)), (7, 0), "a leaked guard may read it for ever");
        // Leaked while a guard that is destroyed late exists.
        let (tell, told) = channel();
        let late = move |guards| {
            let value = leak();
            drop::<Vec<Guard>>(guards);
            tell.send(value).unwrap();
        };
        ends_with(1, late).join().unwrap();
        let late = told.recv().unwrap();
        replace(100);
        assert_eq!((value.0, late.0, dropped.load(Ordering::Relaxed)), (7, 99, 0));
        // Other threads can still read, and threads come and go.
        thread::spawn(move || assert_eq!(cell.load(&pin()).unwrap().0, 99)).join().unwrap();
    });
}

#[test]
fn a_panicking_destructor_does_not_keep_other_values_from_being_dropped() {
    struct Panics(Option<Arc<AtomicUsize>>);
    impl Drop for Panics {
        fn drop(&mut self) {
            match self.0.take() {
                Some(dropped) => _ = dropped.fetch_add(1, Ordering::Relaxed),
                None => panic!("a destructor's"),
            }
        }
    }
    alone("a_panicking_destructor_does_not_keep_other_values_from_being_dropped", || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let cell = RcuCell::new();
        let outer = pin();
        for n in 0..10 {
            let guard = pin();
            assert!(cell.replace(cell.load(&guard), Panics((n != 5).then(|| dropped.clone())), &guard));
        }
        cell.clear(&outer);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(outer)));
        assert_eq!(result.is_ok(), cfg!(feature = "std"), "with `std`, a destructor's panic is caught");
        until_dropped(&dropped, 9);
    });
}
