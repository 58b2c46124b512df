//! The wait-for graph of loads. A load that would close a cycle does not wait.
//!
//! A load whose own code requests a key that another thread or task loads waits for that load. Two
//! loads that request each other's keys would wait for each other for ever, and a load that
//! requests its own key would wait for itself. So each load has a process-wide unique number, a
//! thread-local variable holds the load whose code the thread runs, and a load adds an edge to this
//! graph before it waits for another one, unless the other load already waits for it, directly or
//! through others.
//!
//! No edge is added if the waiting thread or task runs no load's code, which is the common case.
//!
//! A future may be polled by one load's code after another's. So a task adds its edge anew at each
//! poll: a load waits for the loads whose futures its code has polled last.
//!
//! A change must ensure that an edge exists before its waiter waits, and is removed when the waiter
//! is woken.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use lowwater_shrinker::CallbackScope;
use parking_lot::Mutex;

/// The number of a load, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadId(u64);

/// The edges, each with its multiplicity: the number of requests of the first load that wait for
/// the second. No other lock is taken under this one.
static WAIT_GRAPH: Mutex<BTreeMap<(LoadId, LoadId), usize>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The load whose code this thread runs, the innermost one. No destructor, so it can be read
    /// while the thread ends.
    static RUNNING: Cell<Option<LoadId>> = const { Cell::new(None) };
}

/// A scope in which the thread runs a load's own code, which followers wait for.
pub(crate) struct LoadScope {
    outer: Option<LoadId>,
    _scope: CallbackScope,
}

/// An edge of the graph: one load waits for another until this is dropped.
#[doc(alias = "deadlock detection")]
pub(crate) struct WaitEdge(LoadId, LoadId);

/// The other load waits for the caller's load.
#[derive(Debug)]
pub(crate) struct Cycle;

impl LoadId {
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number must be unique, and orders no other memory.
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// Marks the thread as running this load's code until the guard is dropped.
    pub(crate) fn run(self) -> LoadScope {
        LoadScope { outer: RUNNING.replace(Some(self)), _scope: CallbackScope::enter() }
    }
}

impl Drop for LoadScope {
    fn drop(&mut self) {
        RUNNING.set(self.outer);
    }
}

impl WaitEdge {
    /// Renews the edge to `other`, when this thread begins to run the code of that load. The edge
    /// comes from the load that the thread has run until then, if any. Not checked for a cycle: the
    /// follower that closes the cycle finds it at its next poll.
    pub(crate) fn renew(edge: &mut Option<Self>, other: LoadId) {
        let running = RUNNING.get();
        if edge.as_ref().map(|edge| edge.0) != running {
            *edge = running.map(|running| Self::note(&mut WAIT_GRAPH.lock(), running, other));
        }
    }

    /// Adds an edge from the load whose code this thread runs to `other`, unless the edge closes a
    /// cycle. None if this thread runs no load's code.
    ///
    /// O(loads that wait for others).
    pub(crate) fn add(other: LoadId) -> Result<Option<Self>, Cycle> {
        let Some(running) = RUNNING.get() else { return Ok(None) };
        let mut waits = WAIT_GRAPH.lock();
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![other]);
        while let Some(load) = ahead.pop() {
            if load == running {
                return Err(Cycle);
            }
            if seen.insert(load) {
                ahead.extend(waits.range((load, LoadId(0))..=(load, LoadId(u64::MAX))).map(|((_, next), _)| *next));
            }
        }
        Ok(Some(Self::note(&mut waits, running, other)))
    }

    fn note(waits: &mut BTreeMap<(LoadId, LoadId), usize>, load: LoadId, other: LoadId) -> Self {
        *waits.entry((load, other)).or_default() += 1;
        Self(load, other)
    }
}

impl Drop for WaitEdge {
    fn drop(&mut self) {
        let mut waits = WAIT_GRAPH.lock();
        if let Some(times) = waits.get_mut(&(self.0, self.1)) {
            *times -= 1;
            if *times == 0 {
                waits.remove(&(self.0, self.1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_any_length_are_found() {
        // A chain: each load waits for the next one.
        let loads: Vec<_> = (0..5).map(|_| LoadId::next()).collect();
        let mut waits: Vec<_> = loads
            .windows(2)
            .map(|pair| {
                let _running = pair[0].run();
                WaitEdge::add(pair[1]).ok().flatten().expect("no cycle yet")
            })
            .collect();
        let closes = |at: usize| {
            let _running = loads[4].run();
            WaitEdge::add(loads[at]).is_err()
        };
        assert!((0..5).all(closes));
        // Load 2 waits no more: only loads 3 and 4 still lead to load 4.
        drop(waits.remove(2));
        assert_eq!((0..5).map(closes).collect::<Vec<_>>(), [false, false, false, true, true]);
        assert!(
            WaitEdge::add(loads[0]).is_ok_and(|waits| waits.is_none()),
            "no edge, as this thread runs no load's code"
        );
    }
}
