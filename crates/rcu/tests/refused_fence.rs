//! A filter of system calls that refuses `membarrier`, installed when the read side already relies
//! on it; in the last test, before the first pin.
//!
//! Servers install such a filter when they drop their rights. After that the library goes on
//! freeing memory by visits of all processors, or counts the refusal (`heavy_fences`).
//!
//! A change must ensure that each test installs its filter in a process of its own, since a filter
//! cannot be removed.
#![forbid(unsafe_code)]
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    feature = "std",
    not(any(lowwater_loom, lowwater_epoch, miri))
))]

mod alone;

use alone::alone;
use lowwater_rcu::{flush, heavy_fences, pin, RcuCell};
use seccompiler::{apply_filter_all_threads, BpfProgram, SeccompAction, SeccompFilter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Refuses these system calls from now on, in all threads.
fn refuse(calls: &[libc::c_long]) {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter_all_threads(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

struct Counted(usize, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0 = usize::MAX;
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn put(cell: &RcuCell<Counted>, value: usize, dropped: &Arc<AtomicUsize>) {
    let guard = pin();
    assert!(cell.replace(cell.load(&guard), Counted(value, dropped.clone()), &guard));
}

/// Replaces the value repeatedly, until all but fewer than 100 values were dropped, which shows
/// that memory is bounded: a visit delays the frees of the values that are replaced meanwhile.
/// Fails after a third of `PATIENCE`, as a test has up to two such waits before `alone` stops
/// waiting for it.
fn replace_until_dropped(cell: &RcuCell<Counted>, dropped: &Arc<AtomicUsize>) {
    let begin = Instant::now();
    let before = dropped.load(Ordering::Relaxed);
    for n in 0.. {
        put(cell, n, dropped);
        let freed = dropped.load(Ordering::Relaxed) - before;
        if n > 200 && freed > n - 100 {
            break;
        }
        // A visit of many busy processors takes long, and only few values are to be replaced
        // meanwhile: with 50 waiting, none until the next visit.
        let visited = heavy_fences().visited;
        loop {
            let freed = dropped.load(Ordering::Relaxed) - before;
            assert!(begin.elapsed() < alone::PATIENCE / 3, "{freed} of {n} are dropped: {:?}", heavy_fences());
            thread::sleep(Duration::from_micros(100));
            if n.saturating_sub(freed) < 50 || heavy_fences().visited > visited {
                break;
            }
            flush();
        }
    }
}

#[test]
fn a_late_filter_of_membarrier_delays_no_frees() {
    alone("a_late_filter_of_membarrier_delays_no_frees", || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let cell = RcuCell::new();
        put(&cell, 0, &dropped);
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        let guard = pin();
                        let value = cell.load(&guard).unwrap();
                        for _ in 0..50 {
                            assert!(value.0 >= last && value.0 != usize::MAX, "it is not freed under its reader");
                        }
                        last = value.0;
                    }
                });
            }
            // A thread that was inside once, and then is outside for long.
            s.spawn(|| {
                drop(pin());
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let _done = Done(&done);
            put(&cell, 0, &dropped);
            assert_eq!(heavy_fences(), Default::default());
            refuse(&[libc::SYS_membarrier]);
            replace_until_dropped(&cell, &dropped);
            assert!(heavy_fences().visited > 0);

            // A reader that stays inside holds back the values it may have seen, and no later ones.
            put(&cell, usize::MAX / 2, &dropped);
            let guard = pin();
            let before = dropped.load(Ordering::Relaxed);
            let seen = cell.load(&guard).unwrap();
            let until = heavy_fences().visited + 5;
            let begin = Instant::now();
            while heavy_fences().visited < until {
                thread::scope(|s| _ = s.spawn(|| put(&cell, usize::MAX / 2, &dropped)));
                assert!(begin.elapsed() < alone::PATIENCE / 3);
            }
            assert_eq!(seen.0, usize::MAX / 2);
            // Fewer than 100 values waited when `replace_until_dropped` returned.
            assert!(dropped.load(Ordering::Relaxed) - before < 200, "only values of before the pin may be dropped");
            drop(guard);
        });
    });
}

/// Ends the threads of a scope, also if the test panics.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The replacement of `membarrier` is refused, too.
fn nothing_is_freed_and_heavy_fences_counts_it(also: &[libc::c_long]) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let cell = RcuCell::new();
    put(&cell, 0, &dropped);
    refuse(&[&[libc::SYS_membarrier], also].concat());
    let guard = pin();
    let seen = cell.load(&guard).unwrap();
    for n in 0..200 {
        put(&cell, n, &dropped);
        thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(seen.0, 0);
    drop(guard);
    let begin = Instant::now();
    while heavy_fences().refused < 10 {
        put(&cell, 200, &dropped);
        assert!(begin.elapsed() < alone::PATIENCE / 3);
    }
    let fences = heavy_fences();
    assert_eq!((fences.visited, dropped.load(Ordering::Relaxed)), (0, 0), "without a fence nothing is freed");
    assert_eq!(cell.load(&pin()).unwrap().0, 200);
}

#[test]
fn without_sched_setaffinity_nothing_is_freed_and_refusals_are_counted() {
    alone("without_sched_setaffinity_nothing_is_freed_and_refusals_are_counted", || {
        nothing_is_freed_and_heavy_fences_counts_it(&[libc::SYS_sched_setaffinity])
    });
}

#[test]
fn without_sched_getaffinity_nothing_is_freed_and_refusals_are_counted() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer makes no thread without that call");
    }
    alone("without_sched_getaffinity_nothing_is_freed_and_refusals_are_counted", || {
        nothing_is_freed_and_heavy_fences_counts_it(&[libc::SYS_sched_getaffinity]);
    });
}

#[test]
fn without_a_visitor_thread_nothing_is_freed_and_refusals_are_counted() {
    alone("without_a_visitor_thread_nothing_is_freed_and_refusals_are_counted", || {
        nothing_is_freed_and_heavy_fences_counts_it(&[libc::SYS_clone, libc::SYS_clone3]);
    });
}

#[test]
fn an_early_filter_of_membarrier_makes_readers_execute_fences() {
    alone("an_early_filter_of_membarrier_makes_readers_execute_fences", || {
        refuse(&[libc::SYS_membarrier]);
        let (cell, dropped) = (RcuCell::new(), Arc::default());
        for n in 0..100 {
            put(&cell, n, &dropped);
        }
        // Readers execute the fence, so each replaced value is dropped at once.
        assert_eq!((dropped.load(Ordering::Relaxed), heavy_fences()), (99, Default::default()));
    });
}
