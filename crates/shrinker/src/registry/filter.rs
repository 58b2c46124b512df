//! Filters: the shrinkers that a pass calls, which are all, one, or those of some kinds.
//!
//! Separate from `Select`, which adds a group and a node: a pass has these already.
//!
//! A new restriction of the shrinkers is added here and in `Select`.

use super::caches::Caches;
use super::registry_core::RegistryCore;
use crate::id::ShrinkerId;

/// The shrinkers that a pass calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShrinkerFilter {
    shrinker: Option<u32>,
    caches: Caches,
}

impl ShrinkerFilter {
    pub(crate) const ALL: Self = Self { shrinker: None, caches: Caches::all() };

    /// Returns true if the filter admits every shrinker.
    pub(crate) const fn is_all(&self) -> bool {
        self.shrinker.is_none() && self.caches.is_all()
    }

    /// Returns true if the filter admits the shrinker with this id.
    pub(crate) fn admits(&self, core: &RegistryCore, id: u32) -> bool {
        self.shrinker.is_none_or(|only| only == id)
            && (self.caches.is_all() || core.options(id).is_some_and(|options| self.caches.intersects(options.caches)))
    }

    /// Restricts the filter to this shrinker.
    pub(crate) const fn shrinker(mut self, id: ShrinkerId) -> Self {
        self.shrinker = Some(id.get());
        self
    }

    /// Restricts the filter to shrinkers of these kinds.
    pub(crate) const fn caches(mut self, caches: Caches) -> Self {
        self.caches = caches;
        self
    }
}
