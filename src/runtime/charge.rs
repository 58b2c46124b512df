//! Charging a group, with bounded direct reclaim.

use std::time::Instant;

use lowwater_lru_core::{ByteSize, Memcg, OverLimit};

use lowwater_shrinker::{DirectStop, Reclaim, ReclaimReason, Work};

use super::handle::Runtime;

/// Rounds of direct reclaim that a charge may make even if its time is over: a thread that was not running for a while has had
/// the time, but not the use of it.
const ROUNDS_MIN: u32 = 8;

/// Objects that one round looks at where memory earns least.
const SCAN_MAX: u64 = 1_024;

impl Runtime {
    /// Takes `bytes` for `group`, and frees some if they are not there. Give them back with [`Memcg::uncharge`].
    ///
    /// Bounded: as long as it pays, for the builder's [`direct_time_max`](super::RuntimeBuilder::direct_time_max) and one callback's time
    /// beyond; or for a few rounds, should the thread be kept from running for that long. The thread must hold no lock that a
    /// shrinker's callback takes.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] names the group whose `max` was in the way. If `requested` is more than that `max` it never fits; otherwise the
    /// reclaimer is at work, and it is worth trying again in a while.
    ///
    /// # Panics
    ///
    /// For a group of another runtime, of whose caches this one knows nothing.
    pub fn charge(&self, group: &Memcg, bytes: ByteSize) -> Result<(), OverLimit> {
        assert!(self.owns(group), "charge: the group {} is one of another runtime", group.path());
        let mut deadline = None;
        for round in 1.. {
            let over = match group.try_charge(bytes) {
                Ok(_) => {
                    self.inner.reclaimer.charged(group);
                    return Ok(());
                }
                Err(over) => over,
            };
            let (memcg, max) = (&over.memcg, over.memcg.max());
            if bytes > max {
                return Err(over);
            }
            self.inner.reclaimer.wake(memcg, ReclaimReason::Limit);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.inner.direct_time_max);
            // What is more than can be counted does not fit, also where there is no limit.
            let fits = || memcg.usage().get().checked_add(bytes.get()).is_some_and(|sum| sum <= max.get());
            let mut work = Work::objects(SCAN_MAX).while_not(&fits);
            if self.inner.registry.shrink_least_useful(memcg, None, Reclaim::FOREGROUND, &mut work).freed > 0
                && (fits() || Instant::now() < deadline)
            {
                continue;
            }
            let outcome = self.inner.registry.direct_reclaim(memcg, Reclaim::FOREGROUND, &fits);
            // Objects that were looked at, and not freed, were given a second chance: the next round may find them without.
            let hopeless =
                outcome.scanned == 0 && matches!(outcome.stopped, DirectStop::NothingLeft | DirectStop::InScope);
            if hopeless || (round >= ROUNDS_MIN && Instant::now() >= deadline) {
                break;
            }
        }
        // Once more: somebody else may have freed what we did not.
        group.try_charge(bytes).map(|_| ())
    }
}
