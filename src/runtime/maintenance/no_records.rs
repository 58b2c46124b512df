//! A cache without records, for tests of its callers.
//!
//! With it, the housekeeper and the metrics are tested without a cache.
//!
//! Each method must do nothing, except call the closure that a test has passed for it.

use lowwater_lru_core::{Memcg, NodeId};

#[cfg(feature = "metrics")]
use super::CacheFigures;
use super::{Maintenance, NextRun};

/// A cache without records, which does nothing except in the method that a test replaces.
pub(crate) struct NoRecords {
    evict_group: Box<dyn Fn(&Memcg) -> u64 + Send + Sync>,
    reap_expired: Box<dyn Fn() -> NextRun + Send + Sync>,
    release_memory: Box<dyn Fn() + Send + Sync>,
    has_any: Box<dyn Fn() -> bool + Send + Sync>,
    #[cfg(feature = "metrics")]
    figures: Box<dyn Fn() -> CacheFigures + Send + Sync>,
}

impl NoRecords {
    /// Creates a cache that reports as many evicted records of a group as `evict_group` returns.
    pub(crate) fn evicting(evict_group: impl Fn(&Memcg) -> u64 + Send + Sync + 'static) -> Self {
        Self { evict_group: Box::new(evict_group), ..Self::idle() }
    }

    /// Creates a cache that is swept by `reap_expired`.
    pub(crate) fn reaping(reap_expired: impl Fn() -> NextRun + Send + Sync + 'static) -> Self {
        Self { reap_expired: Box::new(reap_expired), ..Self::idle() }
    }

    /// Creates a cache that releases memory by `release_memory`.
    pub(crate) fn releasing(release_memory: impl Fn() + Send + Sync + 'static) -> Self {
        Self { release_memory: Box::new(release_memory), ..Self::idle() }
    }

    /// Creates a cache that has records of a group if `has_any` returns true.
    pub(crate) fn counting(has_any: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { has_any: Box::new(has_any), ..Self::idle() }
    }

    /// Creates a cache that does nothing.
    fn idle() -> Self {
        Self {
            evict_group: Box::new(|_| 0),
            reap_expired: Box::new(|| NextRun::WhenNotified),
            release_memory: Box::new(|| ()),
            has_any: Box::new(|| false),
            #[cfg(feature = "metrics")]
            figures: Box::new(|| unreachable!("its figures are not published")),
        }
    }

    /// Creates a cache that publishes what `figures` returns.
    #[cfg(feature = "metrics")]
    pub(crate) fn publishing(figures: impl Fn() -> CacheFigures + Send + Sync + 'static) -> Self {
        Self { figures: Box::new(figures), ..Self::idle() }
    }
}

impl Maintenance for NoRecords {
    fn remove_cleared(&self) -> NextRun {
        NextRun::WhenNotified
    }

    fn reap_expired(&self) -> NextRun {
        (self.reap_expired)()
    }

    fn evict_group(&self, group: &Memcg, _: NodeId) -> u64 {
        (self.evict_group)(group)
    }

    fn has_any(&self, _: &Memcg, _: NodeId) -> bool {
        (self.has_any)()
    }

    fn forget_group(&self, _: &Memcg) {}

    fn compact(&self) -> NextRun {
        NextRun::WhenNotified
    }

    fn release_memory(&self) {
        (self.release_memory)();
    }

    #[cfg(feature = "metrics")]
    fn figures(&self) -> CacheFigures {
        (self.figures)()
    }

    #[cfg(feature = "metrics")]
    fn count_of(&self, _: &Memcg, _: NodeId) -> u64 {
        0
    }
}
