//! The trait by which a monitor brings a group's usage down.

use core::fmt::Debug;

use lowwater_lru_core::{ByteSize, Memcg};

/// The background reclaim that a [`Monitor`](crate::Monitor) drives.
///
/// [`reclaim_to`](Self::reclaim_to) is called with the monitor's lock held: it must neither wait, nor use or drop the monitor, nor
/// panic. The other methods are called without a lock.
#[doc(alias = "wakeup_kswapd")]
pub trait BackgroundReclaim: Debug + Send + Sync {
    /// Wakes background reclaim: `memcg`'s usage is to come down, to `ceiling` or somewhat below. Does not wait for it.
    fn reclaim_to(&self, memcg: &Memcg, ceiling: ByteSize);

    /// Runs the monitor's thread, which returns when the monitor is dropped. An implementation whose callbacks may drop a monitor
    /// marks the thread here as inside a callback, so that the end of other threads is not waited for on this one.
    fn run_thread(&self, thread: &mut dyn FnMut()) {
        thread();
    }

    /// Whether the calling thread may wait for the monitor's thread to end: not inside a callback, for which that thread may itself
    /// wait.
    fn can_join(&self) -> bool {
        true
    }
}
