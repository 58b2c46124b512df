//! The deferred objects of the map's pairs, which are a pair's debt ([`Debt`]): objects that are
//! owed a scan, and a carried fraction of an object.
//!
//! A debt is taken out of the map before the objects are scanned. Without memory a debt is
//! forgiven, which loses work and no object.
//!
//! Numbers such as S5 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that two threads never scan for the same debt (S5), and that a debt of a
//! group that has ended is added to that of its nearest online ancestor (S18).

use alloc::vec::Vec;

use lowwater_base::fallible;
use lowwater_base::sync::atomic::Ordering;
use lowwater_lru_core::{Memcg, NodeId};

use super::shrinker_info::ShrinkerInfo;
use super::{Key, Map};
use crate::deferred::Debt;

impl Map {
    /// Takes the debt out, so that no other thread scans its objects as well (S5). Without `all`,
    /// takes only the carried fraction. Leaves the owed objects that ended groups have added since
    /// [`received`](Self::received) returned `received_before` (S18).
    pub(crate) fn take_deferred(&self, memcg: &Memcg, node: NodeId, id: u32, all: bool, received_before: u64) -> Debt {
        let infos = self.node(node).shard(memcg.id()).read();
        infos
            .get(memcg.id())
            .and_then(ShrinkerInfo::visit_state)
            .map_or(Debt::NONE, |visit_state| visit_state.nr_deferred.lock().take(id, all, received_before))
    }

    /// Drops the whole debt.
    pub(crate) fn forgive(&self, memcg: &Memcg, node: NodeId, id: u32) {
        self.take_deferred(memcg, node, id, true, u64::MAX);
    }

    /// Takes up to `max` deferred objects, so that no other thread scans them as well (S5), and
    /// leaves the carried fraction. `received_before` is as in
    /// [`take_deferred`](Self::take_deferred).
    pub(crate) fn take_owed(&self, memcg: &Memcg, node: NodeId, id: u32, max: u64, received_before: u64) -> u64 {
        let infos = self.node(node).shard(memcg.id()).read();
        infos
            .get(memcg.id())
            .and_then(ShrinkerInfo::visit_state)
            .map_or(0, |visit_state| visit_state.nr_deferred.lock().take_owed(id, max, received_before))
    }

    /// Adds to a debt, and reduces it to `owed_max` owed objects, also if there is nothing to add
    /// (S3). If the group has died, adds to the debt of its nearest online ancestor, without a
    /// maximum: `owed_max` is of the group's own objects. Sets the pair's bit if it is clear, as a
    /// debt is kept only with a bit. Returns the owed objects afterwards; 0 if there was nothing to
    /// do, or the debt was forgiven.
    ///
    /// `owed_max` is called under the lock of the debts, with the pair's
    /// [`received`](Self::received) objects.
    pub(crate) fn add_deferred(
        &self,
        memcg: &Memcg,
        node: NodeId,
        key: Key,
        debt: Debt,
        owed_max: impl Fn(u64) -> u64,
    ) -> u64 {
        self.add_deferred_if(|| true, memcg, node, key, debt, Some(owed_max))
    }

    /// Hands a debt of an ended group over, for a caller that is not inside the shrinker, so
    /// that the id may get a new owner at any time: its debts are not changed.
    pub(super) fn add_deferred_of(&self, key: Key, memcg: &Memcg, node: NodeId, debt: Debt) {
        let is_owner = || self.index.lock(key.id).is_open(key);
        self.add_deferred_if(is_owner, memcg, node, key, debt, None::<fn(u64) -> u64>);
    }

    /// As [`add_deferred`](Self::add_deferred), or without `owed_max` a hand-over. If `is_owner`
    /// returns false, or the bit does not stay set, the debt is forgiven.
    fn add_deferred_if(
        &self,
        is_owner: impl Fn() -> bool,
        memcg: &Memcg,
        node: NodeId,
        key: Key,
        debt: Debt,
        mut owed_max: Option<impl Fn(u64) -> u64>,
    ) -> u64 {
        if debt.is_none() && owed_max.as_ref().is_none_or(|owed_max| owed_max(0) == u64::MAX) {
            return 0;
        }
        let mut climbed;
        let mut at = memcg;
        // A bit that is clear is set once in each group: another visit may have it clear, and be
        // about to count again.
        let sets_bit = !debt.is_none();
        let mut has_set = false;
        loop {
            let infos = self.node(node).shard(at.id()).read();
            let info = infos.get(at.id());
            if let Some(owed) = info.and_then(|info| self.add_to(info, &is_owner, key.id, debt, owed_max.as_ref())) {
                return owed;
            }
            // Checked under the lock, as in `set_slow`: `offline` removes the `ShrinkerInfo` under
            // the same lock.
            let is_here = info.is_some() || at.is_online();
            drop(infos);
            if !is_here {
                // The debt may be here earlier than the bit, which `offline` sets.
                climbed = at.nearest_online();
                at = &climbed;
                (owed_max, has_set) = (None, false);
            } else if sets_bit && !has_set {
                self.set(at, node, key);
                has_set = true;
            } else {
                // Clear again after it was set, or without a debt: forgiven.
                return 0;
            }
        }
    }

    /// Adds to the debt in a `ShrinkerInfo`, as [`add_deferred_if`](Self::add_deferred_if). `None`
    /// if the bit is clear, or not the owner's.
    fn add_to(
        &self,
        info: &ShrinkerInfo,
        is_owner: impl Fn() -> bool,
        id: u32,
        debt: Debt,
        owed_max: Option<&impl Fn(u64) -> u64>,
    ) -> Option<u64> {
        // In this order: a bit that was set before the owner is found unchanged is the owner's own.
        let may_add = || info.words.contains(id) && is_owner();
        if !may_add() {
            return None;
        }
        // Without memory the debt is forgiven.
        let visit_state = match debt.is_none() {
            true => info.visit_state(),
            false => info.visit_state_to_write(),
        };
        let Some(visit_state) = visit_state else { return Some(0) };
        let mut nr_deferred = visit_state.nr_deferred.lock();
        // Checked again under the lock: another thread may have cleared the bit and called
        // `forget_visits`, and nothing would remove a debt that is added after that. It would be
        // left to the next owner of the id (S17).
        if !may_add() {
            return None;
        }
        let owed = match owed_max {
            None => {
                // Relaxed: see `received`.
                self.has_received.store(true, Ordering::Relaxed);
                nr_deferred.receive(id, debt)
            }
            Some(owed_max) => {
                let owed_max = owed_max(nr_deferred.received(id));
                nr_deferred.add(id, debt, owed_max)
            }
        };
        drop(nr_deferred);
        if !debt.is_none() {
            // Relaxed: see `Map::collect`. Never cleared: a group whose debts are all paid is
            // checked in vain until its `ShrinkerInfo` is removed.
            visit_state.has_deferred.store(true, Ordering::Relaxed);
        }
        Some(owed)
    }

    /// Returns the sum of the owed objects that ended groups have handed to this pair. A visit
    /// compares it with the sum before its count: debts that it received since belong to objects
    /// that it did not count.
    pub(crate) fn received(&self, memcg: &Memcg, node: NodeId, id: u32) -> u64 {
        // Relaxed: a thread that reads an older value takes earlier debts for new ones, once, and
        // permits as many more owed objects.
        if !self.has_received.load(Ordering::Relaxed) {
            return 0;
        }
        let infos = self.node(node).shard(memcg.id()).read();
        infos
            .get(memcg.id())
            .and_then(ShrinkerInfo::visit_state)
            .map_or(0, |visit_state| visit_state.nr_deferred.lock().received(id))
    }

    /// Returns the ids with deferred objects of this group on this node.
    pub(crate) fn ids_owing(&self, memcg: &Memcg, node: NodeId) -> Vec<u32> {
        let infos = self.node(node).shard(memcg.id()).read();
        let mut ids = Vec::new();
        if let Some(visit_state) = infos.get(memcg.id()).and_then(ShrinkerInfo::visit_state) {
            // As far as there is memory: the other shrinkers are scanned next time.
            let _ = visit_state.nr_deferred.lock().ids_owing().try_for_each(|id| fallible::try_push(&mut ids, id));
        }
        ids
    }

    /// Returns the number of deferred objects of this group on this node.
    pub(crate) fn owed_by_all(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let infos = self.node(node).shard(memcg.id()).read();
        infos
            .get(memcg.id())
            .and_then(ShrinkerInfo::visit_state)
            .map_or(0, |visit_state| visit_state.nr_deferred.lock().sum())
    }

    /// Returns the number of deferred objects of `id` for this group on this node.
    pub(crate) fn owed(&self, memcg: &Memcg, node: NodeId, id: u32) -> u64 {
        let infos = self.node(node).shard(memcg.id()).read();
        infos
            .get(memcg.id())
            .and_then(ShrinkerInfo::visit_state)
            .map_or(0, |visit_state| visit_state.nr_deferred.lock().owed(id))
    }
}
