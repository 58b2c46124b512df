//! Victim selection: which tenant is evicted from to make room for an insert.
//!
//! When memory is nearly used up, an insert evicts a few records before it charges for its own, so that usage stays below the mark at
//! which the reclaimer starts, and the victim can be chosen:
//!
//! | the insert is of a tenant | victim |
//! |---|---|
//! | without a deficit, or protected, or with a handful of records | a tenant with a high deficit, if one was noted; else the next tenant, in turn, by size |
//! | with a deficit | an idle tenant, if there is one; else the tenant itself |
//! | whose eviction order has no ghosts | the next tenant, in turn, by size |
//!
//! A tenant has to pay for all that it puts in but for keys that it let go lately: by those it has shown that it would use more. What it takes out,
//! replaces, or lets expire it has paid.
//! The difference between the bytes a tenant has put in and the bytes it has paid is its
//! [`Deficit`](super::deficit::Deficit). It is counted because one eviction makes room for several
//! inserts: the insert that finds no room says nothing about who used it up. The freed bytes go to
//! the processor's stock, which serves one tenant at a time, or to everybody. Without the count, two
//! tenants that insert in turn can meet such that the same one always pays.
//!
//! So memory moves one entry for each hit that a little more of it would have brought, from all by their size. Where that comes to rest
//! every tenant has the same number of such near misses per byte: none would gain more by a byte than another loses. It cannot move faster
//! than keys come back. A tenant that scans has nothing coming back and pays for itself; and when next to nothing of what it let go is ever
//! wanted, memory is used up for it a little sooner than for others: so it pays more than it takes, others take that, and it comes down to
//! a few entries.
//!
//! A tenant within its `min` or `low` is never selected as a victim. What victim selection does not find, the [charge](crate::cache::charge)'s own direct reclaim will.
//!
//! # Bounds
//!
//! Room is made once by visiting 18 tenants at most, and lets go of 8 entries, of one tenant; of those visited each looks at 71 at most.
//!
//! Inside a callback, as a listener or a value's `Drop` that inserts, none is made: what is inserted there finds room, or is refused.
//! Otherwise each entry that goes could have another one go, without end.

use lowwater_base::hash::GOLDEN_RATIO;
use std::hash::{BuildHasher, Hash};

use lowwater_base::fallible::try_box;
use lowwater_lru_core::{ByteSize, Memcg, MemcgId, NodeId};
use parking_lot::{Mutex, MutexGuard};

use super::deficit::BATCH_MAX;
use super::picker::PickerState;
use super::tenant::Tenant;
use crate::cache::core::Core;
use crate::cache::shrink::Evicted;
use crate::Runtime;

const BATCH_PARTS: u64 = 64;
/// Entries that one tenant looks at in one insert until one is let go. The first ones may only be given another chance.
const LOOKS_MAX: u64 = 64;
/// Tenants that one insert visits.
const VISITS_MAX: u32 = 16;
/// A tenant with fewer entries does not pay for itself, or it would never have more, and lose what it just wrote.
const OWN_MIN: u64 = 8;
/// A tenant whose turn it is lets go of one entry in so many, or in a larger cache of one in so many of all there are.
const VISIT_PARTS: u64 = 32;
const VISITS_A_ROUND: u64 = 2_048;

/// An insert for which room is to be made.
pub(crate) struct RoomRequest<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) memcg: &'a Memcg,
    /// The group that has nearly used up its memory; `memcg`, or one above it.
    pub(crate) limit: &'a Memcg,
    pub(crate) bytes: ByteSize,
    /// The tenant of `memcg`, if one was made.
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
    /// Evicts a few records; see the module. Does nothing inside of an eviction of this thread.
    pub(crate) fn make_room(&self, want: &RoomRequest<'_>) {
        let Some(_scope) = want.runtime.registry().first_no_reclaim_scope() else { return };
        let (own, node) = self.sample_node(want.memcg, want);
        let others = self.queues.len() as u64 > own && want.memcg != want.limit;
        let protected = want.memcg != want.limit && is_protected(want.memcg, want.limit);
        if others {
            let is_small = own < OWN_MIN && !want.is_scanning;
            let has_no_deficit = !want.is_scanning && want.tenant.is_some_and(|tenant| !tenant.deficit.is_positive());
            let is_evicting_others = has_no_deficit || is_small || protected || !self.queues.has_ghosts();
            let has_room = if is_evicting_others {
                self.evict_from_deficit(want) || self.evict_from_next(want)
            } else {
                self.evict_from_idle(want)
            };
            if has_room {
                return;
            }
        }
        // One with a handful would lose what it just wrote; the charge finds those who have more.
        if protected || (others && own < OWN_MIN) {
            return;
        }
        self.evict_from_credited(want.tenant, want.bytes, want.memcg, node, own);
    }

    /// Locks the picker; none while another thread has it locked, or without memory: then the inserting tenant is the victim, which is right most of the
    /// time. Unlocked before anything is evicted, as listeners and values' drops are the user's code.
    fn lock_picker(&self, want: &RoomRequest<'_>) -> Option<MutexGuard<'_, PickerState>> {
        let mut picker =
            self.victim_picker.0.get_or_try_init(|| try_box(Mutex::default()).ok_or(())).ok()?.try_lock()?;
        picker.last_id = picker.last_id.max(want.memcg.id().get());
        Some(picker)
    }

    /// Evicts one batch from a tenant. Returns whether anything was evicted.
    fn evict_from(&self, memcg: &Memcg, node: NodeId, entries: u64) -> bool {
        self.evict_batch_of(memcg, node, entries).bytes > ByteSize::ZERO
    }

    /// As [`evict_from`](Self::evict_from), and credits the bytes to the tenant, which makes room for `wanted`.
    fn evict_from_credited(
        &self,
        tenant: Option<&Tenant>,
        wanted: ByteSize,
        memcg: &Memcg,
        node: NodeId,
        entries: u64,
    ) -> bool {
        let Evicted { bytes, credited, .. } = self.evict_batch_of(memcg, node, entries);
        if let Some(tenant) = tenant {
            tenant.deficit.credit(bytes.saturating_sub(credited), wanted);
        }
        bytes > ByteSize::ZERO
    }

    fn evict_batch_of(&self, memcg: &Memcg, node: NodeId, entries: u64) -> Evicted {
        let (nr, mut looks) = (batch_of(entries), 0);
        loop {
            let evicted = self.evict(memcg, node, nr);
            looks += evicted.scanned;
            if evicted.bytes > ByteSize::ZERO || evicted.scanned == 0 || looks >= LOOKS_MAX {
                return evicted;
            }
        }
    }

    /// Evicts from a tenant with a high deficit, if one was noted.
    fn evict_from_deficit(&self, want: &RoomRequest<'_>) -> bool {
        let tenant = self.queues.take_high_deficit().and_then(|id| self.candidate(id.get(), want));
        let is_candidate = |(memcg, _, entries): &(Memcg, NodeId, u64)| *entries >= OWN_MIN && memcg != want.memcg;
        let Some((memcg, node, entries)) = tenant.filter(is_candidate) else { return false };
        let tenant = self.queues.tenant(&memcg);
        tenant.deficit.is_positive() && {
            let has_room = self.evict_from_credited(Some(tenant), want.bytes, &memcg, node, entries);
            // So that who always finds one is visited, too.
            let _last = self.lock_picker(want);
            has_room
        }
    }

    /// Evicts from the next tenants in turn, from each in proportion to its size.
    fn evict_from_next(&self, want: &RoomRequest<'_>) -> bool {
        for _ in 0..VISITS_MAX {
            let Some(mut picker) = self.lock_picker(want) else { return false };
            let id = picker.victim;
            if picker.turns_left > 0 {
                picker.turns_left -= 1;
                // Its last entry may be what it just wrote.
                if let Some((memcg, node, entries)) = self.candidate(id, want).filter(|(.., entries)| *entries > 1) {
                    drop(picker);
                    if self.evict_from(&memcg, node, entries) {
                        return true;
                    }
                    let Some(again) = self.lock_picker(want) else { return false };
                    picker = again;
                }
            }
            if picker.victim != id {
                // Another has gone on to the next meanwhile.
                continue;
            }
            picker.victim = if picker.victim >= picker.last_id { 0 } else { picker.victim + 1 };
            let entries = self.candidate(picker.victim, want).map_or(0, |(_, _, entries)| entries);
            let per = batch_of(entries) * (self.queues.len() as u64 / VISITS_A_ROUND).max(VISIT_PARTS);
            picker.turns_left = entries / per + u64::from(want.random % per < entries % per);
        }
        false
    }

    /// Evicts from the idle candidate, if the candidate is idle and has a record that was not used recently.
    fn evict_from_idle(&self, want: &RoomRequest<'_>) -> bool {
        let Some(mut picker) = self.lock_picker(want) else { return false };
        picker.pace += 1;
        let id = picker.idle_candidate;
        let there = self.candidate(id, want);
        if let Some((memcg, node, entries)) = there.as_ref().filter(|(memcg, ..)| picker.is_idle && memcg != want.memcg)
        {
            drop(picker);
            if self.evict_from(memcg, *node, *entries) {
                return true;
            }
            let Some(again) = self.lock_picker(want) else { return false };
            picker = again;
            if picker.idle_candidate != id {
                // Another has gone on to the next meanwhile.
                return false;
            }
        }
        // One round takes as many inserts as there are entries: who has inserted nothing while all of the cache could have been
        // replaced is idle.
        let tenants = u64::from(picker.last_id) + 1;
        if there.is_none() || picker.is_idle || picker.pace >= self.queues.len() as u64 / tenants {
            picker.pace = 0;
            picker.idle_candidate = if picker.idle_candidate >= picker.last_id { 0 } else { picker.idle_candidate + 1 };
            // Only who has something is worth remembering.
            let next = self.candidate(picker.idle_candidate, want);
            picker.is_idle = next.is_some_and(|(memcg, ..)| self.queues.tenant(&memcg).take_idle());
        }
        false
    }

    /// The tenant of this id, one of its nodes, and the number of its records: if it has any, and may be a victim.
    fn candidate(&self, id: u32, want: &RoomRequest<'_>) -> Option<(Memcg, NodeId, u64)> {
        let memcg = want.runtime.tree().get(MemcgId::new(id))?;
        let (entries, node) = self.sample_node(&memcg, want);
        let is_candidate = entries > 0 && memcg.is_descendant_of(want.limit) && !is_protected(&memcg, want.limit);
        is_candidate.then_some((memcg, node, entries))
    }

    /// The number of a tenant's records, and one of its nodes, chosen at random in proportion to the records on it.
    ///
    /// So what one node has goes when others need it: a limit is for all nodes together, and who runs on one that came late has no other memory
    /// than what was given to the first.
    fn sample_node(&self, memcg: &Memcg, want: &RoomRequest<'_>) -> (u64, NodeId) {
        let nodes = want.runtime.registry().nodes();
        if nodes == 1 {
            return (self.queues.count(memcg, NodeId::ZERO), NodeId::ZERO);
        }
        let counts = (0..nodes).map(|node| NodeId::new(node as u16)).map(|node| (self.queues.count(memcg, node), node));
        let entries: u64 = counts.clone().map(|(count, _)| count).sum();
        // A hash that is the key itself has nothing in its upper half.
        let random = want.random.wrapping_mul(GOLDEN_RATIO) >> 32;
        let mut before = (random * entries) >> 32;
        let chosen = counts.into_iter().find(|(count, _)| {
            let is_it = before < *count;
            before = before.saturating_sub(*count);
            is_it
        });
        (entries, chosen.map_or(NodeId::ZERO, |(_, node)| node))
    }
}

/// Records in one batch of a tenant with `entries` records.
fn batch_of(entries: u64) -> u64 {
    (entries / BATCH_PARTS).clamp(1, BATCH_MAX)
}

/// Tells whether all usage of `memcg` is protected when memory is short in `limit`.
fn is_protected(memcg: &Memcg, limit: &Memcg) -> bool {
    let protection = memcg.protection(limit);
    memcg.usage() <= protection.min.max(protection.low)
}
