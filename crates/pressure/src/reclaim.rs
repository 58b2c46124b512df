//! The trait by which a monitor reduces a group's usage.
//!
//! It keeps this crate independent of shrinkers: `lowwater` implements it for its reclaimer
//! (`runtime/monitored.rs`).
//!
//! A change must ensure that only `reclaim_to` is called with the monitor's lock held.

use core::fmt::Debug;

use lowwater_lru_core::{ByteSize, Memcg};

/// The background reclaim that a [`Monitor`](crate::Monitor) drives.
///
/// [`reclaim_to`](Self::reclaim_to) is called with the monitor's lock held: it must neither block,
/// nor use or drop the monitor, nor panic. The other methods are called without a lock.
#[doc(alias = "wakeup_kswapd")]
pub trait BackgroundReclaim: Debug + Send + Sync {
    /// Wakes background reclaim, which is to reduce the usage of `memcg` to `ceiling` or slightly
    /// below. Does not wait for it. Also called when the ceiling rises, even above the usage: then
    /// an earlier call for a lower one is void.
    fn reclaim_to(&self, memcg: &Memcg, ceiling: ByteSize);

    /// Runs the monitor's thread: calls `thread`, which returns when the monitor is dropped.
    ///
    /// The trim hook runs on this thread, and may drop the monitor or the reclaimer. So an
    /// implementation marks the thread as inside a callback, where such a drop joins no thread.
    fn run_thread(&self, thread: &mut dyn FnMut()) {
        thread();
    }

    /// Returns whether the calling thread, which is not the monitor's, may join the monitor's
    /// thread. False inside a callback that the monitor's thread may wait for.
    fn can_join(&self) -> bool {
        true
    }
}
