//! The calls of a registry that make its shrinkers give memory back.
//!
//! Each call enters a scope first (`scope.rs`), so that nested reclaim does nothing (with `std`),
//! and passes its bounds to `pass`, `direct` or `least_useful`, which do the work.
//!
//! Numbers such as S19 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each call of reclaim enters a scope before its work.

use lowwater_lru_core::list_lru;
use lowwater_lru_core::list_lru::Swept;
use lowwater_lru_core::{Memcg, NodeId};

use super::handle::Registry;
use super::pair_hint::PairHint;
use super::select::Select;
use crate::control::Reclaim;
use crate::direct::DirectOutcome;
use crate::least_useful::LeastUseful;
use crate::pass::{repeat_while_freeing, Pass};
use crate::protect::Protect;
use crate::resync::resync;
use crate::work::{Progress, Work};

impl Registry {
    /// Runs one pass: calls each shrinker that may hold objects of `root` or its descendants on
    /// `node`, and scans its part at `priority` (12, light, to 0, everything). Groups below their
    /// `min` are skipped, and groups below their `low`, too, unless priority is 0 and nothing could
    /// be freed elsewhere. If `work` ends a pass early, the next pass resumes there.
    ///
    /// O(pairs that may hold objects), whatever the number of groups and shrinkers. Does nothing if
    /// `root` is offline (`docs/INVARIANTS.md`, S19) or a group of another tree, if the node does
    /// not exist, or, with `std`, if the thread is inside a callback or a
    /// [`no_reclaim_scope`](Self::no_reclaim_scope).
    #[doc(alias = "shrink_slab")]
    pub fn shrink(&self, root: &Memcg, node: NodeId, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        self.shrink_selected(&Select::all().memcg(root).node(node), priority, flags, work)
    }

    /// As [`shrink`](Self::shrink), for a selection: one pass over each selected node.
    #[doc(hidden)]
    pub fn shrink_selected(&self, select: &Select<'_>, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        let Some(_scope) = self.core.scopes.enter_first() else { return Progress::default() };
        if !flags.contains(Reclaim::BACKGROUND) {
            self.core.note_foreground();
        }
        let root = select.memcg.unwrap_or(&self.core.root);
        let mut progress = Progress::default();
        for node in select.nodes(self.nodes()) {
            let (core, protect, filter) = (&self.core, Protect::Limits, select.filter);
            progress += Pass { core, root, node, priority, flags, protect, filter }.run(work);
        }
        progress
    }

    /// Frees all objects that can be freed, in every group and on every node, protected or not.
    /// Returns their number.
    ///
    /// Repeats the pass as long as enough is freed, or groups end meanwhile and their objects move;
    /// and up to three times in a row where it scans objects that it does not free, as they may
    /// have further chances. All that a bounded number of times, so it ends even if another thread
    /// fills the caches, or creates and ends groups, as fast (`docs/INVARIANTS.md`, S22).
    #[doc(alias = "drop_slab")]
    pub fn drop_caches(&self) -> u64 {
        self.drop_selected(&Select::all())
    }

    /// As [`drop_caches`](Self::drop_caches), for a selection. O(live groups in it).
    #[doc(alias = "drop_slab_node")]
    #[doc(hidden)]
    pub fn drop_selected(&self, select: &Select<'_>) -> u64 {
        let Some(_scope) = self.core.scopes.enter_first() else { return 0 };
        let root = select.memcg.unwrap_or(&self.core.root);
        repeat_while_freeing(self.core.map.ends(), || {
            select.nodes(self.nodes()).fold(Progress::default(), |mut progress, node| {
                let (flags, protect, filter) = (Reclaim::KSWAPD, Protect::Nothing, select.filter);
                let pass = Pass { core: &self.core, root, node, priority: 0, flags, protect, filter };
                progress += pass.run(&mut Work::unlimited());
                progress
            })
        })
    }

    /// Frees lists that were empty at the previous sweep too, and clears the bits of pairs that
    /// became empty without a pass. A [`Reclaimer`](crate::Reclaimer) sweeps by itself when it has
    /// nothing else to do.
    ///
    /// O(groups + their lists), and if lists were freed, a call of `count_objects` for each live
    /// pair. With `std`, does nothing inside a callback or a
    /// [`no_reclaim_scope`](Self::no_reclaim_scope).
    pub fn sweep(&self) -> Swept {
        let Some(_scope) = self.core.scopes.enter_first() else { return Swept::default() };
        let swept = list_lru::sweep(&self.core.root);
        if swept.given_back > 0 {
            for node in 0..self.nodes() {
                crate::pass::clear_empty(&self.core, NodeId::new(node as u16));
            }
        }
        swept
    }

    /// Reclaims a little on the thread that needs the memory: from `memcg`'s subtree, the current
    /// node first, round-robin, until `done` returns true or a bound of
    /// [`RegistryConfig`](crate::RegistryConfig) is reached. Debts of other threads add nothing to
    /// its cost (`docs/INVARIANTS.md`, S23).
    ///
    /// The thread must hold no lock that callbacks of shrinkers take, or declare such a lock with
    /// `flags` or, with `std`, a [`no_reclaim_scope`](Self::no_reclaim_scope).
    #[doc(alias = "try_to_free_mem_cgroup_pages")]
    pub fn direct_reclaim(&self, memcg: &Memcg, flags: Reclaim, done: &dyn Fn() -> bool) -> DirectOutcome {
        crate::direct::reclaim(&self.core, memcg, flags, done)
    }

    /// Frees objects of the shrinkers and groups of `memcg`'s subtree to which memory brings the
    /// fewest hits per byte, a few of one pair at a time, until `work` is used up: for callers that
    /// need a little memory soon, and for the background. Groups below their `low` or `min` are
    /// skipped. A group's objects are freed from all nodes, in proportion to the objects there.
    ///
    /// `needy` is the pair that needs the memory, which is always a candidate; most callers have
    /// none to pass.
    ///
    /// Frees nothing unless the registry selects victims [by
    /// utility](crate::RegistryConfig::by_utility); nor if all candidates are protected, or, with
    /// `std`, inside a callback or a [`no_reclaim_scope`](Self::no_reclaim_scope). In these cases
    /// other ways of reclaim remain. A call without a bound frees at most two million objects, with
    /// [`Reclaim::BACKGROUND`] eight million.
    ///
    /// O(1) for each batch, whatever the number of shrinkers and groups. A batch has at most 8
    /// objects, with [`Reclaim::BACKGROUND`] 32, and at most 1/64 of the pair's objects (1/16, or
    /// 1/4 of a pair without hits, if there are too many pairs to examine all), and ends where the
    /// group's `low` or `min` protects the rest, but at least one.
    pub fn shrink_least_useful(
        &self,
        memcg: &Memcg,
        needy: Option<&PairHint>,
        flags: Reclaim,
        work: &mut Work<'_>,
    ) -> Progress {
        let Some(_scope) = self.core.scopes.enter_first() else { return Progress::default() };
        if !self.core.knows(memcg, NodeId::ZERO) {
            return Progress::default();
        }
        if flags.contains(Reclaim::BACKGROUND) {
            (0..self.nodes()).for_each(|node| resync(&self.core, NodeId::new(node as u16)));
        } else {
            self.core.note_foreground();
        }
        let needy = needy.and_then(PairHint::slot);
        LeastUseful { core: &self.core, limit: memcg, needy, flags }.run(work)
    }

    /// Returns true if victims are selected by utility.
    pub(crate) fn is_by_utility(&self) -> bool {
        self.core.map.by_utility().is_some()
    }

    /// Scans the objects that were deferred for `memcg` itself on `node`, and no others, as far as
    /// `work` permits: for the background, after a notification. The debts of a group that has
    /// ended are those of its nearest online ancestor. Returns the progress, and how many objects
    /// are still deferred. No object is taken from a group below its `low`.
    pub fn pay_debts(&self, memcg: &Memcg, node: NodeId, work: &mut Work<'_>) -> (Progress, u64) {
        let Some(_scope) = self.core.scopes.enter_first() else { return (Progress::default(), 0) };
        crate::pass::scan_owed(&self.core, memcg, node, work)
    }
}
