//! The embedder's read side, with one process-wide set of retired objects.
//!
//! Retired objects wait in two batches. For one of them a grace period has been requested from the
//! embedder: when the embedder reports that the readers have left, this batch is freed, and the
//! other batch takes its place. So at most one request is open at a time, however many objects are
//! retired, and retiring needs no memory.
//!
//! # Orderings
//!
//! None of its own: [`ReadSide`](crate::embedder::ReadSide) guarantees them, and the lock orders
//! the threads that retire.
//!
//! A change must ensure that no object is freed before a grace period that was requested after it
//! became unreachable.

use crate::embedder::hooks;
use crate::queue::Queues;
use crate::retired::Retired;
use crate::sync::Mutex;
use core::marker::PhantomData;

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    requested: Queues::new(),
    next: Queues::new(),
    is_requested: false,
    freeing: 0,
    answers: 0,
    answers_wanted: 0,
});

/// The retired objects.
struct Waiting {
    /// The batch that was unreachable before the open request was made.
    requested: Queues,
    /// The batch for the next request.
    next: Queues,
    /// Whether a request is open.
    is_requested: bool,
    /// The number of objects that calls of [`readers_left`] are freeing.
    freeing: usize,
    /// The number of requests that were answered.
    answers: u64,
    /// The number of answers at which the latest grace period is over.
    answers_wanted: u64,
}

impl Waiting {
    /// Turns the next batch into a request, if there is a reason for one. Returns whether the
    /// caller must make the request.
    fn next_request(&mut self) -> bool {
        self.is_requested = self.next.len() != 0 || self.answers < self.answers_wanted;
        if self.is_requested {
            self.requested = self.next.take();
        }
        self.is_requested
    }
}

/// Proof that the thread is inside the read side.
pub(crate) struct Guard(PhantomData<*const ()>);

/// Enters the read side.
#[inline]
pub(crate) fn pin() -> Guard {
    hooks::__lowwater_enter();
    Guard(PhantomData)
}

/// Enters the read side; never `None`.
#[inline]
pub(crate) fn try_pin() -> Option<Guard> {
    Some(pin())
}

/// A cookie for a grace period: the number of answers at which it is over.
#[derive(Clone, Debug)]
pub struct GracePeriod(u64);

/// Starts a grace period. An object may be freed once [`poll`](GracePeriod::poll) returns true if
/// it was made unreachable before this call, inside the read side, by this thread or under a lock
/// that this thread took since. O(1), takes a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let mut waiting = WAITING.lock();
    // An open request may have been made before this call, so it need not cover the grace period;
    // the one after it does.
    let stamp = waiting.answers + 1 + u64::from(waiting.is_requested);
    waiting.answers_wanted = waiting.answers_wanted.max(stamp);
    let must_request = !waiting.is_requested && waiting.next_request();
    drop(waiting);
    if must_request {
        // SAFETY: `next_request` returned true, which it does for one caller while no request is
        // open.
        unsafe { hooks::__lowwater_after_readers() };
    }
    GracePeriod(stamp)
}

impl GracePeriod {
    /// Returns whether [`poll`](Self::poll) can be called without a fence on every processor.
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Returns true only if all readers that were inside when the grace period started have left.
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        WAITING.lock().answers >= self.0
    }
}

/// Does nothing: the embedder's grace periods free retired objects.
#[doc(alias = "rcu_barrier")]
pub fn flush() {}

/// Answers the open request: makes the next one, if objects or a grace period wait for it, and
/// frees the batch of the answered one. The embedder must call this once for each
/// [`after_readers`](crate::embedder::ReadSide::after_readers), from a context where memory may be
/// freed.
///
/// # Safety
///
/// Every reader that was inside when `after_readers` was called has left.
pub unsafe fn readers_left() {
    let mut waiting = WAITING.lock();
    let gone = waiting.requested.take();
    waiting.answers += 1;
    let _freeing = Freeing(gone.len());
    waiting.freeing += gone.len();
    let again = waiting.next_request();
    drop(waiting);
    if again {
        // SAFETY: `next_request` returned true, which it does for one caller while no request is
        // open.
        unsafe { hooks::__lowwater_after_readers() };
    }
    // SAFETY: the batch was unreachable when the request was made, and all readers from before have
    // left (this function's clause).
    unsafe { gone.free() };
}

/// Objects that a call of [`readers_left`] is freeing; dropped, also by a panic, when they are
/// freed.
struct Freeing(usize);

impl Drop for Freeing {
    fn drop(&mut self) {
        WAITING.lock().freeing -= self.0;
    }
}

/// Returns the number of objects that wait for a grace period or that a running [`readers_left`] is
/// freeing; at least 1 while a request is open. An embedder that shuts down calls this after it has
/// dropped its last list, and waits until the result is 0, and then until the last `readers_left`
/// has returned: no request follows.
pub fn waiting() -> usize {
    let waiting = WAITING.lock();
    let objects = waiting.requested.len() + waiting.next.len() + waiting.freeing;
    objects.max(usize::from(waiting.is_requested))
}

impl Guard {
    /// Frees `ptr` once every reader that may have seen it has left. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` is an object that [`Retired::free`] can free, is unreachable for readers that pin from
    /// now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut waiting = WAITING.lock();
        // SAFETY: the object is retired (this function's clause).
        unsafe { waiting.next.push(ptr) };
        let must_request = !waiting.is_requested && waiting.next_request();
        drop(waiting);
        if must_request {
            // SAFETY: `next_request` returned true, which it does for one caller while no request
            // is open.
            unsafe { hooks::__lowwater_after_readers() };
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard entered the read side in `pin`, and is dropped once.
        unsafe { hooks::__lowwater_leave() };
    }
}
