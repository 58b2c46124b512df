//! Every interleaving of readers with a local epoch and of collections, with at most three
//! preemptions (`ci/loom.sh`).
//!
//! A `fails_with_` test repeats a check with one step of the protocol weakened, moved or left out,
//! and must fail.

use super::*;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{with_mutant, Mutex, UnsafeCell};
use alloc::sync::Arc;
use loom::thread;

/// Objects, of which one after the other is reachable; each is read under a local epoch, and
/// "freed" by a write.
struct World {
    global: GlobalEpoch,
    local: LocalEpoch,
    /// The index of the reachable object.
    place: AtomicUsize,
    /// Accessed only to let loom switch threads, which it does not do at a fence.
    turn: AtomicUsize,
    things: [UnsafeCell<u32>; 3],
    /// The lock under which the global epoch advances.
    next: Mutex<u64>,
    reached: Mutex<FencedUpTo>,
}

// SAFETY: none needed; loom checks each access to the cells, which is the purpose of the test.
unsafe impl Sync for World {}
// SAFETY: none needed; loom checks each access to the cells, which is the purpose of the test.
unsafe impl Send for World {}

fn world() -> Arc<World> {
    Arc::new(World {
        global: GlobalEpoch::new(),
        // Readers execute fences, as loom has no `membarrier`.
        local: LocalEpoch::new(true),
        place: AtomicUsize::new(0),
        turn: AtomicUsize::new(0),
        things: [UnsafeCell::new(0), UnsafeCell::new(0), UnsafeCell::new(0)],
        next: Mutex::new(BEGIN),
        reached: Mutex::new(FencedUpTo::new()),
    })
}

fn read(w: &World) {
    w.turn.fetch_add(1, Ordering::Relaxed);
    w.local.enter(&w.global);
    let thing = w.place.load(Ordering::Acquire);
    // SAFETY: none needed; loom reports a concurrent write.
    w.things[thing].with(|p| unsafe { *p });
    if !w.local.leave() {
        _ = w.local.leave_further();
    }
}

fn read_beside_advance() {
    let w = world();
    let reader = {
        let w = w.clone();
        thread::spawn(move || (0..2).for_each(|_| read(&w)))
    };
    w.place.store(1, Ordering::Release);
    // A constant instead of `stamp()`: an earlier load on this thread would hide interleavings from
    // loom.
    let stamp = BEGIN;
    w.global.advance(stamp);
    // loom does not switch threads at a fence; this access permits a switch.
    w.turn.fetch_add(1, Ordering::Relaxed);
    if !crate::mutated!("without_heavy_fence") {
        fence(Ordering::SeqCst);
    }
    if w.local.is_quiescent_since(stamp) {
        // SAFETY: none needed; loom reports a concurrent read.
        w.things[0].with_mut(|p| unsafe { *p = 1 });
    }
    reader.join().unwrap();
}

fn check() {
    crate::sync::model(read_beside_advance);
}

#[test]
fn an_object_is_freed_after_its_readers() {
    check();
}

#[test]
#[should_panic]
fn fails_with_without_light_fence() {
    with_mutant("without_light_fence", check);
}

#[test]
#[should_panic]
fn fails_with_without_heavy_fence() {
    with_mutant("without_heavy_fence", check);
}

#[test]
#[should_panic]
fn fails_with_leave_relaxed() {
    with_mutant("leave_relaxed", check);
}

#[test]
#[should_panic]
fn fails_with_time_relaxed() {
    with_mutant("time_relaxed", check);
}

/// Makes the current thing unreachable, and frees it if its grace period is over; several threads
/// may do so concurrently.
fn collection(w: &World) {
    let (thing, stamp) = {
        let mut next = w.next.lock();
        let (thing, stamp) = ((*next - BEGIN) as usize, *next);
        w.place.store(thing + 1, Ordering::Release);
        w.global.advance(stamp);
        *next += 1;
        (thing, stamp)
    };
    let heavy_fence = || {
        fence(Ordering::SeqCst);
        // Permits loom to switch threads between the fence and the check that relies on it.
        w.turn.fetch_add(1, Ordering::Relaxed);
        true
    };
    let mut reached = w.reached.lock();
    if reached.reach(stamp, &w.global, heavy_fence) && w.local.is_quiescent_since(stamp) {
        // SAFETY: none needed; loom reports a concurrent read.
        w.things[thing].with_mut(|p| unsafe { *p = 1 });
    }
}

/// Two collections, of which the second may use the first one's fence.
fn shared_fence() {
    let w = world();
    let (reader, other) = (w.clone(), w.clone());
    let reader = thread::spawn(move || read(&reader));
    let other = thread::spawn(move || collection(&other));
    collection(&w);
    reader.join().unwrap();
    other.join().unwrap();
}

#[test]
fn one_heavy_fence_serves_all_earlier_stamps() {
    crate::sync::model(shared_fence);
}

#[test]
#[should_panic]
fn fails_with_time_after_fence() {
    with_mutant("time_after_fence", || crate::sync::model(shared_fence));
}

/// A collection that leaves the fence to a third thread, which runs the fence without the lock. The
/// collection checks the local epochs if that fence has run.
fn fence_of_a_third() {
    let w = world();
    let (reader, visitor) = (w.clone(), w.clone());
    let reader = thread::spawn(move || read(&reader));
    let visitor = thread::spawn(move || {
        let w = visitor;
        let lock = w.reached.lock();
        let now = before_fence(&w.global);
        drop(lock);
        if !crate::mutated!("visit_without_fence") {
            fence(Ordering::SeqCst);
        }
        // Permits loom to switch threads between the fence and the check that relies on it.
        w.turn.fetch_add(1, Ordering::Relaxed);
        let now = if crate::mutated!("time_after_visit") { before_fence(&w.global) } else { now };
        w.reached.lock().complete(now);
    });
    w.place.store(1, Ordering::Release);
    let stamp = BEGIN;
    w.global.advance(stamp);
    let has_fence = w.reached.lock().has(stamp);
    if has_fence && w.local.is_quiescent_since(stamp) {
        // SAFETY: none needed; loom reports a concurrent read.
        w.things[0].with_mut(|p| unsafe { *p = 1 });
    }
    reader.join().unwrap();
    visitor.join().unwrap();
}

#[test]
fn a_third_threads_heavy_fence_serves_earlier_stamps() {
    crate::sync::model(fence_of_a_third);
}

#[test]
#[should_panic]
fn fails_with_time_after_visit() {
    with_mutant("time_after_visit", || crate::sync::model(fence_of_a_third));
}

#[test]
#[should_panic]
fn fails_with_visit_without_fence() {
    with_mutant("visit_without_fence", || crate::sync::model(fence_of_a_third));
}

#[test]
#[should_panic]
fn fails_for_a_third_thread_with_without_light_fence() {
    with_mutant("without_light_fence", || crate::sync::model(fence_of_a_third));
}
