//! One group on one node: a bit for each shrinker that may hold objects of the group, the objects
//! that visits have deferred, and their statistics.
//!
//! Each group that holds objects has a [`ShrinkerInfo`] on each node where it does, so each word
//! matters: state that only visited groups need is behind a pointer.
//!
//! A change must not let `ShrinkerInfo` grow; [`VisitState`] may.

use lowwater_base::fallible::try_box;
use lowwater_base::sync::atomic::AtomicBool;
use lowwater_base::sync::Mutex;
use lowwater_lru_core::Memcg;
use once_cell::race::OnceBox;

use super::by_group::{ByGroup, HasMemcg};
use crate::bitmap::Bitmap;
use crate::deferred::NrDeferred;
use crate::stats::PairCountsOf;

/// A group's bits and deferred objects on one node; exists from its first bit to its last.
pub(super) struct ShrinkerInfo {
    pub(super) memcg: Memcg,
    /// A bit for each shrinker's id.
    pub(super) words: Bitmap,
    visit_state: OnceBox<VisitState>,
}

/// State that visits leave behind, by shrinker; absent until the first visit that leaves some.
#[derive(Default)]
pub(super) struct VisitState {
    pub(super) nr_deferred: Mutex<NrDeferred>,
    pub(super) pair_counts: Mutex<PairCountsOf>,
    /// True if objects were ever deferred, so that a pass need not lock `nr_deferred` if there are
    /// none.
    pub(super) has_deferred: AtomicBool,
}

impl ShrinkerInfo {
    pub(super) fn new(memcg: Memcg) -> Self {
        Self { memcg, words: Bitmap::default(), visit_state: OnceBox::new() }
    }

    /// Returns the state; `None` before it is first written.
    pub(super) fn visit_state(&self) -> Option<&VisitState> {
        self.visit_state.get()
    }

    /// Returns the state, which is allocated if necessary; `None` if there is no memory.
    pub(super) fn visit_state_to_write(&self) -> Option<&VisitState> {
        self.visit_state.get_or_try_init(|| try_box(VisitState::default()).ok_or(())).ok()
    }

    /// Removes the state of one shrinker, unless its bit is set.
    pub(super) fn forget_visits(&self, id: u32) {
        let Some(visit_state) = self.visit_state() else { return };
        let (mut pair_counts, mut nr_deferred) = (visit_state.pair_counts.lock(), visit_state.nr_deferred.lock());
        // Checked under the locks: `Map::note` checks the bit under that of `pair_counts`.
        if !self.words.contains(id) {
            pair_counts.remove(id);
            nr_deferred.remove(id);
        }
    }

    /// Removes the state of shrinkers without a bit.
    pub(super) fn tidy_visit_state(&mut self) {
        let Some(visit_state) = self.visit_state.get() else { return };
        let (mut nr_deferred, mut pair_counts) = (visit_state.nr_deferred.lock(), visit_state.pair_counts.lock());
        nr_deferred.retain(|id| self.words.contains(id));
        pair_counts.retain(|id| self.words.contains(id));
    }

    /// Returns the bytes on the heap.
    fn bytes(&self) -> usize {
        let visit_state = |visit_state: &VisitState| {
            // One lock at a time: a reader of the shard takes both in the map's lock order only.
            let pair_counts = visit_state.pair_counts.lock().bytes();
            let nr_deferred = visit_state.nr_deferred.lock().bytes();
            size_of::<VisitState>() + pair_counts + nr_deferred
        };
        self.words.bytes() + self.visit_state().map_or(0, visit_state)
    }
}

impl HasMemcg for ShrinkerInfo {
    fn memcg(&self) -> &Memcg {
        &self.memcg
    }
}

/// The [`ShrinkerInfo`]s of one shard.
pub(super) type ShrinkerInfos = ByGroup<ShrinkerInfo>;

/// Returns the bytes on the heap of a shard.
pub(super) fn bytes(infos: &ShrinkerInfos) -> usize {
    infos.iter().map(ShrinkerInfo::bytes).sum::<usize>() + infos.bytes()
}
