//! Whose entries make room for a new one.
//!
//! When memory is nearly used up, an insert lets a few entries go before it charges for its own, so that usage stays below the mark at
//! which the reclaimer starts, and who pays can be chosen:
//!
//! | the insert | pays |
//! |---|---|
//! | of a key that its tenant let go lately | the next tenant, in turn, by size: this one has shown that it would use more |
//! | of any other key | a tenant that inserts nothing any more, if there is one; else the tenant itself |
//! | in an order that remembers nothing of what left | the next tenant, in turn, by size |
//!
//! So memory moves one entry for each hit that a little more of it would have brought, from all by their size. Where that comes to rest
//! every tenant has the same number of such near misses per byte: none would gain more by a byte than another loses. It cannot move faster
//! than keys come back. A tenant that scans has nothing coming back and pays for itself; and when next to nothing of what it let go is ever
//! wanted, memory is used up for it a little sooner than for others: so it pays more than it takes, others take that, and it comes down to
//! a few entries.
//!
//! Nobody pays who is within his `min` or `low`. What this does not find, the charge's own direct reclaim will.
//!
//! What is given back stays in the processor's stock for the next inserts of that tenant, which let nothing go: so a cache that is full stays
//! full at a steady pace, and the reclaimer sleeps.
//!
//! # Bounds
//!
//! An insert visits 34 tenants at most, looks at 71 entries of each that pays, and lets go of 32 in all.

use std::hash::{BuildHasher, Hash};
use std::time::Instant;

use lowwater_lru_core::{Bytes, Memcg, MemcgId, NodeId};
use parking_lot::Mutex;

use super::error::Reason;
use super::{Cache, Core};
use crate::Runtime;

/// Entries of one turn: one for a small tenant, so that it does not lose at once what it has, more where it pays for several inserts.
const TURN_MAX: u64 = 8;
const TURN_PARTS: u64 = 64;
/// Entries that one tenant looks at in one insert until one is let go. The first ones may only be given another chance.
const LOOKS_MAX: u64 = 64;
/// How often one insert makes room: more than once, so that what others found no room for is caught up with.
const ROOMS_MAX: u32 = 2;
/// Tenants that one insert visits.
const VISITS_MAX: u32 = 16;
/// A tenant with fewer entries does not pay for itself, or it would never have more, and lose what it just wrote.
const OWN_MIN: u64 = 8;
/// One who only passes through leaves this part of what all may have.
const LEFT_PARTS: u64 = 64;
/// A tenant whose turn it is lets go of one entry in so many, or in a larger cache of one in so many of all there are.
const VISIT_PARTS: u64 = 32;
const VISITS_A_ROUND: u64 = 2_048;

/// What may wait for readers before inserts help: so much, or this part of the budget.
const WAITING_MIN: Bytes = Bytes::mib(4);
const WAITING_PARTS: u64 = 16;
/// What may wait for them at all, in terms of that.
const WAITING_TIMES: u64 = 4;

/// What a charge may take more than it needs.
const STOCK: Bytes = Bytes::kib(32);

/// Whose turn it is.
#[derive(Default)]
pub(super) struct Hands(Mutex<State>);

#[derive(Default)]
struct State {
    /// The tenant that gives, and how many more entries it shall.
    giver: u32,
    left: u64,
    /// The tenant that is looked at for whether it is idle; it was when this is set.
    looked_at: u32,
    idle: bool,
    /// Inserts since the last look.
    pace: u64,
    /// The largest id that inserted.
    last: u32,
}

/// What room is made for.
struct Want<'a> {
    runtime: &'a Runtime,
    memcg: &'a Memcg,
    /// The group that has nearly used up its memory; `memcg`, or one above it.
    limit: &'a Memcg,
    node: NodeId,
    /// Of a key that was let go lately.
    came_back: bool,
    /// Of a tenant to whom memory would earn nothing.
    passes: bool,
    /// A number that is different for each insert.
    random: u64,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Takes bytes for an entry whose key has this hash, and frees some if they are not there.
    pub(super) fn charge(
        &self,
        group: &Memcg,
        bytes: Bytes,
        node: NodeId,
        came_back: bool,
        hash: u64,
    ) -> Result<(), Reason> {
        let (core, runtime) = (&self.inner.core, &self.inner.runtime);
        if core.index.slab().waiting() > self.waiting_low() {
            self.help_readers(group, bytes)?;
        }
        // Who would use more shall not live on what was taken from himself; and who only passes through shall not have what is free.
        let passes = core.queues.inserts(group);
        if !came_back && !passes && group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        for _ in 0..ROOMS_MAX {
            let Some(limit) = self.short(group, bytes, passes) else { break };
            core.make_room(&Want { runtime, memcg: group, limit, node, came_back, passes, random: hash });
        }
        if group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        // What is taken for the stock would be used up before anybody made room for it.
        if self.short(group, bytes.saturating_add(STOCK), passes).is_some() && group.try_charge_exactly(bytes).is_ok() {
            runtime.reclaimer().charged(group);
            return Ok(());
        }
        runtime.charge(group, bytes).map_err(|over| {
            let (group, max) = (over.memcg.path(), over.memcg.max());
            match bytes > max {
                true => Reason::TooLarge { bytes, group, max },
                false => Reason::NoRoom { bytes, group },
            }
        })
    }

    /// The nearest group whose memory is nearly used up, if there is one, and the entry is not one that never fits. For who only `passes`
    /// it is used up sooner where others want it, too.
    fn short<'a>(&self, group: &'a Memcg, bytes: Bytes, passes: bool) -> Option<&'a Memcg> {
        let marks = self.inner.runtime.reclaimer().watermarks();
        let is_short = |memcg: &Memcg, usage: Bytes| {
            let left = if passes && memcg != group { memcg.max().get() / LEFT_PARTS } else { 0 };
            let after = usage.saturating_add(bytes).saturating_add(Bytes::new(left));
            after > memcg.high() || marks.is_near(after, memcg.max())
        };
        let mut above = Some(group);
        let mut short = None;
        while let Some(memcg) = above {
            if bytes > memcg.max() {
                return None;
            }
            // What is in stock is not used yet; mostly it need not be asked for.
            let usage = memcg.usage();
            if short.is_none() && is_short(memcg, usage) && is_short(memcg, usage.saturating_sub(memcg.in_stock())) {
                short = Some(memcg);
            }
            above = memcg.parent();
        }
        short
    }

    /// What may wait for readers before inserts help.
    fn waiting_low(&self) -> Bytes {
        match self.inner.runtime.root().max() {
            Bytes::MAX => Bytes::MAX,
            budget => WAITING_MIN.max(Bytes::new(budget.get() / WAITING_PARTS)),
        }
    }

    /// Lets readers run, and frees what they have let go of. Where that does not help, and much waits, this goes on for as long as a charge
    /// may take.
    #[cold]
    fn help_readers(&self, group: &Memcg, bytes: Bytes) -> Result<(), Reason> {
        let most = Bytes::new(self.waiting_low().get().saturating_mul(WAITING_TIMES));
        let deadline = Instant::now() + self.inner.runtime.direct_time_max();
        while self.collect() > self.waiting_low() {
            std::thread::yield_now();
            if self.inner.core.index.slab().waiting() <= most {
                break;
            }
            if Instant::now() >= deadline {
                return Err(Reason::NoRoom { bytes, group: group.path() });
            }
        }
        Ok(())
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Lets a few entries go; see the module.
    fn make_room(&self, want: &Want<'_>) {
        let own = self.queues.count(want.memcg, want.node);
        let others = self.queues.len() as u64 > own && want.memcg != want.limit;
        let protected = want.memcg != want.limit && is_protected(want.memcg, want.limit);
        if others {
            // Somebody else is choosing: then the tenant pays, which is right most of the time.
            if let Some(mut hands) = self.hands.0.try_lock() {
                hands.last = hands.last.max(want.memcg.id().get());
                let is_small = own < OWN_MIN && !want.passes;
                let others_pay = want.came_back || is_small || protected || !self.queues.remembers();
                let paid = if others_pay { self.next_pays(&mut hands, want) } else { self.idle_pays(&mut hands, want) };
                if paid {
                    return;
                }
            }
        }
        // One with a handful would lose what it just wrote; the charge finds those who have more.
        if protected || (others && own < OWN_MIN) {
            return;
        }
        self.pays(want.memcg, want.node, own);
    }

    /// A few turns of one tenant. Did it let anything go?
    fn pays(&self, memcg: &Memcg, node: NodeId, entries: u64) -> bool {
        let nr = (entries / TURN_PARTS).clamp(1, TURN_MAX);
        let mut looks = 0;
        while looks < LOOKS_MAX {
            let (scanned, freed) = self.evict(memcg, node, nr);
            if freed > 0 || scanned == 0 {
                return freed > 0;
            }
            looks += scanned;
        }
        false
    }

    /// The next tenants in turn, by size.
    fn next_pays(&self, hands: &mut State, want: &Want<'_>) -> bool {
        for _ in 0..VISITS_MAX {
            let giver = self.payer(hands.giver, want);
            if hands.left > 0 {
                hands.left -= 1;
                // Its last entry may be what it just wrote.
                if let Some((memcg, node, entries)) = giver.as_ref().filter(|(.., entries)| *entries > 1) {
                    if self.pays(memcg, *node, *entries) {
                        return true;
                    }
                }
            }
            hands.giver = if hands.giver >= hands.last { 0 } else { hands.giver + 1 };
            let entries = self.payer(hands.giver, want).map_or(0, |(_, _, entries)| entries);
            let per = (self.queues.len() as u64 / VISITS_A_ROUND).max(VISIT_PARTS);
            hands.left = entries / per + u64::from(want.random % per < entries % per);
        }
        false
    }

    /// The tenant that is looked at, if it is idle and has anything that was not used lately.
    fn idle_pays(&self, hands: &mut State, want: &Want<'_>) -> bool {
        hands.pace += 1;
        let there = self.payer(hands.looked_at, want);
        if let Some((memcg, node, entries)) = there.as_ref().filter(|(memcg, ..)| hands.idle && memcg != want.memcg) {
            if self.pays(memcg, *node, *entries) {
                return true;
            }
        }
        // One round takes as many inserts as there are entries: who has inserted nothing while all of the cache could have been
        // replaced is idle.
        let tenants = u64::from(hands.last) + 1;
        if there.is_none() || hands.idle || hands.pace >= self.queues.len() as u64 / tenants {
            hands.pace = 0;
            hands.looked_at = if hands.looked_at >= hands.last { 0 } else { hands.looked_at + 1 };
            let next = want.runtime.tree().get(MemcgId::new(hands.looked_at));
            hands.idle = next.is_some_and(|memcg| self.queues.tenant(&memcg).is_idle());
        }
        false
    }

    /// The tenant of this id, where it has the most entries, and how many: if it has any, and may be made to pay.
    fn payer(&self, id: u32, want: &Want<'_>) -> Option<(Memcg, NodeId, u64)> {
        let memcg = want.runtime.tree().get(MemcgId::new(id))?;
        let nodes = (0..want.runtime.topology().nodes()).map(|node| NodeId::new(node as u16));
        let (entries, node) = nodes.map(|node| (self.queues.count(&memcg, node), node)).max()?;
        let may_pay = entries > 0 && memcg.is_descendant_of(want.limit) && !is_protected(&memcg, want.limit);
        may_pay.then_some((memcg, node, entries))
    }
}

/// Is all that `memcg` has guaranteed to it, when memory is short in `limit`?
fn is_protected(memcg: &Memcg, limit: &Memcg) -> bool {
    let protection = memcg.protection(limit);
    memcg.usage() <= protection.min.max(protection.low)
}
