//! A clock that advances by calls only, for tests of expiry.
//!
//! A clock has a list of the caches that follow it, so that an advance is complete when it returns:
//! each cache has removed its expired entries. A change must ensure that no lock is held while a
//! cache is swept, as its listener may advance the clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lowwater_shrinker::CallbackScope;

use super::maintenance::MaintenanceId;
use super::visit_list::VisitList;

/// The most time by which a clock can be advanced, in nanoseconds: 30 years. Deadlines last for 34.
const ADVANCED_MAX: u64 = 30 * 365 * 86_400 * 1_000_000_000;

/// A clock that stands still until [`advance`](Self::advance), for tests; given to
/// [`RuntimeBuilder::clock`](super::RuntimeBuilder::clock). This is a handle: clones are the same
/// clock.
///
/// Only the deadlines of entries follow the clock. Waits and time limits of the runtime (direct
/// reclaim, pressure, the pauses of the reaper) stay in real time.
///
/// ```
/// use lowwater::runtime::ManualClock;
/// use lowwater::{Cache, Runtime};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
/// let cache = Cache::<u64, String>::builder(&runtime)
///     .weigher(|_, text| text.capacity())
///     .time_to_live(Duration::from_secs(60))
///     .build()?;
/// cache.insert(1, "one".into())?;
/// clock.advance(Duration::from_secs(59));
/// assert!(cache.contains_key(&1));
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(cache.len(), 0, "the advance has removed the entry");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<ManualTime>);

/// The time of a manual clock, and the caches that follow it.
#[derive(Default)]
struct ManualTime {
    /// Nanoseconds by which the clock was advanced.
    advanced: AtomicU64,
    caches: VisitList<dyn FollowsClock>,
}

/// A cache that follows a manual clock.
pub(crate) trait FollowsClock: Send + Sync {
    /// Removes all records that have expired, after the clock was advanced. If `waits`, waits for
    /// removals that other threads have begun. Runs user code.
    fn catch_up(&self, waits: bool);
}

impl ManualClock {
    /// Creates a clock that stands at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock, by any step, and removes the entries that have expired from the caches
    /// of all runtimes with this clock. O(entries of these caches).
    ///
    /// Removal listeners run on this thread, as in [`Cache::retain`](crate::Cache::retain): a panic
    /// in one is caught. Outside of callbacks the call also waits for removals that the runtime's
    /// threads have begun, so a listener must not wait for a thread that advances the clock. The
    /// deadline of an entry that another thread inserts during the call may
    /// be counted from the time before. Aborts the process without memory for the list of these
    /// caches.
    ///
    /// # Panics
    ///
    /// If the clock is advanced by more than 30 years in all: then the clock does not change.
    pub fn advance(&self, time: Duration) {
        self.step(time);
        let (caches, waits) = (&self.0.caches, !CallbackScope::is_inside());
        caches.ids().into_iter().filter_map(|id| caches.visit(id)).for_each(|cache| cache.catch_up(waits));
    }

    fn step(&self, time: Duration) {
        let advance = |advanced: u64| {
            let time = u64::try_from(time.as_nanos()).ok()?;
            advanced.checked_add(time).filter(|sum| *sum <= ADVANCED_MAX)
        };
        // Relaxed: a thread that must see the advance synchronizes with this thread by other means.
        let advanced = self.0.advanced.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        assert!(advanced.is_ok(), "a manual clock cannot be advanced by more than 30 years");
    }

    /// Advances the clock without sweeps of the caches.
    #[cfg(test)]
    pub(crate) fn jump(&self, time: Duration) {
        self.step(time);
    }

    /// Returns the sum of all calls of [`advance`](Self::advance), on this handle and its clones:
    /// at most 30 years.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds())
    }

    pub(crate) fn nanoseconds(&self) -> u64 {
        // Relaxed: as in `step`.
        self.0.advanced.load(Ordering::Relaxed)
    }

    /// Adds a cache, which follows the clock until [`remove`](Self::remove).
    pub(crate) fn add(&self, id: MaintenanceId, cache: Weak<dyn FollowsClock>) {
        self.0.caches.add(id, cache);
    }

    /// Removes a cache: its last handle is being dropped. Waits until no
    /// advance visits the cache, unless the caller is inside a callback.
    pub(crate) fn remove(&self, id: MaintenanceId) {
        self.0.caches.remove(id);
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
