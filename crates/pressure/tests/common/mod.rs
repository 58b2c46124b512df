//! The adapter between a monitor and the reclaimer of `lowwater-shrinker`: a copy of that of
//! `lowwater` (`src/runtime/monitored.rs`), which depends on this crate.
//!
//! Included by the tests that need a real reclaimer.
//!
//! A change must ensure that the adapter behaves as `lowwater`'s does.

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_pressure::BackgroundReclaim;
use lowwater_shrinker::{CallbackScope, ReclaimReason, Reclaimer};

#[derive(Debug)]
pub struct MonitoredReclaimer(pub Reclaimer);

impl BackgroundReclaim for MonitoredReclaimer {
    fn reclaim_to(&self, memcg: &Memcg, ceiling: ByteSize) {
        let target = self.0.watermarks().target(ceiling);
        self.0.wake(memcg, ReclaimReason::Pressure(target));
    }

    fn run_thread(&self, thread: &mut dyn FnMut()) {
        let _scope = CallbackScope::enter();
        thread();
    }

    fn can_join(&self) -> bool {
        !CallbackScope::is_inside()
    }
}
