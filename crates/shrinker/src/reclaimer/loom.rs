//! Model checks of the queue: no wake-up is lost.
//!
//! A `fails_with_` test repeats a check without one fence or step, and must fail.

use super::*;
use ::loom::thread;
use alloc::sync::Arc;
use lowwater_base::sync::with_mutant;
use lowwater_lru_core::MemcgTree;

/// Two charges request reclaim, one after the other; the thread serves a request and may sleep
/// again, but never while there is usage that it has not seen.
fn charge_meets_thread() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let wake = Arc::new(WakeQueue::default());
        let (usage, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (wake, usage, seen) = (Arc::clone(&wake), Arc::clone(&usage), Arc::clone(&seen));
            thread::spawn(move || {
                while wake.take().is_some() {
                    // Relaxed, on purpose: the queue's fences must provide the ordering.
                    seen.store(usage.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            })
        };
        for _ in 0..2 {
            usage.fetch_add(1, Ordering::Relaxed);
            wake.request(tree.root(), ReclaimReason::Watermark, ByteSize::ZERO);
        }
        // If nothing is queued, the thread has taken all requests, and must have seen all usage.
        let state = wake.state.lock();
        let idle = state.requests.is_empty();
        drop(state);
        wake.stop();
        thread.join().unwrap();
        assert!(!idle || seen.load(Ordering::Relaxed) == 2, "a wake-up is lost");
    });
}

#[test]
fn no_wake_up_is_lost() {
    charge_meets_thread();
}

#[test]
#[should_panic = "a wake-up is lost"]
fn fails_with_wake_without_fence() {
    with_mutant("wake_without_fence", charge_meets_thread);
}

#[test]
#[should_panic = "a wake-up is lost"]
fn fails_with_take_without_fence() {
    with_mutant("take_without_fence", charge_meets_thread);
}

/// A thread waits, or is about to wait; the first request wakes it.
fn request_meets_sleeper() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let wake = Arc::new(WakeQueue::default());
        let thread = {
            let wake = Arc::clone(&wake);
            thread::spawn(move || {
                // Twice: it waits again with nothing left of the first time.
                for _ in 0..2 {
                    assert!(wake.take().is_some_and(|requests| !requests.is_empty()));
                }
            })
        };
        for bytes in [1, 2] {
            wake.request(tree.root(), ReclaimReason::Manual(ByteSize::new(bytes)), ByteSize::ZERO);
            while !wake.state.lock().requests.is_empty() {
                ::loom::thread::yield_now();
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_waiting_reclaimer_is_woken() {
    request_meets_sleeper();
}

/// The panic is loom's: the thread waits for ever.
#[test]
#[should_panic]
fn fails_with_rouse_nobody() {
    with_mutant("rouse_nobody", request_meets_sleeper);
}
