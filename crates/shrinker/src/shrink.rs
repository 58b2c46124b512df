//! One visit: a shrinker is asked how much it holds for a group on a node, and scans its part in batches.
//!
//! ```text
//!     count  --Empty-->    clear bit, fence, count again, set again unless Empty (or 0)
//!            --Unknown-->  leave the bit, come again
//!            --n-->        take debt, plan, scan batch by batch, put the debt back; all freed? as for Empty
//! ```
//!
//! Every other way out leaves the bit as it is: a shrinker that is not registered yet (its lists may be filled already), one
//! that is just leaving or was set aside (whoever ends the id clears its bits), and one that this thread is inside of. Linux
//! clears without a second count in two such places.

use lowwater_lru_core::{mutated, Memcg, NodeId};

use crate::budget::{Ask, Ended, Kick, Plan, PRIORITY_DEFAULT};
use crate::control::{Reclaim, ShrinkControl};
use crate::deferred::Debt;
use crate::registry::{Held, Inner, Panicked};
use crate::shrinker::{Count, Scan};
use crate::stats::Visited;
use crate::trace;
use crate::work::{Progress, Work};

/// Calls of `scan_objects` in one visit. A cache that holds more goes on in the next; a shrinker that claims to hold
/// everything there is does not keep us for ever (S21).
const SCANS_MAX: u32 = 1 << 20;

/// A thread in direct reclaim asks for this part of what a shrinker holds, and for no more than a batch: it comes round to the
/// others before it takes more from this one.
const SHARE_PARTS: u64 = 16;

/// The dearest objects of which one pass at the highest priority takes all.
const SEEKS_ALL_MAX: u32 = 4;

/// How much to scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// What the policy says at this priority.
    Priority(u8),
    /// All there is, however dear it is to make again: what the policy says at the highest priority of objects that are not dear.
    Drop,
    /// A small share; debts do not count.
    Share,
    /// What is owed, and nothing else.
    Owed,
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
    /// May the group have debts here? Where it has none, none is looked for.
    pub(crate) indebted: bool,
}

/// What came of scanning.
struct Scanned {
    freed: u64,
    scanned: u64,
    requested: u64,
    ended: Ended,
    panicked: bool,
    back_off: bool,
}

impl Scanned {
    fn nothing(ended: Ended) -> Self {
        Self { freed: 0, scanned: 0, requested: 0, ended, panicked: false, back_off: false }
    }
}

impl<'a> Visit<'a> {
    /// A visit that a person asks for.
    pub(crate) fn by_hand(inner: &'a Inner, memcg: &'a Memcg, node: NodeId) -> Self {
        let (flags, size) = (Reclaim::FOREGROUND, Size::Share);
        Self { inner, memcg, node, flags, size, bits: true, indebted: true }
    }
}

impl Visit<'_> {
    /// Visits the shrinker `id`, if it can be called.
    pub(crate) fn id(&self, id: u32, work: &mut Work<'_>) -> Progress {
        match self.inner.lookup(id) {
            Some(held) => self.held(held, work),
            None => {
                if mutated!("clear_unregistered") {
                    self.inner.map.clear(self.memcg, self.node, id);
                }
                Progress::default()
            }
        }
    }

    /// Visits this shrinker.
    pub(crate) fn held(&self, mut held: Held, work: &mut Work<'_>) -> Progress {
        let clock = self.inner.config.clock.as_deref();
        if let (Some(clock), 0) = (clock, work.now_ns) {
            work.now_ns = clock.now_ns();
        }
        let mut visited = Visited { callbacks: 1, ..Visited::default() };
        let sc = ShrinkControl::count(self.memcg, self.node, self.flags);
        let count = held.count(&sc);
        let mut live = true;
        match count {
            Ok(count) if count.is_empty(held.options.memcg_aware) => {
                live = self.clear_if_empty(&mut held, &mut visited)
            }
            Ok(Count::Empty | Count::Unknown | Count::Objects(0)) => work.begin(),
            Ok(Count::Objects(freeable)) => {
                match self.size {
                    Size::Priority(_) | Size::Drop => {
                        self.by_policy(&mut held, freeable, sc.is_deferred(), &mut visited, work);
                    }
                    Size::Share => self.share(&mut held, freeable, sc.is_deferred(), &mut visited, work),
                    Size::Owed if sc.is_deferred() => {}
                    Size::Owed => self.owed(&mut held, freeable, &mut visited, work),
                    Size::Nothing => {}
                }
                if visited.freed >= freeable && !held.is_aside() {
                    live = self.clear_if_empty(&mut held, &mut visited);
                }
            }
            Err(Panicked) => self.inner.panicked(&mut held),
        }
        visited.back_offs |= u64::from(sc.asks_back_off());
        if let Some(clock) = clock {
            let now_ns = clock.now_ns();
            visited.time_ns = now_ns.saturating_sub(work.now_ns);
            (visited.last_run_ns, work.now_ns) = (now_ns, now_ns);
        }
        if live {
            let counted = count.map_or(0, Count::objects);
            self.inner.map.note(self.memcg, self.node, held.key.id, counted, &visited);
        }
        held.visited(visited);
        let Visited { freed, scanned, callbacks, back_offs, .. } = visited;
        Progress { freed, scanned, callbacks, back_offs }
    }

    /// Nothing seems to be left: the bit goes, unless the second count finds that someone has come. Says whether it is there.
    fn clear_if_empty(&self, held: &mut Held, visited: &mut Visited) -> bool {
        if !self.bits {
            // The plain twin: a debt that nothing can pay is forgiven all the same.
            self.inner.map.take_debt(self.memcg, self.node, held.key.id, true);
            return true;
        }
        let last = self.inner.map.clear(self.memcg, self.node, held.key.id);
        if mutated!("clear_without_recount") {
            return false;
        }
        visited.callbacks += 1;
        match held.count(&ShrinkControl::count(self.memcg, self.node, self.flags)) {
            Ok(count) if count.is_empty(held.options.memcg_aware) => {
                self.inner.map.settle(self.memcg, self.node, held.key.id, last);
                return false;
            }
            Ok(_) => self.inner.map.set(self.memcg, self.node, held.key),
            Err(Panicked) => self.inner.panicked(held),
        }
        true
    }

    fn by_policy(&self, held: &mut Held, freeable: u64, deferred: bool, visited: &mut Visited, work: &mut Work<'_>) {
        let (map, policy) = (&self.inner.map, self.inner.config.used_policy());
        let background = self.flags.contains(Reclaim::BACKGROUND);
        let options = &held.options;
        let (priority, seeks) = match self.size {
            Size::Priority(priority) => (priority, options.seeks),
            _ => (0, options.seeks.clamp(1, SEEKS_ALL_MAX)),
        };
        let ask = Ask { freeable, priority, seeks, batch: options.batch, background };
        let debt = match self.indebted {
            true => map.take_debt(self.memcg, self.node, held.key.id, policy.pays(background)),
            false => Debt::NONE,
        };
        let plan = policy.plan(&ask, debt);
        trace::start(self, held, debt.owed, freeable, &plan, priority);
        let done = if deferred { Scanned::nothing(Ended::Deferred) } else { self.scan(held, &plan, freeable, work) };
        let back = policy.settle(&ask, debt, &plan, done.scanned, done.ended);
        let owed = map.add_debt(self.memcg, self.node, held.key.id, back, policy.owed_max(freeable));
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            visited.deferred += back.owed.saturating_sub(debt.owed);
            self.tell(&ask, owed);
        }
        trace::end(self, held, done.freed, (debt.owed, owed), plan.total.saturating_sub(done.scanned));
        self.note(held, done, visited);
    }

    fn share(&self, held: &mut Held, freeable: u64, deferred: bool, visited: &mut Visited, work: &mut Work<'_>) {
        let share = (freeable / SHARE_PARTS).clamp(1, held.options.batch);
        let plan = Plan { delta: share, total: share, scan_min: 1, rest: 0 };
        trace::start(self, held, 0, freeable, &plan, PRIORITY_DEFAULT);
        let done = if deferred { Scanned::nothing(Ended::Deferred) } else { self.scan(held, &plan, freeable, work) };
        let left = share.saturating_sub(done.scanned);
        let mut sum = 0;
        if matches!(done.ended, Ended::Deferred | Ended::Stopped) {
            let owed_max = self.inner.config.used_policy().owed_max(freeable);
            let debt = Debt { owed: left, carry: 0 };
            sum = self.inner.map.add_debt(self.memcg, self.node, held.key.id, debt, owed_max);
            visited.deferred += left;
            let (seeks, batch) = (held.options.seeks, held.options.batch);
            self.tell(&Ask { freeable, priority: PRIORITY_DEFAULT, seeks, batch, background: false }, sum);
        }
        trace::end(self, held, done.freed, (0, sum), left);
        self.note(held, done, visited);
    }

    /// Pays what is owed, as far as it exists. What is carried stays carried.
    fn owed(&self, held: &mut Held, freeable: u64, visited: &mut Visited, work: &mut Work<'_>) {
        let map = &self.inner.map;
        // No more than will be paid now: the rest stays to be seen.
        let debt = map.take_owed(self.memcg, self.node, held.key.id, work.scan_left());
        let total = debt.min(freeable);
        let plan = Plan { delta: 0, total, scan_min: 1, rest: 0 };
        trace::start(self, held, debt, freeable, &plan, PRIORITY_DEFAULT);
        let done = self.scan(held, &plan, freeable, work);
        let left = total.saturating_sub(done.scanned);
        let owed_max = self.inner.config.used_policy().owed_max(freeable);
        let back = Debt { owed: left, carry: 0 };
        let owed = map.add_debt(self.memcg, self.node, held.key.id, back, owed_max);
        trace::end(self, held, done.freed, (debt, owed), left);
        self.note(held, done, visited);
    }

    /// Tells the background of what the foreground left. The background itself need not be told: it was there, and could not.
    fn tell(&self, ask: &Ask, owed: u64) {
        if self.flags.contains(Reclaim::BACKGROUND) {
            return;
        }
        match self.inner.config.used_policy().kick(ask, owed) {
            Kick::Never => {}
            kick => self.inner.tell_of_debt(self.memcg, self.node, kick),
        }
    }

    /// One call of `scan_objects`, and nothing around it.
    pub(crate) fn once(&self, mut held: Held, objects: u64) {
        let mut visited = Visited { requested: objects, ..Visited::default() };
        let mut sc = ShrinkControl::scan(self.memcg, self.node, self.flags, objects);
        match held.scan(&mut sc) {
            Ok(Scan::Freed(freed)) => (visited.freed, visited.scanned) = (freed, sc.nr_scanned()),
            Ok(Scan::Stop) => {}
            Err(Panicked) => self.inner.panicked(&mut held),
        }
        held.visited(visited);
    }

    /// Scans `plan.total` objects in batches while at least `plan.scan_min` is left. Each round of the loop makes that
    /// smaller, so it ends whatever the callback reports.
    fn scan(&self, held: &Held, plan: &Plan, freeable: u64, work: &mut Work<'_>) -> Scanned {
        let mut done = Scanned::nothing(Ended::Finished);
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
            done.requested = done.requested.saturating_add(nr_to_scan);
            let mut sc = ShrinkControl::scan(self.memcg, self.node, self.flags, nr_to_scan);
            let scanned = held.scan(&mut sc);
            done.back_off |= sc.asks_back_off();
            match scanned {
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
                Err(Panicked) => {
                    done.panicked = true;
                    return done;
                }
            }
        }
        done.ended = Ended::Cut;
        done
    }

    fn note(&self, held: &mut Held, done: Scanned, visited: &mut Visited) {
        visited.freed = done.freed;
        visited.scanned = done.scanned;
        visited.requested = done.requested;
        visited.back_offs = u64::from(done.back_off);
        if done.panicked {
            self.inner.panicked(held);
        }
    }
}
