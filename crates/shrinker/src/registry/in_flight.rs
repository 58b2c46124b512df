//! The threads inside one shrinker's callbacks, and the kill that admits no further threads.
//!
//! An atomic count with a flag would not tell whether the calling thread is inside already: such a
//! thread must not enter again, as it may hold the cache's locks. So the threads are in a short
//! list under a lock that is held for a few instructions, never while a callback runs.
//!
//! [`InFlight::kill_and_wait`] waits for the threads inside, not for a grace period: with no thread
//! inside it costs one lock. A thread inside a callback of any shrinker ([`CallbackScope`]) must
//! not wait: it would wait for itself, or for a thread that waits for it. Such a thread calls
//! [`InFlight::kill`], and the last thread to leave drops the end of the registration (`E`).
//!
//! The same lock guards the statistics: a thread that leaves adds its counts, once per visit, at
//! the cost of a few additions.
//!
//! # Invariants
//!
//! 1. Once [`InFlight::kill_and_wait`] has returned `Ok`, no thread is inside, and none is admitted
//!    (S14).
//! 2. Once [`InFlight::kill`] has returned, no thread is admitted. The end is dropped when no
//!    thread is inside.
//!
//! Numbers such as S14 are those of docs/INVARIANTS.md.

use alloc::{boxed::Box, vec::Vec};

#[cfg(any(feature = "std", lowwater_loom))]
use lowwater_base::sync::Condvar;
use lowwater_base::sync::Mutex;
use lowwater_base::{fallible, mutated};

use crate::callback::CallbackScope;
use crate::error::UnregisterError;
use crate::stats::VisitCounts;
use lowwater_base::thread_slot::ThreadId;

/// The callbacks of one shrinker that are in flight. `E` is the value whose drop ends the
/// registration; after a kill it is dropped when no callback is left.
#[doc(alias = "percpu_ref")]
#[doc(alias = "refcount")]
pub(crate) struct InFlight<E> {
    state: Mutex<InFlightState<E>>,
    /// Notified when the last thread leaves after a kill.
    #[cfg(any(feature = "std", lowwater_loom))]
    left: Condvar,
}

struct InFlightState<E> {
    killed: bool,
    inside: CallerSet,
    /// The sum over all visits of threads that have left.
    counted: VisitCounts,
    /// The end that a kill without a wait has left to the last thread inside.
    end: Option<E>,
}

impl<E> Default for InFlight<E> {
    fn default() -> Self {
        let state =
            InFlightState { killed: false, inside: CallerSet::default(), counted: VisitCounts::default(), end: None };
        Self {
            state: Mutex::new(state),
            #[cfg(any(feature = "std", lowwater_loom))]
            left: Condvar::default(),
        }
    }
}

/// The threads inside. Usually none, sometimes one, for which nothing is allocated: 10,000
/// shrinkers that were called once keep no memory for it.
#[derive(Default)]
struct CallerSet {
    one: Option<ThreadId>,
    #[expect(clippy::box_collection, reason = "one word instead of three, as a second thread is rare")]
    more: Option<Box<Vec<ThreadId>>>,
}

impl CallerSet {
    fn contains(&self, caller: &ThreadId) -> bool {
        self.one.as_ref() == Some(caller) || self.more.as_ref().is_some_and(|more| more.contains(caller))
    }

    /// Adds a thread. Returns false without memory.
    fn try_push(&mut self, caller: ThreadId) -> bool {
        if self.one.is_none() {
            self.one = Some(caller);
            return true;
        }
        if self.more.is_none() {
            self.more = fallible::try_box(Vec::new());
        }
        self.more.as_mut().is_some_and(|more| fallible::try_push(more, caller).is_ok())
    }

    /// Removes a thread.
    fn remove(&mut self, caller: &ThreadId) {
        if self.one.as_ref() == Some(caller) {
            self.one = None;
            return;
        }
        // A thread that leaves has entered, so it is in the set.
        let Some(more) = &mut self.more else { return };
        if let Some(at) = more.iter().position(|other| other == caller) {
            more.swap_remove(at);
        }
        if more.is_empty() {
            self.more = None;
        }
    }

    fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.as_ref().map_or(0, |more| more.len())
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<E> InFlight<E> {
    /// Admits the calling thread, unless the shrinker was killed, the thread is inside already, or
    /// other threads are inside and there is no memory to record one more. An admitted thread must
    /// [`put`](Self::put).
    #[doc(alias = "shrinker_try_get")]
    pub(crate) fn try_get(&self) -> bool {
        let caller = ThreadId::current();
        let mut state = self.state.lock();
        if (state.killed && !mutated!("enter_closed")) || (ThreadId::KNOWN && state.inside.contains(&caller)) {
            return false;
        }
        state.inside.try_push(caller)
    }

    /// Lets the calling thread leave, and adds the counts of its visit. Returns the end if a kill
    /// has left it to the last thread, and this is the last.
    #[must_use = "the end is dropped without this lock"]
    #[doc(alias = "shrinker_put")]
    pub(crate) fn put(&self, visited: &VisitCounts) -> Option<E> {
        let caller = ThreadId::current();
        let mut state = self.state.lock();
        state.counted += *visited;
        state.inside.remove(&caller);
        if !state.killed || !state.inside.is_empty() {
            return None;
        }
        #[cfg(any(feature = "std", lowwater_loom))]
        self.left.notify_all();
        if mutated!("leave_without_ending") {
            return None;
        }
        state.end.take()
    }

    /// Admits no thread any more, and waits until all have left.
    ///
    /// Refused inside a callback if it would have to wait; the shrinker stays alive then. Without
    /// `std` this is not detected, and a thread inside this shrinker waits for itself.
    #[doc(alias = "wait_for_completion")]
    pub(crate) fn kill_and_wait(&self) -> Result<(), UnregisterError> {
        let mut state = self.state.lock();
        if !state.inside.is_empty() && CallbackScope::is_inside() && !mutated!("close_waits_in_a_callback") {
            return Err(UnregisterError::InsideCallback);
        }
        state.killed = true;
        if mutated!("close_without_waiting") {
            return Ok(());
        }
        while !state.inside.is_empty() {
            #[cfg(any(feature = "std", lowwater_loom))]
            self.left.wait(&mut state);
            #[cfg(not(any(feature = "std", lowwater_loom)))]
            {
                drop(state);
                lowwater_base::sync::yield_now();
                state = self.state.lock();
            }
        }
        Ok(())
    }

    /// Admits no thread any more, without waiting: the last thread inside gets the end. Returns the
    /// end if no thread is inside.
    #[must_use = "the end is dropped without this lock"]
    #[doc(alias = "percpu_ref_kill")]
    pub(crate) fn kill(&self, end: E) -> Option<E> {
        let mut state = self.state.lock();
        state.killed = true;
        if state.inside.is_empty() || mutated!("end_while_inside") {
            return Some(end);
        }
        state.end = Some(end);
        None
    }

    /// Returns true once no thread is admitted any more: a thread inside should leave soon.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.lock().killed
    }

    /// Returns true if no thread is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().inside.is_empty()
    }

    /// Returns the sum of the counts of all threads that have left, and the number of callbacks in
    /// flight.
    pub(crate) fn counted(&self) -> (VisitCounts, usize) {
        let state = self.state.lock();
        (state.counted, state.inside.len())
    }
}
