//! [`MonitoredReclaimer`]: the interface of the reclaimer for a pressure monitor.
//!
//! `lowwater-pressure` and `lowwater-shrinker` do not know each other; this type is their only
//! connection.
//!
//! A change must ensure that the type only forwards, with the reclaimer's own target.

use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_pressure::BackgroundReclaim;
use lowwater_shrinker::{CallbackScope, ReclaimReason, Reclaimer};

/// A [`Reclaimer`] that a [`Monitor`](crate::pressure::Monitor) drives. A
/// [`Runtime`](crate::Runtime) with a monitor makes its own.
///
/// The monitor's thread is inside a [`CallbackScope`] for as long as it runs, so the drop of a
/// monitor or of a reclaimer inside a trim hook does not wait for threads.
#[derive(Clone, Debug)]
pub struct MonitoredReclaimer(Arc<Reclaimer>);

impl From<Arc<Reclaimer>> for MonitoredReclaimer {
    fn from(reclaimer: Arc<Reclaimer>) -> Self {
        Self(reclaimer)
    }
}

impl BackgroundReclaim for MonitoredReclaimer {
    fn reclaim_to(&self, memcg: &Memcg, ceiling: ByteSize) {
        // A ceiling above the usage only ends an earlier request: the watermarks do the rest.
        let target = if memcg.usage() <= ceiling { ceiling } else { self.0.watermarks().target(ceiling) };
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
