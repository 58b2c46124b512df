//! One visit of a shrinker: counts its objects of a group on a node, and scans its part in batches.
//!
//! ```text
//!     count  --Empty-->    clear bit, fence, count again, set bit again unless Empty
//!            --Unknown-->  leave the bit, retry in the next pass
//!            --n-->        take debt, plan, scan batch by batch, put the debt back; if all freed, as for Empty
//! ```
//!
//! A count of 0 objects is Empty for a memcg-aware shrinker, and Unknown for others. Every other
//! outcome leaves the bit unchanged: a shrinker that is not registered yet (its lists may have
//! objects already), one that is ending or quarantined (the end of the id clears its bits), and one
//! that this thread is inside of. Linux clears the bit without a second count in two such places.
//!
//! Numbers such as S21 are those of docs/INVARIANTS.md.
//!
//! A change must keep the order of clear, fence and second count: an object would be hidden
//! otherwise.

mod request;

pub(crate) use request::{ScanAmount, ShrinkSlab};

use lowwater_base::mutated;

use crate::budget::{Ended, Kick, Plan, PlanInput, PRIORITY_DEFAULT};
use crate::control::{Reclaim, ShrinkControl};
use crate::deferred::Debt;
use crate::registry::{CallGuard, CallbackPanicked};
use crate::shrinker::{Count, Scan};
use crate::stats::VisitCounts;
use crate::trace;
use crate::work::{Progress, Work};

/// The maximum number of calls of `scan_objects` in one visit. A larger cache is continued in the
/// next visit; a shrinker that claims an endless number of objects does not keep the visit running
/// for ever (S21).
const SCANS_MAX: u32 = 1 << 20;

/// Direct reclaim scans this fraction of a shrinker's objects, as a divisor, and at most a batch:
/// it visits the other shrinkers before it takes more from this one.
const SHARE_PARTS: u64 = 16;

/// The largest `seeks` with which one pass at the highest priority scans all objects.
const SEEKS_ALL_MAX: u32 = 4;

/// The outcome of a visit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisitOutcome {
    pub(crate) progress: Progress,
    /// True if the shrinker did not want to scan now ([`ShrinkControl::will_defer`]), or the scan
    /// of a [`ScanAmount::Share`] or [`ScanAmount::Batch`] ended early: at a bound, or because
    /// another thread scans ([`Scan::Busy`]).
    pub(crate) postponed: bool,
    /// The number of objects before the scan; 0 if it is unknown.
    pub(crate) counted: u64,
    /// The bytes of the freed objects, if the shrinker reported them.
    pub(crate) freed_bytes: Option<u64>,
}

/// The count of a visit.
#[derive(Clone, Copy)]
struct Counted {
    freeable: u64,
    /// The number of objects that may be freed before `low` or `min` protects the rest; `u64::MAX`
    /// if neither does.
    unprotected: u64,
    /// [`Map::received`](crate::map::Map::received) before the count.
    received_before: u64,
}

/// The outcome of scanning.
struct ScanOutcome {
    freed: u64,
    freed_bytes: Option<u64>,
    scanned: u64,
    requested: u64,
    ended: Ended,
    panicked: bool,
    back_off: bool,
    busy: bool,
}

impl ScanOutcome {
    fn nothing(ended: Ended) -> Self {
        Self {
            freed: 0,
            freed_bytes: None,
            scanned: 0,
            requested: 0,
            ended,
            panicked: false,
            back_off: false,
            busy: false,
        }
    }
}

impl ShrinkSlab<'_> {
    /// Visits the shrinker `id`, if it can be called, and still keeps objects under this group and
    /// node.
    pub(crate) fn shrinker(&self, id: u32, work: &mut Work<'_>) -> VisitOutcome {
        match self.core.lookup_for(id, self.memcg, self.node) {
            Some(mut guard) => self.do_shrink_slab(&mut guard, work),
            None => {
                if mutated!("clear_unregistered") {
                    self.core.map.clear(self.memcg, self.node, id);
                }
                VisitOutcome::default()
            }
        }
    }

    /// Visits the shrinker behind `guard`: counts, scans its part in batches, and clears its bit if
    /// nothing is left.
    pub(crate) fn do_shrink_slab(&self, guard: &mut CallGuard, work: &mut Work<'_>) -> VisitOutcome {
        let clock = self.core.config.clock.as_deref();
        if let (Some(clock), 0) = (clock, work.now_ns) {
            work.now_ns = clock.now_ns();
        }
        let mut visited = VisitCounts { callbacks: 1, ..VisitCounts::default() };
        let sc = ShrinkControl::count(self.memcg, self.node, self.flags);
        let received_before = self.core.map.received(self.memcg, self.node, guard.key.id);
        let count = guard.count(&sc);
        let (mut live, mut postponed, mut busy, mut freed_bytes) = (true, sc.is_deferred(), 0, None);
        if postponed {
            // No scan follows, which would begin the time.
            work.begin();
        }
        match count {
            Ok(count) if count.is_empty(guard.options.memcg_aware) => live = self.clear_if_empty(guard, &mut visited),
            Ok(Count::Empty | Count::Unknown | Count::Objects(0)) => work.begin(),
            Ok(Count::Objects(freeable)) => {
                let unprotected = match self.amount {
                    ScanAmount::Batch { free_max, .. } => free_max,
                    _ => self.unprotected.part_of(freeable),
                };
                let counted = Counted { freeable, unprotected, received_before };
                let done = match self.amount {
                    ScanAmount::Priority(_) | ScanAmount::Drop => {
                        Some(self.by_policy(guard, counted, sc.is_deferred(), &mut visited, work))
                    }
                    ScanAmount::Share | ScanAmount::Batch { .. } => {
                        let total = match self.amount {
                            ScanAmount::Batch { parts, max, .. } => (freeable / parts.max(1)).min(max).max(1),
                            _ => (freeable / SHARE_PARTS).min(guard.options.batch).max(1),
                        };
                        let done = self.some(guard, counted, total, sc.is_deferred(), &mut visited, work);
                        postponed |= done.ended == Ended::Cut;
                        Some(done)
                    }
                    ScanAmount::Owed if sc.is_deferred() => None,
                    ScanAmount::Owed => Some(self.owed(guard, counted, work)),
                    ScanAmount::Nothing => None,
                };
                if let Some(done) = done {
                    busy = u64::from(done.busy);
                    freed_bytes = done.freed_bytes;
                    self.note(guard, done, &mut visited);
                }
                if visited.freed >= freeable && !guard.is_quarantined() {
                    live = self.clear_if_empty(guard, &mut visited);
                }
            }
            Err(CallbackPanicked) => self.core.panicked(guard),
        }
        visited.back_offs |= u32::from(sc.asks_back_off());
        if self.flags.contains(Reclaim::BACKGROUND) {
            visited.freed_in_background = visited.freed;
        }
        if let Some(clock) = clock {
            let now_ns = clock.now_ns();
            visited.time_ns = now_ns.saturating_sub(work.now_ns);
            (visited.last_run_ns, work.now_ns) = (now_ns, now_ns);
            work.spend_time(visited.time_ns);
        }
        let counted = count.map_or(0, Count::objects);
        if live {
            self.core.map.note(self.memcg, self.node, guard.key.id, counted, &visited);
        }
        guard.visited(visited);
        let VisitCounts { freed, scanned, callbacks, back_offs, .. } = visited;
        let progress = Progress { freed, scanned, callbacks, back_offs: back_offs.into(), busy };
        VisitOutcome { progress, postponed, counted, freed_bytes }
    }

    /// Clears the bit of an apparently empty shrinker, unless the second count finds an object.
    /// Returns false if the second count was empty, too, so that the pair is gone. After a panic of
    /// the second count it returns true, although the quarantine leaves no bit set.
    fn clear_if_empty(&self, guard: &mut CallGuard, visited: &mut VisitCounts) -> bool {
        if !self.clears_bits {
            self.forgive_if_empty(guard, visited);
            return true;
        }
        let last = self.core.map.clear(self.memcg, self.node, guard.key.id);
        if mutated!("clear_without_recount") {
            return false;
        }
        visited.callbacks += 1;
        let (mut live, mut retires) = (true, true);
        match guard.count(&ShrinkControl::count(self.memcg, self.node, self.flags)) {
            Ok(count) if count.is_empty(guard.options.memcg_aware) => live = false,
            Ok(_) => {
                let is_set = self.core.map.set(self.memcg, self.node, guard.key);
                // Another visit may have the bit clear now, and set it again: the state stays.
                retires = !is_set || !self.core.map.is_own(guard.key, self.memcg);
            }
            Err(CallbackPanicked) => self.core.panicked(guard),
        }
        if retires {
            // Also after a panic, without memory for the bit, or if the id was closed meanwhile:
            // the end of the id misses or has missed this pair, as its bit is clear.
            self.core.map.retire_pair(self.memcg, self.node, guard.key.id, last);
        }
        self.core.map.remove_unset(guard.key.id, self.memcg.id());
        live
    }

    /// Drops the debt of an apparently empty shrinker, for the baseline (`baseline.rs`), which has
    /// no bits. Where objects were freed, counts again, as others may have been added.
    fn forgive_if_empty(&self, guard: &mut CallGuard, visited: &mut VisitCounts) {
        if visited.freed > 0 {
            visited.callbacks += 1;
            match guard.count(&ShrinkControl::count(self.memcg, self.node, self.flags)) {
                Ok(count) if count.is_empty(guard.options.memcg_aware) => {}
                Ok(_) => return,
                Err(CallbackPanicked) => self.core.panicked(guard),
            }
        }
        self.core.map.forgive(self.memcg, self.node, guard.key.id);
    }

    /// Scans the number of objects that the policy plans: takes the debt, plans, scans in batches,
    /// and puts the new debt back.
    fn by_policy(
        &self,
        guard: &mut CallGuard,
        counted: Counted,
        deferred: bool,
        visited: &mut VisitCounts,
        work: &mut Work<'_>,
    ) -> ScanOutcome {
        let (map, policy, freeable) = (&self.core.map, self.core.config.used_policy(), counted.freeable);
        let background = self.flags.contains(Reclaim::BACKGROUND);
        let options = &guard.options;
        let (priority, seeks) = match self.amount {
            ScanAmount::Priority(priority) => (priority, options.seeks),
            _ => (0, options.seeks.clamp(1, SEEKS_ALL_MAX)),
        };
        let input = PlanInput { freeable, priority, seeks, batch: options.batch, background };
        let (pays, received_before) = (policy.pays(background), counted.received_before);
        let debt = match self.has_deferred {
            true => map.take_deferred(self.memcg, self.node, guard.key.id, pays, received_before),
            false => Debt::NONE,
        };
        let plan = policy.plan(&input, debt);
        trace::start(self, guard, debt.owed, freeable, &plan, priority);
        let done =
            if deferred { ScanOutcome::nothing(Ended::Deferred) } else { self.scan(guard, &plan, counted, work) };
        let back = policy.commit(&input, debt, &plan, done.scanned, done.ended);
        let owed = map.add_deferred(self.memcg, self.node, guard.key, back, self.owed_max(counted));
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            let added = back.owed.saturating_sub(debt.owed);
            visited.deferred += added;
            if added > 0 {
                self.notify_background(&input, owed);
            }
        }
        trace::end(self, guard, done.freed, (debt.owed, owed), plan.total.saturating_sub(done.scanned));
        done
    }

    /// Scans `total` objects, ignoring debts. If the shrinker defers or stops, the unscanned
    /// objects are added to the debt.
    fn some(
        &self,
        guard: &mut CallGuard,
        counted: Counted,
        total: u64,
        deferred: bool,
        visited: &mut VisitCounts,
        work: &mut Work<'_>,
    ) -> ScanOutcome {
        let freeable = counted.freeable;
        let plan = Plan { delta: total, total, scan_min: 1, rest: 0 };
        trace::start(self, guard, 0, freeable, &plan, PRIORITY_DEFAULT);
        let done =
            if deferred { ScanOutcome::nothing(Ended::Deferred) } else { self.scan(guard, &plan, counted, work) };
        let left = total.saturating_sub(done.scanned);
        let mut sum = 0;
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            let debt = Debt { owed: left, carry: 0 };
            sum = self.core.map.add_deferred(self.memcg, self.node, guard.key, debt, self.owed_max(counted));
            visited.deferred += left;
            let (seeks, batch) = (guard.options.seeks, guard.options.batch);
            self.notify_background(
                &PlanInput { freeable, priority: PRIORITY_DEFAULT, seeks, batch, background: false },
                sum,
            );
        }
        trace::end(self, guard, done.freed, (0, sum), left);
        done
    }

    /// Scans the deferred objects, as far as they exist. The carried fraction stays.
    fn owed(&self, guard: &mut CallGuard, counted: Counted, work: &mut Work<'_>) -> ScanOutcome {
        let (map, freeable) = (&self.core.map, counted.freeable);
        // Takes only as many as will be scanned now, so that the rest stays visible.
        let debt = map.take_owed(self.memcg, self.node, guard.key.id, work.scan_left(), counted.received_before);
        let total = debt.min(freeable);
        let plan = Plan { delta: 0, total, scan_min: 1, rest: 0 };
        trace::start(self, guard, debt, freeable, &plan, PRIORITY_DEFAULT);
        let done = self.scan(guard, &plan, counted, work);
        let left = total.saturating_sub(done.scanned);
        let back = Debt { owed: left, carry: 0 };
        let owed = map.add_deferred(self.memcg, self.node, guard.key, back, self.owed_max(counted));
        trace::end(self, guard, done.freed, (debt, owed), left);
        done
    }

    /// Returns the maximum of the owed objects, as a function for [`Map::add_deferred`]: the debts
    /// that ended children have added since the count belong to objects that were not counted.
    ///
    /// [`Map::add_deferred`]: crate::map::Map::add_deferred
    fn owed_max(&self, counted: Counted) -> impl Fn(u64) -> u64 {
        let owed_max = self.core.config.used_policy().owed_max(counted.freeable);
        move |received| owed_max.saturating_add(received.saturating_sub(counted.received_before))
    }

    /// Notifies the background of objects that the foreground deferred. The background itself is
    /// not notified: it could not scan them either.
    fn notify_background(&self, input: &PlanInput, owed: u64) {
        if self.flags.contains(Reclaim::BACKGROUND) {
            return;
        }
        match self.core.config.used_policy().kick(input, owed) {
            Kick::Never => {}
            kick => self.core.notify_of_debt(self.memcg, self.node, kick),
        }
    }

    /// Makes a single call of `scan_objects`, without count or debt.
    pub(crate) fn scan_once(&self, mut guard: CallGuard, objects: u64) {
        let mut visited = VisitCounts { requested: objects, ..VisitCounts::default() };
        let mut sc = ShrinkControl::scan(self.memcg, self.node, self.flags, objects);
        match guard.scan(&mut sc) {
            Ok(Scan::Freed(freed)) => (visited.freed, visited.scanned) = (freed, sc.nr_scanned()),
            Ok(Scan::Stop | Scan::Busy) => {}
            Err(CallbackPanicked) => self.core.panicked(&mut guard),
        }
        guard.visited(visited);
    }

    /// Scans `plan.total` objects in batches while at least `plan.scan_min` is left and not all
    /// unprotected objects are freed, for [`SCANS_MAX`] batches at most, whatever the callback
    /// reports. A batch is no larger than the number of unprotected objects, as all of it may be
    /// freed. A shrinker that was closed meanwhile gets no further batch (S14).
    fn scan(&self, guard: &CallGuard, plan: &Plan, counted: Counted, work: &mut Work<'_>) -> ScanOutcome {
        let mut done = ScanOutcome::nothing(Ended::Finished);
        let mut left = plan.total;
        for _ in 0..SCANS_MAX {
            let unprotected = counted.unprotected.saturating_sub(done.freed);
            if left < plan.scan_min || left == 0 || done.freed >= counted.freeable || unprotected == 0 {
                return done;
            }
            if work.bound().is_some() || (done.requested > 0 && guard.is_closed()) {
                break;
            }
            work.begin();
            let nr_to_scan = left.min(guard.options.batch).min(unprotected).min(work.scan_left());
            done.requested = done.requested.saturating_add(nr_to_scan);
            let mut sc = ShrinkControl::scan(self.memcg, self.node, self.flags, nr_to_scan);
            let scanned = guard.scan(&mut sc);
            done.back_off |= sc.asks_back_off();
            match scanned {
                Ok(Scan::Freed(freed)) => {
                    let scanned = if sc.nr_scanned() == 0 { nr_to_scan } else { sc.nr_scanned() };
                    done.freed = done.freed.saturating_add(freed);
                    if let Some(bytes) = sc.freed_bytes() {
                        done.freed_bytes = Some(done.freed_bytes.unwrap_or(0).saturating_add(bytes.get()));
                    }
                    done.scanned = done.scanned.saturating_add(scanned);
                    left = left.saturating_sub(scanned);
                    work.spend(scanned);
                }
                Ok(Scan::Stop) => {
                    done.ended = Ended::Stopped;
                    return done;
                }
                Ok(Scan::Busy) => {
                    done.busy = true;
                    break;
                }
                Err(CallbackPanicked) => {
                    done.panicked = true;
                    return done;
                }
            }
        }
        done.ended = Ended::Cut;
        done
    }

    /// Stores the outcome of the scan in the counts of the visit.
    fn note(&self, guard: &mut CallGuard, done: ScanOutcome, visited: &mut VisitCounts) {
        visited.freed = done.freed;
        visited.scanned = done.scanned;
        visited.requested = done.requested;
        visited.back_offs = u32::from(done.back_off);
        if done.panicked {
            self.core.panicked(guard);
        }
    }
}
