//! Direct reclaim: the thread that needs memory frees a little itself.
//!
//! It asks one (group, shrinker) after the other for a small share of what each holds, from where the last such thread
//! stopped, until the caller has enough or a bound is reached. Debts play no part, so a call costs the same whatever others
//! left undone (S23); what cannot be done here is left as a debt for the background.
//!
//! Why not one pass at high priority, as Linux does: its cost grows with what is there, and with the debts, and the thread
//! that happens to come pays for all. Here the bound is in objects and in time, both settable.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::map::{IterKind, Recheck};
use crate::pass::{Layer, LayerPass, Protect};
use crate::registry::{RegistryCore, ShrinkerFilter};
use crate::shrink::ScanAmount;
use crate::work::{Bound, Progress, Work};

/// Laps in a row that scan something and free nothing: as objects get a second chance, the first may only take that away.
const IDLE_LAPS_MAX: u32 = 3;

/// The outcome of one call of direct reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectOutcome {
    /// Objects freed.
    pub freed: u64,
    /// Objects looked at.
    pub scanned: u64,
    /// Calls of `count_objects`.
    pub callbacks: u64,
    /// Why it ended.
    pub stopped: DirectStop,
}

/// Why a call of direct reclaim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectStop {
    /// The caller has enough.
    Done,
    /// A whole round found nothing to scan, or three nothing to free: the rest is protected, in use, or cannot be freed with these flags.
    NothingLeft,
    /// As many objects were scanned as one call may.
    ScanBound,
    /// As much time went by as one call may take.
    TimeBound,
    /// The thread is inside a callback, or in a scope that forbids it.
    InScope,
}

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
    // Ends: each lap frees something, or is one of the few that may not, or of the few in which a
    // group may end.
    loop {
        if let Some(bound) = work.bound() {
            return outcome(total, bound.into());
        }
        let mark = core.map.ends().mark();
        let lap = lap(core, memcg, flags - Reclaim::BACKGROUND, &mut work);
        total += lap;
        // Where a group ended, its objects may have moved to where this lap had been.
        if lap.freed > 0 || !recheck.believes(core.map.ends(), mark) {
            idle = 0;
            continue;
        }
        idle += 1;
        if (lap.scanned == 0 || idle == IDLE_LAPS_MAX) && work.bound().is_none() {
            return outcome(total, DirectStop::NothingLeft);
        }
    }
}

/// Once round all nodes, this one first. Groups below their `low` only if there was nothing to look at in the others: what was
/// looked at and not freed yet may be freed in the next lap.
fn lap(core: &RegistryCore, root: &Memcg, flags: Reclaim, work: &mut Work<'_>) -> Progress {
    let (nodes, current) = (core.map.nodes(), core.config.topology.current().index());
    let mut progress = Progress::default();
    let mut skipped = false;
    for layer in [Layer::AboveLow, Layer::BelowLow] {
        if layer == Layer::BelowLow && (!skipped || progress.scanned > 0) {
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
