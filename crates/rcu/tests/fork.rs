//! Behaviour in the child of a fork, as documented at `pin`. Each test runs in a process of its own
//! (`alone`), so that no thread of another test is inside at the fork.
//!
//! A change of what `pin` promises after a fork is tested here first.
#![cfg(all(target_os = "linux", feature = "std", not(any(lowwater_loom, lowwater_epoch, miri))))]

mod alone;

use alone::{alone, for_ever};
use lowwater_rcu::{pin, RcuCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Forks, runs `child` in the child process, and panics unless it returns true within half of
/// `PATIENCE`: before `alone` stops waiting for this process.
fn in_child(child: impl FnOnce() -> bool) {
    // SAFETY: the child calls nothing that waits for a lock of another thread: glibc's allocator
    // handles forks itself, and the other calls are the subject of these tests.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: `_exit` has no precondition.
        unsafe { libc::_exit(if matches!(result, Ok(true)) { 0 } else { 1 }) };
    }
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the duration of the call.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            assert_eq!(status, 0, "the child found something wrong");
            return;
        }
        if begin.elapsed() > alone::PATIENCE / 2 {
            // SAFETY: `pid` is our child, which was not waited for, so the id is not reused.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

struct Counted(u32, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0 = u32::MAX;
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn put(cell: &RcuCell<Counted>, value: u32, dropped: &Arc<AtomicUsize>) {
    let guard = pin();
    assert!(cell.replace(cell.load(&guard), Counted(value, dropped.clone()), &guard));
}

fn made() -> (&'static RcuCell<Counted>, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let cell = for_ever(RcuCell::new());
    put(cell, 0, &dropped);
    (cell, dropped)
}

#[test]
fn a_child_frees_memory_if_no_other_thread_was_inside_at_the_fork() {
    alone("a_child_frees_memory_if_no_other_thread_was_inside_at_the_fork", || {
        let (cell, dropped) = made();
        // A thread that is registered, and outside at the fork.
        let (end, ended) = channel::<()>();
        let (tell, told) = channel();
        let other = thread::spawn(move || {
            drop(pin());
            tell.send(()).unwrap();
            _ = ended.recv();
        });
        told.recv().unwrap();
        let guard = pin();
        in_child(|| {
            let seen = cell.load(&guard).unwrap();
            (1..10).for_each(|n| put(cell, n, &dropped));
            let was_kept = seen.0 == 0 && dropped.load(Ordering::Relaxed) == 0;
            // The guard from before the fork still belongs to this thread: its drop frees the
            // values 0 to 8, and the next replacement frees 9.
            drop(guard);
            put(cell, 10, &dropped);
            let is_freed = dropped.load(Ordering::Relaxed) == 10;
            // Threads created in the child are ordinary readers.
            let seen_there = thread::spawn(move || cell.load(&pin()).unwrap().0).join().unwrap();
            was_kept && is_freed && seen_there == 10
        });
        put(cell, 1, &dropped);
        drop(end);
        other.join().unwrap();
    });
}

#[test]
fn a_reader_inside_at_the_fork_stays_inside_in_the_child() {
    alone("a_reader_inside_at_the_fork_stays_inside_in_the_child", || {
        let (cell, dropped) = made();
        let (end, ended) = channel::<()>();
        let (tell, told) = channel();
        let other = thread::spawn(move || {
            let guard = pin();
            // The leaked guard makes the reference `'static`, so that this thread can lend it to
            // the thread that forks.
            tell.send(cell.load(for_ever(pin())).unwrap()).unwrap();
            _ = ended.recv();
            drop(guard);
        });
        let lent = told.recv().unwrap();
        in_child(|| {
            (1..200).for_each(|n| put(cell, n, &dropped));
            dropped.load(Ordering::Relaxed) == 0 && lent.0 == 0 && cell.load(&pin()).unwrap().0 == 199
        });
        drop(end);
        other.join().unwrap();
    });
}

/// A thread that pinned before the fork may pin and load in the child, even if the fork interrupted
/// other threads inside calls of the library: a pin and a load take no lock.
#[test]
fn a_child_may_pin_and_load_whatever_the_fork_interrupted() {
    alone("a_child_may_pin_and_load_whatever_the_fork_interrupted", || {
        let (cell, dropped) = made();
        let (busy, others_dropped) = made();
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let guard = pin();
                        let _faster = busy.replace(busy.load(&guard), Counted(1, others_dropped.clone()), &guard);
                    }
                });
            }
            for _ in 0..50 {
                in_child(|| (0..1_000).all(|_| cell.load(&pin()).unwrap().0 == 0 && busy.load(&pin()).unwrap().0 < 2));
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(dropped);
    });
}
