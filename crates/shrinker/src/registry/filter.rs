//! Which shrinkers a pass asks: all, one, or those of some kinds.

use super::caches::Caches;
use super::registry_core::RegistryCore;
use crate::id::ShrinkerId;

/// The shrinkers that a pass asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShrinkerFilter {
    shrinker: Option<u32>,
    caches: Caches,
}

impl ShrinkerFilter {
    pub(crate) const ALL: Self = Self { shrinker: None, caches: Caches::all() };

    /// Are all of them?
    pub(crate) const fn is_all(&self) -> bool {
        self.shrinker.is_none() && self.caches.is_all()
    }

    /// Is the shrinker under this id meant?
    pub(crate) fn admits(&self, core: &RegistryCore, id: u32) -> bool {
        self.shrinker.is_none_or(|only| only == id)
            && (self.caches.is_all() || core.options(id).is_some_and(|options| self.caches.intersects(options.caches)))
    }

    /// Only this shrinker.
    pub(crate) const fn shrinker(mut self, id: ShrinkerId) -> Self {
        self.shrinker = Some(id.get());
        self
    }

    /// Only shrinkers of these kinds.
    pub(crate) const fn caches(mut self, caches: Caches) -> Self {
        self.caches = caches;
        self
    }
}
