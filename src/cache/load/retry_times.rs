//! The times from which a key may be reloaded again, if its reload fails.
//!
//! A reload stores its key's retry time, [`RETRY`] from now, when it begins, and removes that time
//! when the new value is in the cache: so any other end counts as a failure, a panic and a drop
//! included. A record has no space for the time, and few reloads are in progress or have failed
//! just now, so the times are in a map by the hash of the key. Times that have passed are removed
//! when the map has doubled since the last removal: the map has at most twice as many times as
//! reloads had begun within [`RETRY`] at that removal, and [`FEW`] more.
//!
//! A change must ensure that the map stays bounded.

use std::collections::HashMap;
use std::time::Duration;

use once_cell::race::OnceBox;
use parking_lot::Mutex;

use crate::cache::expiry::deadline::Now;

/// The duration after the begin of a failed reload in which the key is not reloaded again.
/// Documented at [`Refresh`](crate::cache::Refresh).
const RETRY: Duration = Duration::from_secs(1);
/// The number of stored times up to which none is removed because it has passed.
const FEW: usize = 64;

/// The retry times of a cache. A null pointer before the first reload.
#[derive(Default)]
pub(crate) struct RetryTimes(OnceBox<Mutex<Times>>);

struct Times {
    /// The retry times by hash, in nanoseconds of the cache's clock.
    by_hash: HashMap<u64, u64>,
    /// When there are more stored times than this, those that have passed are removed.
    most: usize,
}

impl Default for Times {
    fn default() -> Self {
        Self { by_hash: HashMap::new(), most: FEW }
    }
}

impl RetryTimes {
    /// Begins a reload of this hash and returns true, unless the hash's retry time has not come
    /// yet.
    pub(crate) fn try_begin(&self, hash: u64, now: Now) -> bool {
        let mut times = self.0.get_or_init(Box::default).lock();
        if times.by_hash.get(&hash).is_some_and(|at| *at > now.at) {
            return false;
        }
        times.by_hash.insert(hash, now.at + RETRY.as_nanos() as u64);
        if times.by_hash.len() > times.most {
            times.by_hash.retain(|_, at| *at > now.at);
            times.most = 2 * times.by_hash.len() + FEW;
            let most = times.most;
            times.by_hash.shrink_to(most);
        }
        true
    }

    /// Removes the retry time of this hash, as its reload has succeeded.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(times) = self.0.get() {
            times.lock().by_hash.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::expiry::deadline::Floor;

    #[test]
    fn passed_times_are_removed_and_others_kept() {
        let (times, second) = (RetryTimes::default(), RETRY.as_nanos() as u64);
        let now = |at| Now { at, floor: Floor::default() };
        for round in 0..100 {
            for hash in 0..200 {
                assert!(times.try_begin(round * 200 + hash, now(round * second)));
            }
            let len = times.0.get().expect("reloads have begun").lock().by_hash.len();
            assert!(len <= 2 * 200 + FEW, "{round} {len}");
            let may_begin = |hash: &u64| times.try_begin(round * 200 + hash, now((round + 1) * second - 1));
            assert_eq!((0..200).filter(may_begin).count(), 0, "{round}");
        }
        assert!(times.try_begin(99 * 200, now(100 * second)), "the time has passed");
        assert!(!times.try_begin(99 * 200, now(100 * second)));
        times.forget(99 * 200);
        assert!(times.try_begin(99 * 200, now(100 * second)), "the reload has succeeded");
    }
}
