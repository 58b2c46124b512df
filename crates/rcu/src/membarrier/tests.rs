//! Tests of the process-wide domain: threads that start and end, guards, strays, grace periods and
//! collections. All tests share one domain, so the readers of concurrent tests may hold back what a
//! test retired: tests that wait for a free repeat `flush`.
//!
//! A test must not assume that it is alone, and must leave no guard.

use super::*;
use crate::queue::thing::Thing;
use crate::queue::Queues;
use crate::retired::RetiredKind;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, UnsafeCell};
use core::time::Duration;
use std::time::Instant;

fn retire(freed: &Arc<AtomicUsize>) {
    let thing = Box::into_raw(Box::new(Thing::new(freed.clone())));
    // SAFETY: the object came from a box, and no reader has a pointer to it.
    unsafe { pin().retire(thing) };
}

/// The longest wait. It only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Flushes until `count` objects are freed: readers of other tests may hold them back.
fn flush_until_freed(freed: &AtomicUsize, count: usize) {
    let begin = Instant::now();
    while freed.load(Ordering::Relaxed) != count {
        assert!(begin.elapsed() < PATIENCE, "{freed:?} of {count} objects were freed");
        flush();
    }
}

#[test]
fn a_reader_enters_in_few_instructions_only_from_outside() {
    std::thread::spawn(|| {
        assert!(try_pin().is_none(), "the thread has no local epoch yet");
        drop(pin());
        let first = try_pin();
        let is_fenced = DOMAIN.participants.lock().fenced == Some(true);
        assert_eq!(first.is_none(), is_fenced, "outside, it enters unless it must execute a fence");
        let first = first.unwrap_or_else(pin);
        assert!(try_pin().is_none(), "it is inside, and still is after the failure");
        let second = pin();
        drop(first);
        assert!(try_pin().is_none());
        drop(second);
    })
    .join()
    .unwrap();
}

#[test]
fn nothing_is_freed_while_an_earlier_reader_is_inside() {
    let freed = Arc::new(AtomicUsize::new(0));
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let outer = pin();
        drop(pin());
        tell.send(()).unwrap();
        ended.recv().unwrap();
        drop(outer);
    });
    told.recv().unwrap();
    (0..2 * BATCH).for_each(|_| retire(&freed));
    flush();
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    end.send(()).unwrap();
    reader.join().unwrap();
    flush_until_freed(&freed, 2 * BATCH);
}

#[test]
fn retiring_threads_free_earlier_retired_objects() {
    let freed = Arc::new(AtomicUsize::new(0));
    // Without a flush: a retire triggers a collection once a batch is full. Readers of other tests
    // may hold back what it collects.
    let begin = Instant::now();
    while freed.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing is freed");
        (0..BATCH).for_each(|_| retire(&freed));
        // A thread that was preempted inside the read side must run first.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thread_may_pin_in_its_last_destructors() {
    struct Last(Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            retire(&self.0);
        }
    }
    std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
    let freed = Arc::new(AtomicUsize::new(0));
    let theirs = freed.clone();
    std::thread::spawn(move || {
        LAST.set(Some(Last(theirs)));
        // Initializes `END` after `LAST`. Thread-locals are destroyed in reverse order, so `Last`
        // pins after `END` has unregistered the local epoch.
        drop(pin());
    })
    .join()
    .unwrap();
    flush_until_freed(&freed, 1);
}

/// A stray, a reader without a local epoch, holds back all retired objects.
#[test]
fn a_stray_reader_holds_back_all_retired_objects() {
    struct Last(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let guard = pin();
            assert!(is_stray(guard.local), "its local was taken back before");
            drop(pin());
            self.0.take().unwrap()();
            drop(guard);
        }
    }
    std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
    let freed = Arc::new(AtomicUsize::new(0));
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let inside = move || {
        tell.send(()).unwrap();
        ended.recv().unwrap();
    };
    let reader = std::thread::spawn(move || {
        LAST.set(Some(Last(Some(Box::new(inside)))));
        drop(pin()); // Initializes `END` after `LAST`, so that `END` is destroyed first.
    });
    told.recv().unwrap();
    retire(&freed);
    flush();
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    end.send(()).unwrap();
    reader.join().unwrap();
    flush_until_freed(&freed, 1);
}

/// Leaks 2^n - 1 guards for each n from 8 to 60, where a guard count of n bits would overflow with
/// the next pin: the reader stays inside, and no flag in the count's word changes.
#[test]
fn leaked_guards_never_overflow_the_guard_count() {
    for fenced in [false, true] {
        let (global, local) = (GlobalEpoch::new(), LocalEpoch::new(fenced));
        local.enter(&global);
        let stamp = global.stamp();
        global.advance(stamp);
        let mut depth = 1;
        for bit in 8..61 {
            let leaked = (1 << bit) - 1 - depth;
            local.leak(leaked);
            depth += leaked;
            for _ in 0..2 {
                local.enter(&global);
                assert!(!local.is_quiescent_since(stamp), "2^{bit} guards are a reader");
            }
            for _ in 0..2 {
                assert!(!local.leave());
                let duties = local.leave_further();
                assert!(!duties.collect_pending && !duties.unregister && !local.is_quiescent_since(stamp));
            }
        }
        assert!(!local.end_thread() && !local.is_quiescent_since(stamp));
    }
}

/// The last guard of a thread that has ended unregisters the local epoch.
#[test]
fn the_last_guard_of_an_ended_thread_unregisters_its_epoch() {
    for fenced in [false, true] {
        let (global, local) = (GlobalEpoch::new(), LocalEpoch::new(fenced));
        (0..3).for_each(|_| local.enter(&global));
        local.set_collect_pending();
        let stamp = global.stamp();
        global.advance(stamp);
        assert!(!local.end_thread(), "it has guards");
        local.enter(&global);
        for guards in (0..4).rev() {
            assert!(!local.leave(), "there is more to do than to leave");
            let duties = local.leave_further();
            assert_eq!(
                (duties.collect_pending, duties.unregister, local.is_quiescent_since(stamp)),
                (guards == 0, guards == 0, guards == 0)
            );
        }
        let idle = LocalEpoch::new(fenced);
        idle.enter(&global);
        // With the flag `FENCED`, each guard takes the slow path of `leave`.
        assert!(idle.leave() != fenced && (!fenced || !idle.leave_further().unregister));
        assert!(idle.end_thread(), "it has none");
    }
}

#[test]
fn a_stamp_of_a_thread_that_ends_waits_for_its_guards() {
    struct Last(Option<Guard>, std::sync::mpsc::Sender<[bool; 4]>);
    impl Drop for Last {
        fn drop(&mut self) {
            let guard = self.0.take().unwrap();
            let inside = start_poll();
            let held = inside.poll();
            drop(guard);
            // That was the thread's last guard: it has unregistered the local epoch.
            let outside = start_poll();
            // A panic in a destructor of a thread-local would abort the process.
            let begin = Instant::now();
            let mut has_ended = false;
            while !has_ended && begin.elapsed() < PATIENCE {
                std::thread::yield_now();
                has_ended = outside.poll();
            }
            let stray = pin();
            let after = start_poll();
            self.1.send([held, has_ended, inside.poll(), after.poll()]).unwrap();
            drop(stray);
        }
    }
    std::thread_local! { static LAST: Cell<Option<Last>> = const { Cell::new(None) }; }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        LAST.set(None); // Initializes `LAST` before `END`, so that `END` is destroyed first.
        LAST.set(Some(Last(Some(pin()), tell)));
    })
    .join()
    .unwrap();
    let [held, has_ended, left, stray] = told.recv().unwrap();
    assert!(has_ended, "a grace period without readers does not end");
    // Strays have no epoch, only a count: a stray holds back all grace periods, also those that
    // started before its pin.
    assert!(!held && !left && !stray);
}

/// Queues new objects.
fn things(count: usize, freed: &Arc<AtomicUsize>) -> Queues {
    let mut queues = Queues::new();
    for _ in 0..count {
        let thing = Box::into_raw(Box::new(Thing::new(freed.clone())));
        // SAFETY: the object came from a box, and no other code has a pointer to it.
        unsafe { queues.push(thing) };
    }
    queues
}

/// `Garbage::put_back`: the earlier batch keeps its stamp, and the later one waits for a new stamp.
#[test]
fn objects_that_could_not_be_freed_keep_their_stamp() {
    let freed = Arc::new(AtomicUsize::new(0));
    let sealed = |count, stamp| Sealed { queues: things(count, &freed), stamp };
    let mut garbage = Garbage::new();
    let look = |garbage: &Garbage| {
        let sealed = garbage.sealed.as_ref().map(|sealed| (sealed.queues.len(), sealed.stamp));
        (garbage.queues.len(), sealed, garbage.due_at)
    };
    garbage.put_back(None, sealed(0, 3));
    assert_eq!(look(&garbage), (0, None, BATCH));
    garbage.put_back(None, sealed(100, 4));
    assert_eq!(look(&garbage), (0, Some((100, 4)), 100));
    let earlier = garbage.sealed.take();
    garbage.put_back(earlier, sealed(50, 5));
    assert_eq!(look(&garbage), (50, Some((100, 4)), 200));
    // Another collection has put its batch back meanwhile: one batch, with the later stamp.
    garbage.put_back(None, sealed(10, 6));
    assert_eq!(look(&garbage), (50, Some((110, 6)), 210));
    garbage.put_back(None, sealed(0, 5));
    assert_eq!(look(&garbage), (50, Some((110, 6)), 210));
    // SAFETY: no reader has a pointer to these objects.
    unsafe { garbage.queues.free() };
    // SAFETY: no reader has a pointer to these objects.
    unsafe { garbage.sealed.unwrap().queues.free() };
    assert_eq!(freed.load(Ordering::Relaxed), 160);
}

/// While a reader holds back what was retired, each replacement of a large object collects and puts
/// all of that back. It must not visit each object.
#[test]
fn objects_that_wait_are_put_back_without_a_visit_to_each() {
    static VISITS: AtomicUsize = AtomicUsize::new(0);
    struct Counted(UnsafeCell<*mut Self>);
    // SAFETY: only the queue that owns the object uses the link.
    unsafe impl Send for Counted {}
    // SAFETY: `kind` returns one static, and no other code uses the link.
    unsafe impl Retired for Counted {
        fn kind() -> &'static RetiredKind {
            static KIND: RetiredKind = RetiredKind::of::<Counted>();
            &KIND
        }

        fn link(&self) -> &UnsafeCell<*mut Self> {
            VISITS.fetch_add(1, Ordering::Relaxed);
            &self.0
        }
    }
    const COUNT: usize = 1000;
    let mut garbage = Garbage::new();
    for stamp in 0..COUNT {
        // Each `push` is one visit.
        // SAFETY: the object comes from a box, and no other code has a pointer to it.
        unsafe { garbage.queues.push(Box::into_raw(Box::new(Counted(UnsafeCell::new(ptr::null_mut()))))) };
        let earlier = garbage.sealed.take();
        let later = Sealed { queues: garbage.queues.take(), stamp: stamp as u64 };
        garbage.put_back(earlier, later);
    }
    assert_eq!(garbage.queues.len() + garbage.sealed.as_ref().unwrap().queues.len(), COUNT);
    let visits = VISITS.load(Ordering::Relaxed);
    assert!(visits <= 4 * COUNT, "{visits} visits for {COUNT} objects");
    // SAFETY: no reader has a pointer to these objects.
    unsafe { garbage.queues.free() };
    // SAFETY: no reader has a pointer to these objects.
    unsafe { garbage.sealed.unwrap().queues.free() };
}

/// `Queues::append` to an empty, a shorter and a longer queue.
#[test]
fn appended_queues_have_all_objects() {
    let freed = Arc::new(AtomicUsize::new(0));
    for (here, there) in [(0, 0), (0, 5), (5, 0), (2, 5), (5, 2), (5, 5)] {
        let mut queues = things(here, &freed);
        queues.append(things(there, &freed));
        assert_eq!(queues.len(), here + there);
        let before = freed.load(Ordering::Relaxed);
        // SAFETY: no reader has a pointer to these objects.
        unsafe { queues.free() };
        assert_eq!(freed.load(Ordering::Relaxed), before + here + there);
    }
}
