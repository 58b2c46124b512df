//! The embedder's read side, on a small embedder in user space whose requests the test answers.
//!
//! A program has one embedder, so this is a process of its own, with a single test: other tests
//! would retire objects, too. `ci/features.sh` runs it.

#![cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]

use lowwater_base::cpu;
use lowwater_base::embedder::{self, __lock_api as lock_api, Lock};
use lowwater_base::sync::UnsafeCell;
use lowwater_rcu::{pin, readers_left, start_poll, waiting, Retired, RetiredKind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// A spin lock.
struct Spin(AtomicBool);

// SAFETY: `false` is a zero byte, and the lock has no destructor. The store that releases it is the
// last access of `unlock`.
unsafe impl Lock for Spin {}

// SAFETY: of all threads that find `false`, one exchanges it for `true`, and is the owner until
// `unlock`.
unsafe impl lock_api::RawMutex for Spin {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {}
    }

    fn try_lock(&self) -> bool {
        // `SeqCst`, as at each access here: more than the lock and the counts need.
        !self.0.swap(true, SeqCst)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}

/// The number of threads inside the read side.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// The number of open requests.
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

/// Has the name of its trait, as [`Processor`] has: `embedder!` must name neither.
struct ReadSide;

// SAFETY: a request is answered only by `answer`, and only while no reader is inside.
unsafe impl embedder::ReadSide for ReadSide {
    fn enter() {
        READERS.fetch_add(1, SeqCst);
    }

    unsafe fn leave() {
        READERS.fetch_sub(1, SeqCst);
    }

    unsafe fn after_readers() {
        REQUESTS.fetch_add(1, SeqCst);
    }
}

struct Processor;

impl embedder::Processor for Processor {
    fn current() -> usize {
        0
    }

    fn count() -> usize {
        3
    }
}

lowwater_base::embedder! { lock: Spin, read: ReadSide, processor: Processor }

/// Answers the open request.
fn answer() {
    assert_eq!((REQUESTS.fetch_sub(1, SeqCst), READERS.load(SeqCst)), (1, 0));
    // SAFETY: no reader is inside, and there was one open request.
    unsafe { readers_left() };
}

/// The result of `waiting` inside the last destructor.
static SEEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// An object. Its destructor retires one with `below` less one, unless that is 0.
struct Object {
    link: UnsafeCell<*mut Self>,
    below: usize,
}

// SAFETY: only the queue that owns the object uses the link.
unsafe impl Send for Object {}

// SAFETY: `kind` returns one static, and no other code uses the link.
unsafe impl Retired for Object {
    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<Object>();
        &KIND
    }

    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.link
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        SEEN.store(waiting(), SeqCst);
        if self.below > 0 {
            retire(self.below - 1);
        }
    }
}

fn retire(below: usize) {
    let object = Box::into_raw(Box::new(Object { link: UnsafeCell::new(ptr::null_mut()), below }));
    // SAFETY: the object came from a box, no reader has a pointer to it, and it is retired once.
    unsafe { pin().retire(object) };
}

#[test]
fn waiting_is_zero_only_when_no_request_is_open_and_no_object_is_freed() {
    assert_eq!((cpu::current(), cpu::count(), cpu::allowed()), (Some(0), 3, 3), "the embedder's");
    assert_eq!(waiting(), 0);
    retire(1);
    assert_eq!((waiting(), REQUESTS.load(SeqCst)), (1, 1));
    answer();
    // The destructor ran while its object still counted, and retired another object.
    assert_eq!((SEEN.load(SeqCst), waiting(), REQUESTS.load(SeqCst)), (1, 1, 1));
    answer();
    assert_eq!((SEEN.load(SeqCst), waiting(), REQUESTS.load(SeqCst)), (1, 0, 0));

    // A grace period without objects, and one that begins while the first is open.
    let first = start_poll();
    assert_eq!((waiting(), REQUESTS.load(SeqCst)), (1, 1), "the request of a grace period is open");
    let second = start_poll();
    answer();
    assert!(first.poll() && !second.poll());
    assert_eq!((waiting(), REQUESTS.load(SeqCst)), (1, 1));
    answer();
    assert!(second.poll());
    assert_eq!((waiting(), REQUESTS.load(SeqCst)), (0, 0));
}
