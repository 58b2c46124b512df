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
    #[cfg(feature = "metrics")]
    figures: Box<dyn Fn() -> CacheFigures + Send + Sync>,
}

impl NoRecords {
    /// Creates a cache that reports as many evicted records of a group as `evict_group` returns.
    pub(crate) fn evicting(evict_group: impl Fn(&Memcg) -> u64 + Send + Sync + 'static) -> Self {
        Self {
            evict_group: Box::new(evict_group),
            #[cfg(feature = "metrics")]
            figures: Box::new(|| unreachable!("its figures are not published")),
        }
    }

    /// Creates a cache that publishes what `figures` returns.
    #[cfg(feature = "metrics")]
    pub(crate) fn publishing(figures: impl Fn() -> CacheFigures + Send + Sync + 'static) -> Self {
        Self { evict_group: Box::new(|_| 0), figures: Box::new(figures) }
    }
}

impl Maintenance for NoRecords {
    fn reap_expired(&self) -> NextRun {
        NextRun::WhenNotified
    }

    fn evict_group(&self, group: &Memcg, _: NodeId) -> u64 {
        (self.evict_group)(group)
    }

    fn has_any(&self, _: &Memcg, _: NodeId) -> bool {
        false
    }

    fn forget_group(&self, _: &Memcg) {}

    fn compact(&self) -> NextRun {
        NextRun::WhenNotified
    }

    fn release_memory(&self) {}

    #[cfg(feature = "metrics")]
    fn figures(&self) -> CacheFigures {
        (self.figures)()
    }

    #[cfg(feature = "metrics")]
    fn count_of(&self, _: &Memcg, _: NodeId) -> u64 {
        0
    }
}
