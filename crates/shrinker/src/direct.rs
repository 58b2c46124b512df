//! Direct reclaim: the thread that needs memory frees some itself.
//!
//! Scans a small share of the objects of one (group, shrinker) pair after the other, beginning
//! where the last such thread stopped, until the caller has enough or a bound is reached. Debts are
//! ignored, so a call costs the same whatever other threads deferred (S23); objects that cannot be
//! scanned in this context are left as a debt for the background.
//!
//! Linux runs whole passes of rising pressure instead, at a cost that grows with the number of
//! objects and with the debts: a single thread pays for all. Here a call is bounded in objects and,
//! if there is a clock, in time; both bounds are configurable.
//!
//! Numbers such as S23 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a call ends at its bounds of objects and time, whatever is owed.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::map::{IterKind, Recheck};
use crate::pass::LayerPass;
use crate::protect::{Layer, Protect};
use crate::registry::{RegistryCore, ShrinkerFilter};
use crate::shrink::ScanAmount;
use crate::work::{Bound, Progress, Work};

/// The maximum number of laps (over all nodes and groups) in a row that scan something and free
/// nothing: if objects get a second chance, the first lap may only clear it.
const IDLE_LAPS_MAX: u32 = 3;
/// The maximum number of laps of one call, so that a shrinker that falsely reports freed objects
/// does not keep it running for ever, with neither a bound on objects nor a clock (S21).
const LAPS_MAX: u32 = 1 << 18;

/// The outcome of one call of direct reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectOutcome {
    /// Objects freed.
    pub freed: u64,
    /// Objects scanned.
    pub scanned: u64,
    /// Calls of `count_objects`.
    pub callbacks: u64,
    /// The reason why the call ended.
    pub stopped: DirectStop,
}

/// The reason why a call of direct reclaim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectStop {
    /// The caller has enough.
    Done,
    /// One lap found nothing to scan, or three laps freed nothing: the remaining objects are
    /// protected, in use, or cannot be freed with these flags.
    NothingLeft,
    /// As [`NothingLeft`](Self::NothingLeft), but a shrinker was busy: another thread frees its
    /// objects ([`Scan::Busy`](crate::Scan::Busy)). Groups below their `low` were not visited. A
    /// call after a short rest may free some.
    Busy,
    /// The maximum number of objects of one call was scanned.
    ScanBound,
    /// The maximum time of one call has passed.
    TimeBound,
    /// The thread is inside a callback, or in a scope that forbids reclaim (both only with `std`);
    /// or there was no memory to enter a scope.
    InScope,
}

/// Reclaims until `done` returns true or a bound is reached, lap by lap over all nodes; see the
/// module.
pub(crate) fn reclaim(core: &RegistryCore, memcg: &Memcg, flags: Reclaim, done: &dyn Fn() -> bool) -> DirectOutcome {
    let mut total = Progress::default();
    let Some(_scope) = core.scopes.enter_first() else { return outcome(total, DirectStop::InScope) };
    core.note_foreground();
    let config = &core.config;
    let mut work = Work::objects(config.direct_scan_max).while_not(done);
    if let Some(clock) = &config.clock {
        work = work.until(&**clock, clock.now_ns().saturating_add(config.direct_time_max_ns));
    }
    let mut idle = 0;
    let mut recheck = Recheck::default();
    // Each lap frees something, or is one of the few that may free nothing, or one of the few that
    // are repeated because a group ended. A shrinker may report objects that it has not freed.
    for _ in 0..LAPS_MAX {
        if let Some(bound) = work.bound() {
            return outcome(total, bound.into());
        }
        let mark = core.map.ends().mark();
        // Always as the foreground: a debt that the background leaves would wake no thread.
        let lap = lap(core, memcg, flags - Reclaim::BACKGROUND, &mut work);
        total += lap;
        // If a group ended, its objects may have moved to a group that this lap had already
        // visited.
        if lap.freed > 0 || !recheck.accepts(core.map.ends(), mark) {
            idle = 0;
            continue;
        }
        idle += 1;
        if (lap.scanned == 0 || idle >= IDLE_LAPS_MAX) && work.bound().is_none() {
            let stopped = if lap.busy > 0 { DirectStop::Busy } else { DirectStop::NothingLeft };
            return outcome(total, stopped);
        }
    }
    outcome(total, DirectStop::NothingLeft)
}

/// Goes once round all nodes, the current one first. Visits groups below their `low` only if the
/// other groups had nothing to scan: objects that were scanned and not freed may be freed in the
/// next lap, and those of a busy shrinker in a moment.
fn lap(core: &RegistryCore, root: &Memcg, flags: Reclaim, work: &mut Work<'_>) -> Progress {
    let (nodes, current) = (core.map.nodes(), core.config.topology.current().index());
    let mut progress = Progress::default();
    let mut skipped = false;
    for layer in [Layer::AboveLow, Layer::BelowLow] {
        if layer == Layer::BelowLow && (!skipped || progress.scanned > 0 || progress.busy > 0) {
            break;
        }
        for n in 0..nodes {
            let node = NodeId::new(((current + n) % nodes) as u16);
            let (amount, iter, protect) = (ScanAmount::Share, IterKind::Direct, Protect::Limits);
            skipped |= LayerPass { core, root, node, flags, amount, iter, protect, filter: ShrinkerFilter::ALL }.run(
                layer,
                &mut progress,
                work,
            );
        }
    }
    progress
}

fn outcome(progress: Progress, stopped: DirectStop) -> DirectOutcome {
    let Progress { freed, scanned, callbacks, .. } = progress;
    DirectOutcome { freed, scanned, callbacks, stopped }
}

impl From<Bound> for DirectStop {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Enough => Self::Done,
            Bound::Scan => Self::ScanBound,
            Bound::Time => Self::TimeBound,
        }
    }
}
