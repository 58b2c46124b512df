//! The embedder's read side, and one place for what waits to be freed.
//!
//! What is retired waits in two sets. One is what the embedder was asked about: when it says that the readers have left, that is
//! freed, and the other takes its place. So the embedder is asked one question at a time, however much is retired, and no
//! memory is needed to retire.
//!
//! # Orderings
//!
//! None of our own: [`ReadSide`](crate::embedder::ReadSide) promises them, and the lock orders those who retire.

use super::{Queues, Retired};
use crate::embedder::hooks;
use crate::sync::Mutex;
use core::marker::PhantomData;

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { asked: Queues::new(), next: Queues::new(), is_asked: false });

/// What was retired.
struct Waiting {
    /// Unreachable since before the embedder was asked.
    asked: Queues,
    /// For the next question.
    next: Queues,
    /// Is there a question that has not been answered?
    is_asked: bool,
}

impl Waiting {
    /// Makes the next question, if there is something to ask about.
    fn turn(&mut self) -> bool {
        self.is_asked = self.next.len() != 0;
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

/// Frees what can be freed: the embedder's grace periods do that.
pub(crate) fn flush() {}

/// Frees what waited for the readers that the embedder was asked about. To be called by the embedder, once for each
/// [`after_readers`](crate::embedder::ReadSide::after_readers), from where memory may be freed.
///
/// # Safety
///
/// Every reader that was inside when `after_readers` was called has left.
pub unsafe fn readers_left() {
    let mut waiting = WAITING.lock();
    let gone = waiting.asked.take();
    let again = waiting.turn();
    drop(waiting);
    if again {
        hooks::__lowwater_after_readers();
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
    /// Frees the box behind `ptr` once every reader that may have seen it is gone. Needs no memory.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Box::into_raw`](alloc::boxed::Box::into_raw), is unreachable for readers that pin from now on, and is
    /// retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let mut waiting = WAITING.lock();
        // SAFETY: it came from a box and is retired, says the caller.
        unsafe { T::queue(&mut waiting.next).push(ptr) };
        let ask = !waiting.is_asked && waiting.turn();
        drop(waiting);
        if ask {
            hooks::__lowwater_after_readers();
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
