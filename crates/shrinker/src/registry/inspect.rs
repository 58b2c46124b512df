//! The calls of a registry that show its state.
//!
//! A change must ensure that none of these calls changes a bit, a debt or an object, and that only
//! `survey` calls shrinkers.
//!
//! Numbers such as S25 are those of docs/INVARIANTS.md.

use lowwater_base::fallible::TryArc;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::handle::Registry;
use super::registered::CallbackPanicked;
use crate::control::{Reclaim, ShrinkControl};
use crate::id::ShrinkerId;
use crate::map::{EndsMark, Map, Recheck};
use crate::shrinker::Count;
use crate::stats::RegistryStats;

impl Registry {
    /// Returns the current state of the shrinkers and the map, without calling a shrinker.
    /// O(shrinkers + live pairs). Aborts the process if there is no memory for the statistics.
    pub fn snapshot(&self) -> RegistryStats {
        let shrinkers = self.core.shrinker_stats();
        let (live_pairs, live_groups) = self.core.map.live();
        let now_ns = self.core.config.clock.as_ref().map_or(0, |clock| clock.now_ns());
        let pairs = self.core.map.pairs();
        RegistryStats { shrinkers, pairs, now_ns, live_pairs, live_groups, map_bytes: self.core.map.footprint() }
    }

    /// Returns true if a thread, this one included, is inside a callback of a registered shrinker.
    /// The thread may hold objects that no count shows and that are not freed yet: a caller that
    /// found nothing to free should try again once the callback has ended. If this returns false,
    /// the caller sees everything that the ended callbacks freed. O(shrinkers).
    pub fn has_calls_in_flight(&self) -> bool {
        self.core.has_calls_in_flight()
    }

    /// As [`snapshot`](Self::snapshot), with the current size of each live pair: one call of
    /// `count_objects` and one of `weigh_objects` for each. With `std`, no shrinker is called
    /// inside a callback or a [`no_reclaim_scope`](Self::no_reclaim_scope). A pair whose shrinker
    /// ends meanwhile keeps the count of its last visit.
    pub fn survey(&self) -> RegistryStats {
        // Before the snapshot: the pairs of a key are then those of the shrinker that still has it.
        let keys = self.core.keys();
        let mut stats = self.snapshot();
        let Some(_scope) = self.core.scopes.enter_first() else { return stats };
        for pair in &mut stats.pairs {
            let Some(mut guard) = self.core.lookup(pair.shrinker.get()) else { continue };
            if keys.binary_search_by_key(&guard.key.id, |key| key.id).map(|at| keys[at]) != Ok(guard.key) {
                // The id has a new owner.
                continue;
            }
            let sc = ShrinkControl::count(&pair.memcg, pair.node, Reclaim::FOREGROUND);
            (pair.count, pair.bytes) = match guard.count(&sc).and_then(|count| Ok((count, guard.weigh(&sc)?))) {
                Ok((Count::Empty, bytes)) => (Some(0), bytes),
                Ok((Count::Objects(n), bytes)) => (Some(n), bytes),
                Ok((Count::Unknown, bytes)) => (None, bytes),
                Err(CallbackPanicked) => {
                    self.core.panicked(&mut guard);
                    (None, None)
                }
            };
        }
        stats
    }

    /// Returns the bytes allocated for the registry: its shrinkers' entries and names, and the map,
    /// which is O(live pairs) (`docs/INVARIANTS.md`, S25), whatever the number of groups. Exact;
    /// without the shrinkers themselves, the handles returned by
    /// [`Prepared::occupancy`](crate::Prepared::occupancy), the objects passed in the
    /// configuration, the entries of threads inside callbacks, and the labels of metrics.
    pub fn footprint(&self) -> ByteSize {
        // The map's own size is in its footprint; the reference counts of its handle are not.
        let counted = TryArc::<Map>::BYTES - size_of::<Map>();
        self.core.map.footprint().saturating_add(ByteSize::new((self.core.bytes() + counted) as u64))
    }

    /// Returns the number of objects whose scan `id` owes (deferred objects) for `memcg` on `node`.
    #[doc(alias = "nr_deferred")]
    pub fn owed(&self, memcg: &Memcg, node: NodeId, id: ShrinkerId) -> u64 {
        match self.core.knows(memcg, node) {
            true => self.core.map.owed(memcg, node, id.get()),
            false => 0,
        }
    }

    /// Returns the number of objects of `memcg` and its descendants on `node`, as counted at the
    /// last visits. O(live pairs on the node), no callback.
    pub(crate) fn held(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.core.map.held(memcg, node)
    }

    /// Returns a mark of the group ends so far, for [`accepts`](Self::accepts).
    pub(crate) fn mark_ends(&self) -> EndsMark {
        self.core.map.ends().mark()
    }

    /// See [`Recheck::accepts`].
    pub(crate) fn accepts(&self, recheck: &mut Recheck, mark: EndsMark) -> bool {
        recheck.accepts(self.core.map.ends(), mark)
    }
}
