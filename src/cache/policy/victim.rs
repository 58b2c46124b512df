//! Whose entries make room for a new one.
//!
//! When memory is nearly used up, an insert lets a few entries go before it charges for its own, so that usage stays below the mark at
//! which the reclaimer starts, and who pays can be chosen:
//!
//! | the insert is of a tenant | pays |
//! |---|---|
//! | that has paid for all it put in, is protected, or has a handful | one that owed much lately, if there is one; else the next tenant, in turn, by size |
//! | that has not | a tenant that inserts nothing any more, if there is one; else the tenant itself |
//! | whose order remembers nothing of what left | the next tenant, in turn, by size |
//!
//! A tenant has to pay for all that it puts in but for keys that it let go lately: by those it has shown that it would use more. What it takes out,
//! replaces, or lets expire it has paid. What it owes, or has paid before, is counted in bytes ([`Deficit`](super::deficit::Deficit)), for room is made for several inserts at once, and which of them finds
//! none says nothing: what one lets go may stay in a processor's stock for its own next inserts, or be free for everybody's, by whose
//! stock is there just then, and two who insert in turn may always find it so that the same one pays. Without the count it was chance who lived on
//! whose.
//!
//! So memory moves one entry for each hit that a little more of it would have brought, from all by their size. Where that comes to rest
//! every tenant has the same number of such near misses per byte: none would gain more by a byte than another loses. It cannot move faster
//! than keys come back. A tenant that scans has nothing coming back and pays for itself; and when next to nothing of what it let go is ever
//! wanted, memory is used up for it a little sooner than for others: so it pays more than it takes, others take that, and it comes down to
//! a few entries.
//!
//! Nobody pays who is within his `min` or `low`. What this does not find, the [charge](super::charge)'s own direct reclaim will.
//!
//! # Bounds
//!
//! Room is made once by visiting 18 tenants at most, and lets go of 8 entries, of one tenant; of those visited each looks at 71 at most.
//!
//! Inside a callback, as a listener or a value's `Drop` that inserts, none is made: what is inserted there finds room, or is refused.
//! Otherwise each entry that goes could have another one go, without end.

use std::hash::{BuildHasher, Hash};

use lowwater_lru_core::fallible::try_box;
use lowwater_lru_core::{Bytes, Memcg, MemcgId, NodeId};
use parking_lot::{Mutex, MutexGuard};

use super::deficit::BATCH_MAX;
use super::picker::State;
use super::tenant::Tenant;
use crate::cache::core::Core;
use crate::cache::shrink::Evicted;
use crate::Runtime;

const TURN_PARTS: u64 = 64;
/// Entries that one tenant looks at in one insert until one is let go. The first ones may only be given another chance.
const LOOKS_MAX: u64 = 64;
/// Tenants that one insert visits.
const VISITS_MAX: u32 = 16;
/// A tenant with fewer entries does not pay for itself, or it would never have more, and lose what it just wrote.
const OWN_MIN: u64 = 8;
/// A tenant whose turn it is lets go of one entry in so many, or in a larger cache of one in so many of all there are.
const VISIT_PARTS: u64 = 32;
const VISITS_A_ROUND: u64 = 2_048;

/// Spreads a number over all bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What room is made for.
pub(crate) struct Want<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) memcg: &'a Memcg,
    /// The group that has nearly used up its memory; `memcg`, or one above it.
    pub(crate) limit: &'a Memcg,
    pub(crate) bytes: Bytes,
    /// What is known of `memcg`, if anything is.
    pub(crate) tenant: Option<&'a Tenant>,
    /// Memory would earn the tenant nothing.
    pub(crate) is_scanning: bool,
    /// A number that is different for each insert.
    pub(crate) random: u64,
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Lets a few entries go; see the module. Nothing if this thread is letting go of some already.
    pub(crate) fn make_room(&self, want: &Want<'_>) {
        let Some(_scope) = want.runtime.registry().first_no_reclaim_scope() else { return };
        let (own, node) = self.held(want.memcg, want);
        let others = self.queues.len() as u64 > own && want.memcg != want.limit;
        let protected = want.memcg != want.limit && is_protected(want.memcg, want.limit);
        if others {
            let is_small = own < OWN_MIN && !want.is_scanning;
            let has_paid = !want.is_scanning && want.tenant.is_some_and(|tenant| !tenant.deficit.is_positive());
            let others_pay = has_paid || is_small || protected || !self.queues.has_ghosts();
            let paid = if others_pay { self.debtor_pays(want) || self.next_pays(want) } else { self.idle_pays(want) };
            if paid {
                return;
            }
        }
        // One with a handful would lose what it just wrote; the charge finds those who have more.
        if protected || (others && own < OWN_MIN) {
            return;
        }
        self.pays_its_own(want.tenant, want.bytes, want.memcg, node, own);
    }

    /// To choose who pays; none while somebody else is choosing, or without memory: then the tenant pays, which is right most of the time. Given back before
    /// anything is let go, as listeners and values' drops are somebody's code.
    fn hands(&self, want: &Want<'_>) -> Option<MutexGuard<'_, State>> {
        let mut hands = self.hands.0.get_or_try_init(|| try_box(Mutex::default()).ok_or(())).ok()?.try_lock()?;
        hands.last = hands.last.max(want.memcg.id().get());
        Some(hands)
    }

    /// A few turns of one tenant. Was anything let go?
    fn pays(&self, memcg: &Memcg, node: NodeId, entries: u64) -> bool {
        self.evict_a_turn(memcg, node, entries).bytes > Bytes::ZERO
    }

    /// The same, of a tenant to which it is credited that makes room for `wanted`.
    fn pays_its_own(&self, tenant: Option<&Tenant>, wanted: Bytes, memcg: &Memcg, node: NodeId, entries: u64) -> bool {
        let Evicted { bytes, credited, .. } = self.evict_a_turn(memcg, node, entries);
        if let Some(tenant) = tenant {
            tenant.deficit.credit(bytes.saturating_sub(credited), wanted);
        }
        bytes > Bytes::ZERO
    }

    fn evict_a_turn(&self, memcg: &Memcg, node: NodeId, entries: u64) -> Evicted {
        let (nr, mut looks) = (turn_of(entries), 0);
        loop {
            let evicted = self.evict(memcg, node, nr);
            looks += evicted.scanned;
            if evicted.bytes > Bytes::ZERO || evicted.scanned == 0 || looks >= LOOKS_MAX {
                return evicted;
            }
        }
    }

    /// One who owes much, if somebody does.
    fn debtor_pays(&self, want: &Want<'_>) -> bool {
        let debtor = self.queues.take_high_deficit().and_then(|id| self.payer(id.get(), want));
        let may_pay = |(memcg, _, entries): &(Memcg, NodeId, u64)| *entries >= OWN_MIN && memcg != want.memcg;
        let Some((memcg, node, entries)) = debtor.filter(may_pay) else { return false };
        let tenant = self.queues.tenant(&memcg);
        tenant.deficit.is_positive() && {
            let paid = self.pays_its_own(Some(tenant), want.bytes, &memcg, node, entries);
            // So that who always finds one is visited, too.
            let _last = self.hands(want);
            paid
        }
    }

    /// The next tenants in turn, by size.
    fn next_pays(&self, want: &Want<'_>) -> bool {
        for _ in 0..VISITS_MAX {
            let Some(mut hands) = self.hands(want) else { return false };
            let id = hands.giver;
            if hands.left > 0 {
                hands.left -= 1;
                // Its last entry may be what it just wrote.
                if let Some((memcg, node, entries)) = self.payer(id, want).filter(|(.., entries)| *entries > 1) {
                    drop(hands);
                    if self.pays(&memcg, node, entries) {
                        return true;
                    }
                    let Some(again) = self.hands(want) else { return false };
                    hands = again;
                }
            }
            if hands.giver != id {
                // Another has gone on to the next meanwhile.
                continue;
            }
            hands.giver = if hands.giver >= hands.last { 0 } else { hands.giver + 1 };
            let entries = self.payer(hands.giver, want).map_or(0, |(_, _, entries)| entries);
            let per = turn_of(entries) * (self.queues.len() as u64 / VISITS_A_ROUND).max(VISIT_PARTS);
            hands.left = entries / per + u64::from(want.random % per < entries % per);
        }
        false
    }

    /// The tenant that is looked at, if it is idle and has anything that was not used lately.
    fn idle_pays(&self, want: &Want<'_>) -> bool {
        let Some(mut hands) = self.hands(want) else { return false };
        hands.pace += 1;
        let id = hands.looked_at;
        let there = self.payer(id, want);
        if let Some((memcg, node, entries)) = there.as_ref().filter(|(memcg, ..)| hands.idle && memcg != want.memcg) {
            drop(hands);
            if self.pays(memcg, *node, *entries) {
                return true;
            }
            let Some(again) = self.hands(want) else { return false };
            hands = again;
            if hands.looked_at != id {
                // Another has gone on to the next meanwhile.
                return false;
            }
        }
        // One round takes as many inserts as there are entries: who has inserted nothing while all of the cache could have been
        // replaced is idle.
        let tenants = u64::from(hands.last) + 1;
        if there.is_none() || hands.idle || hands.pace >= self.queues.len() as u64 / tenants {
            hands.pace = 0;
            hands.looked_at = if hands.looked_at >= hands.last { 0 } else { hands.looked_at + 1 };
            // Only who has something is worth ghost_recorder.
            let next = self.payer(hands.looked_at, want);
            hands.idle = next.is_some_and(|(memcg, ..)| self.queues.tenant(&memcg).take_idle());
        }
        false
    }

    /// The tenant of this id, one of its nodes, and how many entries it has: if it has any, and may be made to pay.
    fn payer(&self, id: u32, want: &Want<'_>) -> Option<(Memcg, NodeId, u64)> {
        let memcg = want.runtime.tree().get(MemcgId::new(id))?;
        let (entries, node) = self.held(&memcg, want);
        let may_pay = entries > 0 && memcg.is_descendant_of(want.limit) && !is_protected(&memcg, want.limit);
        may_pay.then_some((memcg, node, entries))
    }

    /// Entries of a tenant, and one of the nodes where they are: each the more often the more of them it has.
    ///
    /// So what one node has goes when others need it: a limit is for all nodes together, and who runs on one that came late has no other memory
    /// than what was given to the first.
    fn held(&self, memcg: &Memcg, want: &Want<'_>) -> (u64, NodeId) {
        let nodes = want.runtime.registry().nodes();
        if nodes == 1 {
            return (self.queues.count(memcg, NodeId::ZERO), NodeId::ZERO);
        }
        let counts = (0..nodes).map(|node| NodeId::new(node as u16)).map(|node| (self.queues.count(memcg, node), node));
        let entries: u64 = counts.clone().map(|(count, _)| count).sum();
        // A hash that is the key itself has nothing in its upper half.
        let random = want.random.wrapping_mul(GOLDEN) >> 32;
        let mut before = (random * entries) >> 32;
        let chosen = counts.into_iter().find(|(count, _)| {
            let is_it = before < *count;
            before = before.saturating_sub(*count);
            is_it
        });
        (entries, chosen.map_or(NodeId::ZERO, |(_, node)| node))
    }
}

/// Entries that a tenant of so many lets go at once.
fn turn_of(entries: u64) -> u64 {
    (entries / TURN_PARTS).clamp(1, BATCH_MAX)
}

/// Is all that `memcg` has guaranteed to it, when memory is short in `limit`?
fn is_protected(memcg: &Memcg, limit: &Memcg) -> bool {
    let protection = memcg.protection(limit);
    memcg.usage() <= protection.min.max(protection.low)
}
