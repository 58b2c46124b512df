//! The highest usage that each group may have, and the highest sum of usage and retired bytes.
//!
//! `docs/promises/budget.md` and `docs/promises/readers.md` have the conditions, which hold
//! whatever the model permits:
//!
//! * The usage of a group is at most its `max`. If that was lowered, the usage is at most what it
//!   was, and only falls, until it is within the `max` again.
//! * Usage and retired bytes of the root together are at most the budget and its allowance, or what
//!   that sum was before the budget was lowered.
//!
//! Exceptions, each with its place below:
//!
//! * A charge that has read a `max` before it was lowered may succeed afterwards
//!   (`Memcg::set_max`). So a bound is lowered only while no other thread runs a step.
//! * Bytes that a program charges itself are not compared with the bound: `World::charges`.
//! * Each other thread may insert one entry while readers hold back as much as they may
//!   (`SLACK`).
//! * A late clone of a [`Charged`](lowwater::Charged) value counts twice (`SLACK`).
//!
//! A step that raises a limit must do so under [`Bounds::raise`]. A change must ensure that a bound
//! is lowered only under the lock, with the `max` that is in force.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::Mutex;

use lowwater::{ByteSize, Memcg, Runtime};
use lowwater_lru_core::MemcgId;

use crate::token::fail;

/// Entries of concurrent inserts, and late clones: more than the largest entries of four threads.
const SLACK: ByteSize = ByteSize::mib(1);
/// The least allowance for retired bytes.
const ALLOWANCE_MIN: ByteSize = ByteSize::mib(16);
/// The allowance is at least the budget divided by this.
const ALLOWANCE_PARTS: u64 = 4;

thread_local! {
    /// The steps in progress on this thread, and on the threads that wait for it.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// The bounds of all groups of a runtime.
#[derive(Default)]
pub struct Bounds {
    bounds: Mutex<State>,
    /// The steps in progress on all threads, nested steps included.
    running: AtomicU32,
}

#[derive(Default)]
struct State {
    groups: HashMap<MemcgId, ByteSize>,
    /// The bound of the root's usage and the retired bytes together; zero before the first check.
    with_retired: ByteSize,
    /// The limits that are being raised.
    raising: u32,
}

/// A step in progress on this thread; ends with its drop.
pub struct Running<'a>(&'a Bounds);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
        let _ = OWN.try_with(|own| own.set(own.get() - 1));
    }
}

/// A limit that is being raised; ends with its drop.
pub struct Raising<'a>(&'a Bounds);

impl Drop for Raising<'_> {
    fn drop(&mut self) {
        self.0.bounds.lock().unwrap().raising -= 1;
    }
}

/// Returns the bound of the usage and the retired bytes together.
fn with_allowance(budget: ByteSize) -> ByteSize {
    budget.saturating_add(ALLOWANCE_MIN.max(budget / ALLOWANCE_PARTS)).saturating_add(SLACK)
}

impl Bounds {
    /// Notes that this thread runs a step.
    pub fn run(&self) -> Running<'_> {
        self.running.fetch_add(1, SeqCst);
        let _ = OWN.try_with(|own| own.set(own.get() + 1));
        Running(self)
    }

    /// Returns the steps in progress on this thread, for [`inherit`](Self::inherit) on a thread for
    /// which this thread waits.
    pub fn own() -> u32 {
        OWN.try_with(Cell::get).unwrap_or(0)
    }

    pub fn inherit(own: u32) {
        OWN.set(own);
    }

    /// Notes that the `max` of a group may become `max`, until the result is dropped.
    pub fn raise(&self, group: &Memcg, max: ByteSize) -> Raising<'_> {
        let mut state = self.bounds.lock().unwrap();
        state.raising += 1;
        let bound = state.groups.entry(group.id()).or_default();
        *bound = max.max(*bound);
        if group.parent().is_none() {
            state.with_retired = state.with_retired.max(with_allowance(max));
        }
        Raising(self)
    }

    /// Checks the usage of these groups and of all groups that are online. `charged` are the bytes
    /// that the program has charged itself.
    pub fn check(&self, root: &Memcg, runtime: Option<&Runtime>, others: &[Memcg], charged: ByteSize) {
        let mut state = self.bounds.lock().unwrap();
        let is_quiet = state.raising == 0 && self.running.load(SeqCst) == Self::own();
        let groups = root.descendants().chain(others.iter().filter(|group| group.is_in_tree_of(root)).cloned());
        let mut seen = HashMap::with_capacity(state.groups.len() + 1);
        for group in groups.chain([root.clone()]) {
            let (max, usage) = (group.max(), group.usage());
            // A group that is new here may have been charged before its `max` was lowered.
            let bound = state.groups.get(&group.id()).copied().unwrap_or(usage).max(max);
            if usage > bound {
                fail(&format!("{} uses {usage}, its max is {max}, and it may use {bound}", group.path()));
            }
            seen.insert(group.id(), if is_quiet { max.max(usage) } else { bound });
        }
        if state.raising == 0 {
            state.groups = seen;
        } else {
            state.groups.extend(seen);
        }
        let Some(runtime) = runtime.filter(|_| is_quiet) else { return };
        // In this order: bytes that are retired in between are counted once.
        let retired = runtime.stats().retired;
        let (sum, limit) = (root.usage().saturating_add(retired), with_allowance(root.max()));
        let bound = limit.max(state.with_retired);
        if sum > bound.saturating_add(charged) {
            fail(&format!(
                "usage and retired bytes are {sum}, with {retired} retired; allowed are {bound}, and {charged}"
            ));
        }
        state.with_retired = if sum <= limit { limit } else { bound };
    }
}
