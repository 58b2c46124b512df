//! One visit: a shrinker is asked how much it holds for a group on a node, and scans its part in batches.
//!
//! ```text
//!     count  --Empty-->    clear bit, fence, count again, set again unless Empty
//!            --Unknown-->  leave the bit, come again
//!            --n-->        take debt, plan, scan batch by batch, put the debt back; all freed? as for Empty
//! ```
//!
//! Every other way out leaves the bit as it is: a shrinker that is not registered yet (its lists may be filled already), one
//! that is just leaving or was set aside (whoever ends the id clears its bits), and one that this thread is inside of. Linux
//! clears without a second count in two such places (KERNEL 3.4 (iii)).

use lowwater_lru_core::{mutated, Memcg, NodeId};

use crate::budget::{Ask, Ended, Plan};
use crate::control::{Reclaim, ShrinkControl};
use crate::deferred::Debt;
use crate::registry::{Held, Inner};
use crate::shrinker::{Count, Scan};
use crate::stats::Visited;
use crate::work::{Progress, Work};

/// Calls of `scan_objects` in one visit. A cache that holds more goes on in the next; a shrinker that claims to hold
/// everything there is does not keep us for ever (S21).
const SCANS_MAX: u32 = 1 << 20;

/// A thread in direct reclaim asks for this part of what a shrinker holds, and for no more than a batch: it comes round to the
/// others before it takes more from this one.
const SHARE_PARTS: u64 = 16;

/// How much to scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// What the policy says at this priority.
    Priority(u8),
    /// A small share; debts do not count.
    Share,
    /// None; only who holds nothing is found out.
    Nothing,
}

/// Whom to ask about what.
pub(crate) struct Visit<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) memcg: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) size: Size,
    /// Are bits cleared where nothing is found? Not by the plain twin.
    pub(crate) bits: bool,
}

/// What came of scanning.
struct Scanned {
    freed: u64,
    scanned: u64,
    requested: u64,
    ended: Ended,
    panicked: bool,
}

impl Visit<'_> {
    /// Visits the shrinker `id`, if it can be called.
    pub(crate) fn id(&self, id: u32, work: &mut Work<'_>) -> Progress {
        self.inner.lookup(id).map_or_else(Progress::default, |held| self.held(&held, work))
    }

    /// Visits this shrinker.
    pub(crate) fn held(&self, held: &Held, work: &mut Work<'_>) -> Progress {
        let mut visited = Visited { callbacks: 1, ..Visited::default() };
        let sc = ShrinkControl::count(self.memcg, self.node, self.flags);
        match held.count(&sc) {
            Ok(Count::Empty) => self.clear_if_empty(held, &mut visited),
            Ok(Count::Unknown | Count::Objects(0)) => work.begin(),
            Ok(Count::Objects(freeable)) => {
                match self.size {
                    Size::Priority(priority) => {
                        self.by_policy(held, freeable, priority, sc.is_deferred(), &mut visited, work);
                    }
                    Size::Share => self.share(held, freeable, sc.is_deferred(), &mut visited, work),
                    Size::Nothing => {}
                }
                if visited.freed >= freeable && visited.panics == 0 {
                    self.clear_if_empty(held, &mut visited);
                }
            }
            Err(_panicked) => self.set_aside(held, &mut visited),
        }
        held.counters.add(&visited);
        Progress { freed: visited.freed, scanned: visited.scanned, callbacks: visited.callbacks }
    }

    /// Nothing seems to be left: the bit goes, unless the second count finds that someone has come.
    fn clear_if_empty(&self, held: &Held, visited: &mut Visited) {
        if !self.bits {
            // The plain twin: a debt that nothing can pay is forgiven all the same.
            self.inner.map.take_debt(self.memcg, self.node, held.key.id, true);
            return;
        }
        self.inner.map.clear(self.memcg, self.node, held.key);
        if mutated!("clear_without_recount") {
            return;
        }
        visited.callbacks += 1;
        match held.count(&ShrinkControl::count(self.memcg, self.node, self.flags)) {
            Ok(Count::Empty) => self.inner.map.settle(self.memcg, self.node, held.key.id),
            Ok(Count::Unknown | Count::Objects(_)) => self.inner.map.set(self.memcg, self.node, held.key),
            Err(_panicked) => self.set_aside(held, visited),
        }
    }

    fn by_policy(
        &self,
        held: &Held,
        freeable: u64,
        priority: u8,
        deferred: bool,
        visited: &mut Visited,
        work: &mut Work<'_>,
    ) {
        let (map, policy) = (&self.inner.map, &self.inner.config.policy);
        let background = self.flags.contains(Reclaim::BACKGROUND);
        let options = &held.options;
        let ask = Ask { freeable, priority, seeks: options.seeks, batch: options.batch, background };
        let debt = map.take_debt(self.memcg, self.node, held.key.id, policy.pays(background));
        let plan = policy.plan(&ask, debt);
        let done = if deferred {
            Scanned { freed: 0, scanned: 0, requested: 0, ended: Ended::Deferred, panicked: false }
        } else {
            self.scan(held, &plan, freeable, work)
        };
        let back = policy.settle(&ask, debt, &plan, done.scanned, done.ended);
        map.add_debt(self.memcg, self.node, held.key.id, back, policy.owed_max(freeable));
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            visited.deferred += back.owed.saturating_sub(debt.owed);
        }
        self.note(held, done, visited);
    }

    fn share(&self, held: &Held, freeable: u64, deferred: bool, visited: &mut Visited, work: &mut Work<'_>) {
        let share = (freeable / SHARE_PARTS).clamp(1, held.options.batch);
        let plan = Plan { delta: share, total: share, scan_min: 1, rest: 0 };
        let done = if deferred {
            Scanned { freed: 0, scanned: 0, requested: 0, ended: Ended::Deferred, panicked: false }
        } else {
            self.scan(held, &plan, freeable, work)
        };
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            let owed = share.saturating_sub(done.scanned);
            let owed_max = self.inner.config.policy.owed_max(freeable);
            self.inner.map.add_debt(self.memcg, self.node, held.key.id, Debt { owed, carry: 0 }, owed_max);
            visited.deferred += owed;
        }
        self.note(held, done, visited);
    }

    /// Scans `plan.total` objects in batches while at least `plan.scan_min` is left. Each round of the loop makes that
    /// smaller, so it ends whatever the callback reports.
    fn scan(&self, held: &Held, plan: &Plan, freeable: u64, work: &mut Work<'_>) -> Scanned {
        let mut done = Scanned { freed: 0, scanned: 0, requested: 0, ended: Ended::Finished, panicked: false };
        let mut left = plan.total;
        for _ in 0..SCANS_MAX {
            if left < plan.scan_min || left == 0 || done.freed >= freeable {
                return done;
            }
            if work.bound().is_some() {
                break;
            }
            work.begin();
            let nr_to_scan = left.min(held.options.batch).min(work.scan_left());
            done.requested += nr_to_scan;
            let mut sc = ShrinkControl::scan(self.memcg, self.node, self.flags, nr_to_scan);
            match held.scan(&mut sc) {
                Ok(Scan::Freed(freed)) => {
                    let scanned = if sc.nr_scanned() == 0 { nr_to_scan } else { sc.nr_scanned() };
                    done.freed = done.freed.saturating_add(freed);
                    done.scanned = done.scanned.saturating_add(scanned);
                    left = left.saturating_sub(scanned);
                    work.spend(scanned);
                }
                Ok(Scan::Stop) => {
                    done.ended = Ended::Stopped;
                    return done;
                }
                Err(_panicked) => {
                    done.panicked = true;
                    return done;
                }
            }
        }
        done.ended = Ended::Cut;
        done
    }

    fn note(&self, held: &Held, done: Scanned, visited: &mut Visited) {
        visited.freed = done.freed;
        visited.scanned = done.scanned;
        visited.requested = done.requested;
        if done.panicked {
            self.set_aside(held, visited);
        }
    }

    /// A callback panicked: the shrinker is not called again, and its bits are no longer kept.
    fn set_aside(&self, held: &Held, visited: &mut Visited) {
        visited.panics += 1;
        held.set_aside();
        self.inner.map.close(held.key);
    }
}
