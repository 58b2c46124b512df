//! The embedder's read side, and one place for what waits to be freed.
//!
//! What is retired waits in two sets. One is what the embedder was asked about: when it says that the readers have left, that is
//! freed, and the other takes its place. So the embedder is asked one question at a time, however much is retired, and no
//! memory is needed to retire.
//!
//! # Orderings
//!
//! None of our own: [`ReadSide`](crate::embedder::ReadSide) promises them, and the lock orders those who retire.

use crate::embedder::hooks;
use crate::queue::Queues;
use crate::retired::Retired;
use crate::sync::Mutex;
use core::marker::PhantomData;

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { asked: Queues::new(), next: Queues::new(), is_asked: false, answers: 0, wanted: 0 });

/// What was retired.
struct Waiting {
    /// Unreachable since before the embedder was asked.
    asked: Queues,
    /// For the next question.
    next: Queues,
    /// Is there a question that has not been answered?
    is_asked: bool,
    /// Questions that were answered.
    answers: u64,
    /// ... and as many must be before the last stamp is past.
    wanted: u64,
}

impl Waiting {
    /// Makes the next question, if there is something to ask about.
    fn turn(&mut self) -> bool {
        self.is_asked = self.next.len() != 0 || self.answers < self.wanted;
        if self.is_asked {
            self.asked = self.next.take();
        }
        self.is_asked
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

/// A moment, after which readers are waited for: so many answers.
#[derive(Clone, Debug)]
pub struct GracePeriod(u64);

/// Starts a grace period. What was made unreachable before this call, inside the read side, by this thread or under a lock that it
/// took since, may be freed once [`poll`](GracePeriod::poll) returns true. O(1), a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let mut waiting = WAITING.lock();
    // A question that is under way may have been asked before; the one after it was not.
    let stamp = waiting.answers + 1 + u64::from(waiting.is_asked);
    waiting.wanted = waiting.wanted.max(stamp);
    let ask = !waiting.is_asked && waiting.turn();
    drop(waiting);
    if ask {
        // SAFETY: `turn` returned true, which it does for one caller while no question is open.
        unsafe { hooks::__lowwater_after_readers() };
    }
    GracePeriod(stamp)
}

impl GracePeriod {
    /// Can [`poll`](Self::poll) be asked without a fence on every processor?
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Has every reader left that was inside then?
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        WAITING.lock().answers >= self.0
    }
}

/// Frees what can be freed: the embedder's grace periods do that.
#[doc(alias = "rcu_barrier")]
pub fn flush() {}

/// Frees what waited for the readers that the embedder was asked about. To be called by the embedder, once for each
/// [`after_readers`](crate::embedder::ReadSide::after_readers), from where memory may be freed.
///
/// # Safety
///
/// Every reader that was inside when `after_readers` was called has left.
pub unsafe fn readers_left() {
    let mut waiting = WAITING.lock();
    let gone = waiting.asked.take();
    waiting.answers += 1;
    let again = waiting.turn();
    drop(waiting);
    if again {
        // SAFETY: `turn` returned true, which it does for one caller while no question is open.
        unsafe { hooks::__lowwater_after_readers() };
    }
    // SAFETY: it was unreachable when the embedder was asked, and all readers from before have left, says the caller.
    unsafe { gone.free() };
}

/// How many things wait to be freed. An embedder that goes away asks this after its last list has gone, and waits for
/// [`readers_left`] until it is 0.
pub fn waiting() -> usize {
    let waiting = WAITING.lock();
    waiting.asked.len() + waiting.next.len()
}

impl Guard {
    /// Frees what is behind `ptr` once every reader that may have seen it is gone. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` is what [`Retired::free`] frees, is unreachable for readers that pin from now on, and is
    /// retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut waiting = WAITING.lock();
        // SAFETY: it is retired, says the caller.
        unsafe { waiting.next.push(ptr) };
        let ask = !waiting.is_asked && waiting.turn();
        drop(waiting);
        if ask {
            // SAFETY: `turn` returned true, which it does for one caller while no question is open.
            unsafe { hooks::__lowwater_after_readers() };
        }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard entered, and is dropped once.
        unsafe { hooks::__lowwater_leave() };
    }
}
