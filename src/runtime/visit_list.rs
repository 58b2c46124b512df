//! [`VisitList`]: the caches that sweeps over retired records, or advances of a manual clock, visit
//! in turn.
//!
//! The list does not own the caches; a [`Visit`] owns its cache. The drop of a cache's last handle
//! removes the cache from the list, and waits for its visits, except inside a callback. A visit is
//! inside a [`CallbackScope`], because it runs user code: that code may drop the last handle on the
//! visited cache, or on a cache that another thread visits, and must not wait there.
//!
//! A change must ensure that no user code runs under the lock, and that the end of a visit drops
//! the cache before it notifies the thread that waits.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use lowwater_base::unwind::caught;
use lowwater_shrinker::CallbackScope;
use parking_lot::{Condvar, Mutex};

use super::key_order::KeyOrder;
use super::maintenance::MaintenanceId;

/// The caches to visit; see the module.
pub(super) struct VisitList<T: ?Sized> {
    state: Mutex<VisitListState<T>>,
    /// The drop of a cache waits here until no thread visits the cache.
    visit_done: Condvar,
}

/// The state under the lock of a [`VisitList`].
struct VisitListState<T: ?Sized> {
    /// By id.
    caches: KeyOrder<Weak<T>>,
    /// The caches that threads visit, each as often as threads visit it.
    visited: Vec<MaintenanceId>,
}

/// A visit of a cache, until this is dropped.
pub(super) struct Visit<'a, T: ?Sized> {
    list: &'a VisitList<T>,
    id: MaintenanceId,
    /// `None` only inside `drop`.
    cache: Option<Arc<T>>,
    /// Dropped last: the drop of `cache` may run user code.
    _scope: CallbackScope,
}

impl<T: ?Sized> Default for VisitList<T> {
    fn default() -> Self {
        let state = VisitListState { caches: KeyOrder::default(), visited: Vec::new() };
        Self { state: Mutex::new(state), visit_done: Condvar::new() }
    }
}

impl<T: ?Sized> VisitList<T> {
    /// Adds a cache, until [`remove`](Self::remove).
    pub(super) fn add(&self, id: MaintenanceId, cache: Weak<T>) {
        self.state.lock().caches.insert(id.0, cache);
    }

    /// Removes a cache. Waits until no thread visits the cache, unless the caller is inside a
    /// callback: then the last thread that visits the cache may drop it. O(log caches) amortized.
    pub(super) fn remove(&self, id: MaintenanceId) {
        let mut state = self.state.lock();
        let Some(_removed) = state.caches.remove(id.0) else { return };
        while state.visited.contains(&id) && !CallbackScope::is_inside() {
            self.visit_done.wait(&mut state);
        }
    }

    /// Returns the number of caches.
    pub(super) fn len(&self) -> usize {
        self.state.lock().caches.len()
    }

    /// Returns the ids of all caches, oldest first.
    pub(super) fn ids(&self) -> Vec<MaintenanceId> {
        self.state.lock().caches.from(0).map(|(id, _)| MaintenanceId(id)).collect()
    }

    /// Returns the first id after `last`; the first of all if there is none after it. `None` if
    /// there is no cache.
    pub(super) fn next_after(&self, last: MaintenanceId) -> Option<MaintenanceId> {
        let caches = &self.state.lock().caches;
        let next = caches.from(last.0 + 1).chain(caches.from(0)).next();
        next.map(|(id, _)| MaintenanceId(id))
    }

    /// Begins a visit of a cache; `None` if the cache was removed, or its last handle is being
    /// dropped. O(log caches).
    pub(super) fn visit(&self, id: MaintenanceId) -> Option<Visit<'_, T>> {
        let mut state = self.state.lock();
        let cache = state.caches.get(id.0)?.upgrade()?;
        state.visited.push(id);
        Some(Visit { list: self, id, cache: Some(cache), _scope: CallbackScope::enter() })
    }
}

impl<T: ?Sized> Deref for Visit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.cache.as_deref().expect("taken only by drop")
    }
}

impl<T: ?Sized> Drop for Visit<'_, T> {
    fn drop(&mut self) {
        // The last handle, if the cache was dropped inside a callback meanwhile: its drop runs user
        // code, that of all values the cache has captured.
        let cache = self.cache.take();
        let _panicked = caught(|| drop(cache));
        let visited = &mut self.list.state.lock().visited;
        if let Some(at) = visited.iter().position(|id| *id == self.id) {
            visited.swap_remove(at);
        }
        self.list.visit_done.notify_all();
    }
}
