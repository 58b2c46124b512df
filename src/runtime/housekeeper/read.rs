//! Reading the caches' figures, beside the housekeeper's own threads.
//!
//! Figures are read on the caller's thread, without the housekeeper's lock, and the cache must not
//! end meanwhile: its id is in `being_read`, and its end waits for the id's removal.
//!
//! A change must keep the id in `being_read` until the reader has dropped its handle of the cache.

use std::sync::Arc;

use lowwater_base::unwind::caught;
use lowwater_shrinker::CallbackScope;

use super::Housekeeper;
use crate::runtime::maintenance::{Maintenance, MaintenanceId};

impl Housekeeper {
    /// Returns the number of caches.
    pub(crate) fn caches(&self) -> usize {
        self.shared.state.lock().caches.len()
    }

    /// Returns the caches that have not ended, oldest first.
    pub(crate) fn living(&self) -> Vec<MaintenanceId> {
        self.shared.state.lock().caches.from(0).map(|(id, _)| MaintenanceId(id)).collect()
    }

    /// Calls `f`, which must not run user code, for each cache for which `is_wanted` returns true,
    /// oldest first, without the lock. The drop of a cache's last handle waits for `f`.
    pub(crate) fn read_each(
        &self,
        is_wanted: impl Fn(MaintenanceId) -> bool,
        mut f: impl FnMut(MaintenanceId, &dyn Maintenance),
    ) {
        // The drop of a cache's last handle may run below, and must not wait for other callbacks.
        let _scope = CallbackScope::enter();
        let mut after = MaintenanceId(0);
        loop {
            let mut state = self.shared.state.lock();
            let Some((id, maintenance)) = state.next_cache(after) else { return };
            after = id;
            if !is_wanted(id) {
                continue;
            }
            let maintenance = Arc::clone(maintenance);
            state.being_read.push(id);
            drop(state);
            let panicked = caught(|| f(id, &*maintenance)).is_none();
            // The last handle, if the cache was dropped meanwhile inside a callback, which does not
            // wait.
            let _panicked = caught(|| drop(maintenance));
            let mut state = self.shared.state.lock();
            if let Some(at) = state.being_read.iter().position(|other| *other == id) {
                state.being_read.swap_remove(at);
            }
            self.shared.callback_done.notify_all();
            drop(state);
            assert!(!panicked, "reading a cache's figures panicked: this is a bug in lowwater");
        }
    }
}
