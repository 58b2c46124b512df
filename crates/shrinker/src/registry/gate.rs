//! Who is inside a shrinker's callbacks, and the end of letting anybody in.
//!
//! A count and a flag in one atomic would do, but for two questions that need to know *who* is inside: may this thread come
//! in (not twice: it may hold the cache's locks), and may this thread wait for all to leave (not from inside: it would wait for
//! itself). So it is a short list under a lock that is held for a few instructions, never while a callback runs.
//!
//! [`Gate::close`] waits for the threads inside, not for a grace period: with nobody inside it costs one lock. A thread that is
//! inside a callback must not wait: a thread it waits for may wait for it. It leaves the shrinker's [`Claim`] with
//! [`Gate::close_later`], and the last thread to leave the gate takes the claim along and ends it.
//!
//! The same lock guards what is counted: who leaves adds what it did, once for each visit, at the price of a few additions.
//!
//! # Invariants
//!
//! 1. Once [`Gate::close`] has returned `Ok`, nobody is inside, and nobody gets in (S14).
//! 2. Once [`Gate::close_later`] has returned, nobody gets in. Its claim ends when nobody is inside.

use alloc::{boxed::Box, vec::Vec};

#[cfg(any(feature = "std", lowwater_loom))]
use lowwater_lru_core::sync::Condvar;
use lowwater_lru_core::{fallible, mutated, sync::Mutex};

use super::builder::Claim;
use super::caller::Caller;
use crate::callback::CallbackScope;
use crate::error::UnregisterError;
use crate::stats::Visited;

/// The door to one shrinker's callbacks.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Told when the last one leaves a closed gate.
    #[cfg(any(feature = "std", lowwater_loom))]
    left: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    inside: Callers,
    counted: Visited,
    /// Of an end that did not wait; never there while nobody is inside.
    claim: Option<Claim>,
}

/// The threads inside. Mostly none, sometimes one, for which nothing is allocated: 10,000 shrinkers that were asked once keep
/// no memory for it.
#[derive(Default)]
struct Callers {
    one: Option<Caller>,
    #[expect(clippy::box_collection, reason = "one word instead of three in each gate, for what hardly ever happens")]
    more: Option<Box<Vec<Caller>>>,
}

impl Callers {
    fn contains(&self, caller: &Caller) -> bool {
        self.one.as_ref() == Some(caller) || self.more.as_ref().is_some_and(|more| more.contains(caller))
    }

    /// False without memory.
    fn try_push(&mut self, caller: Caller) -> bool {
        if self.one.is_none() {
            self.one = Some(caller);
            return true;
        }
        if self.more.is_none() {
            self.more = fallible::try_box(Vec::new());
        }
        self.more.as_mut().is_some_and(|more| fallible::try_push(more, caller).is_ok())
    }

    /// Takes a caller off who is inside.
    fn remove(&mut self, caller: &Caller) {
        if self.one.as_ref() == Some(caller) {
            self.one = None;
            return;
        }
        // They are there: who leaves has entered.
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

impl Gate {
    /// Lets the calling thread in, unless the gate is closed, the thread is inside already, or others are and there is no memory to
    /// note one more. Who is let in must
    /// [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> bool {
        let caller = Caller::current();
        let mut state = self.state.lock();
        if (state.closed && !mutated!("enter_closed")) || (Caller::KNOWN && state.inside.contains(&caller)) {
            return false;
        }
        state.inside.try_push(caller)
    }

    /// Lets the calling thread out. If it is the last one, and the end was left to it, the claim is returned, to be dropped.
    #[must_use = "the claim is dropped without the gate's lock"]
    pub(super) fn leave(&self, visited: &Visited) -> Option<Claim> {
        let caller = Caller::current();
        let mut state = self.state.lock();
        state.counted += *visited;
        state.inside.remove(&caller);
        if !state.closed || !state.inside.is_empty() {
            return None;
        }
        #[cfg(any(feature = "std", lowwater_loom))]
        self.left.notify_all();
        if mutated!("leave_without_ending") {
            return None;
        }
        state.claim.take()
    }

    /// Lets nobody in any more, and waits until all have left.
    ///
    /// Refused inside a callback, where it would have to wait; the gate is as it was then. Without `std` that is not known, and
    /// a thread inside this gate waits for itself.
    pub(crate) fn close(&self) -> Result<(), UnregisterError> {
        let mut state = self.state.lock();
        if !state.inside.is_empty() && CallbackScope::is_inside() && !mutated!("close_waits_in_a_callback") {
            return Err(UnregisterError::InsideCallback);
        }
        state.closed = true;
        if mutated!("close_without_waiting") {
            return Ok(());
        }
        while !state.inside.is_empty() {
            #[cfg(any(feature = "std", lowwater_loom))]
            self.left.wait(&mut state);
            #[cfg(not(any(feature = "std", lowwater_loom)))]
            {
                drop(state);
                lowwater_lru_core::sync::yield_now();
                state = self.state.lock();
            }
        }
        Ok(())
    }

    /// Lets nobody in any more, and does not wait: the last thread inside gets the claim. Returned if nobody is inside.
    #[must_use = "the claim is dropped without the gate's lock"]
    pub(super) fn close_later(&self, claim: Claim) -> Option<Claim> {
        let mut state = self.state.lock();
        state.closed = true;
        if state.inside.is_empty() || mutated!("end_while_inside") {
            return Some(claim);
        }
        state.claim = Some(claim);
        None
    }

    /// What those who have left did, and how many callbacks are in flight.
    pub(crate) fn counted(&self) -> (Visited, usize) {
        let state = self.state.lock();
        (state.counted, state.inside.len())
    }
}
