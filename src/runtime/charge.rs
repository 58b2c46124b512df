//! Charging a group, with bounded direct reclaim.
//!
//! An insert of a cache ends here where its own evictions made no room, or where all limits are far
//! away and a whole stock fits (`cache/charge.rs`). Each round tries the charge, then reclaims from
//! the (group, shrinker) pairs of least utility, then reclaims directly, and at last waits for
//! objects that other threads are about to free.
//!
//! A change must ensure that the loop stays bounded in objects and time, and waits for nothing
//! inside a callback of this runtime.

use std::time::{Duration, Instant};

use lowwater_lru_core::{ByteSize, Memcg, OverLimit};

use lowwater_shrinker::{DirectStop, Reclaim, ReclaimReason, Work};

use super::handle::Runtime;
use super::retired::Known;
use super::sweep_progress::SweepProgress;

/// Rounds that a charge may make even after its deadline: a thread that was preempted has not used
/// all of its time. Both steps of a round are bounded by `direct_time_max` each.
const ROUNDS_MIN: u32 = 8;

/// The most objects that the first round scans in the pairs of least utility; each further round
/// scans twice as many, up to `SCAN_MAX`.
const SCAN_FIRST: u64 = 64;
const SCAN_MAX: u64 = 1_024;

/// Waits of a charge, before it is refused, for readers or another thread's sweep that hold back
/// removed entries.
const SWEEP_WAITS_MAX: usize = 8;

/// Time of one wait for objects that other threads are about to free.
const IN_FLIGHT_WAIT: Duration = Duration::from_micros(50);

impl Runtime {
    /// Charges `bytes` to `group`, and reclaims memory if there is no room. The caller uncharges
    /// the bytes by [`Memcg::uncharge`].
    ///
    /// Direct reclaim goes on while it frees objects, until the builder's
    /// [`direct_time_max`](super::RuntimeBuilder::direct_time_max) is over, plus the time of one
    /// callback. As the thread may have been preempted, it makes 8 rounds all the same: each for
    /// twice that time at most, plus two visits of a shrinker. If nothing is left to free, but
    /// another thread is inside a callback or evicts from a cache that is busy for this one
    /// ([`Scan::Busy`](lowwater_shrinker::Scan::Busy)), the charge waits for it, for the same time.
    /// Before it is refused, entries that were removed and that no reader holds back are dropped,
    /// as their values may have charges: within that time, but all caches are visited, O(caches).
    /// Within that time, too, the charge waits for readers up to 8 times, for 50 us each. After an
    /// attempt in vain, a charge does neither for a millisecond. The calling thread must not hold a
    /// lock that a shrinker's callback or a value's `Drop` takes.
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group whose `max` refused; nothing is charged. If `requested` is
    /// more than that `max`, the charge does not fit before the `max` rises: pressure may have
    /// lowered the root's, and that of a group that is being dropped is 0. Otherwise the reclaimer
    /// has been woken, and a later try may succeed.
    ///
    /// # Panics
    ///
    /// If the group belongs to another runtime, whose shrinkers this runtime cannot call.
    pub fn charge(&self, group: &Memcg, bytes: ByteSize) -> Result<(), OverLimit> {
        assert!(self.owns(group), "charge: the group {} is one of another runtime", group.path());
        let (mut deadline, mut has_swept) = (None, false);
        for round in 1.. {
            let over = match group.try_charge(bytes) {
                Ok(_) => {
                    self.inner.reclaimer.charged(group);
                    return Ok(());
                }
                Err(over) => over,
            };
            // Also the groups above the one that refused: what one of them never has room for must
            // evict nothing.
            let mut groups = std::iter::successors(Some(group), |memcg| memcg.parent());
            if let Some(memcg) = groups.find(|memcg| bytes > memcg.max()) {
                return Err(OverLimit { memcg: memcg.clone(), requested: bytes });
            }
            let (memcg, max) = (&over.memcg, over.memcg.max());
            self.inner.reclaimer.wake(memcg, ReclaimReason::Limit);
            let time_max = self.inner.direct_time_max;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + time_max);
            // A sum that overflows does not fit, even without a limit.
            let fits = || memcg.usage().get().checked_add(bytes.get()).is_some_and(|sum| sum <= max.get());
            let before = memcg.usage();
            let scan = SCAN_MAX.min(SCAN_FIRST << (round - 1).min(16));
            let mut work = Work::objects(scan).while_not(&fits).within(time_max);
            let done = self.inner.registry.shrink_least_useful(memcg, None, Reclaim::FOREGROUND, &mut work);
            if done.freed > 0 {
                // Charges inside of evicted values end when the values are dropped. In the first
                // round, freed bytes may have gone to this processor's stock.
                if round > 1 && !has_swept && !fits() && memcg.usage() >= before {
                    has_swept = true;
                    self.sweep_retired();
                }
                if Instant::now() < deadline {
                    continue;
                }
                if fits() {
                    if round < ROUNDS_MIN {
                        continue;
                    }
                    // The last try follows: another thread may take the room again and again.
                    break;
                }
            } else if done.scanned >= scan && scan < SCAN_MAX && Instant::now() < deadline {
                // Objects with a second chance have used it: a larger scan follows, before all
                // pairs give a part.
                continue;
            }
            let outcome = self.inner.registry.direct_reclaim(memcg, Reclaim::FOREGROUND, &fits);
            if round >= ROUNDS_MIN && Instant::now() >= deadline {
                break;
            }
            if outcome.scanned > 0 {
                // Objects that were scanned and not freed have used their second chance: the next
                // round may free them.
                continue;
            }
            let may_be_freed = match outcome.stopped {
                DirectStop::Done | DirectStop::ScanBound | DirectStop::TimeBound => continue,
                // Another thread evicts from a cache that is busy for this one.
                DirectStop::Busy => true,
                // Another thread inside a callback may have taken objects off their list, and
                // uncharges them before it leaves.
                DirectStop::NothingLeft => self.inner.registry.has_calls_in_flight(),
                DirectStop::InScope => false,
            };
            if !may_be_freed {
                break;
            }
            // Not a spin: that thread may wait for this processor.
            std::thread::sleep(IN_FLIGHT_WAIT);
        }
        // Another thread may have freed memory since the last try.
        match group.try_charge(bytes) {
            Err(_) if self.retired().is_search_due() => self.charge_after_sweeps(group, bytes, deadline),
            charged => charged.map(|_| ()),
        }
    }

    /// Charges `bytes` once removed entries, whose values may have charges, are dropped.
    fn charge_after_sweeps(&self, group: &Memcg, bytes: ByteSize, deadline: Option<Instant>) -> Result<(), OverLimit> {
        let (mut waits, mut progress) = (0, SweepProgress::of(self.retired()));
        loop {
            let swept = self.sweep_retired();
            let charged = group.try_charge(bytes).map(|_| ());
            if charged.is_ok() || swept == Swept::InCallback {
                return charged;
            }
            let is_late = deadline.is_none_or(|deadline| Instant::now() >= deadline);
            let has_dropped = matches!(swept, Swept::Dropped(1..));
            if has_dropped && !is_late {
                continue;
            }
            // The needed records may be in a cache that was not visited yet.
            if progress.is_made(is_late) {
                if swept == Swept::ByAnother {
                    std::thread::sleep(IN_FLIGHT_WAIT);
                }
                continue;
            }
            // A reader, or another thread that sweeps, may hold back what is needed.
            if is_late || waits == SWEEP_WAITS_MAX || !self.retired().may_drop_more() {
                // This sweep, or another thread's, may make room for the next charge.
                if !has_dropped && swept != Swept::ByAnother {
                    self.retired().note_fruitless();
                }
                return charged;
            }
            waits += 1;
            std::thread::sleep(IN_FLIGHT_WAIT);
        }
    }

    /// Drops a part of the removed entries, as [`sweep`](super::retired::Retired::sweep).
    fn sweep_retired(&self) -> Swept {
        let Some(_scope) = self.inner.registry.first_no_reclaim_scope() else { return Swept::InCallback };
        self.retired().sweep(Known::All).map_or(Swept::ByAnother, Swept::Dropped)
    }
}

/// The outcome of a sweep of a charge over removed entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// The caller is inside a callback, where nothing is dropped: a value that inserts when it is
    /// dropped could otherwise drop another one, without bound.
    InCallback,
    /// Another thread sweeps: this one has dropped nothing.
    ByAnother,
    /// As many entries were dropped.
    Dropped(usize),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lowwater_store::slab::RetiredBytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::runtime::maintenance::MaintenanceId;
    use crate::runtime::retired::Retires;

    #[test]
    fn a_late_charge_delays_the_next_search() {
        let budget = ByteSize::mib(1);
        let runtime = Runtime::builder().budget(budget).direct_time_max(Duration::ZERO).build().unwrap();
        runtime.charge(runtime.root(), budget).unwrap();
        // This thread may be suspended for longer than the pause.
        let is_delayed = (0..1_000).any(|_| {
            assert!(runtime.charge(runtime.root(), ByteSize::new(1)).is_err());
            !runtime.retired().is_search_due()
        });
        assert!(is_delayed);
        runtime.root().uncharge(budget);
    }

    /// A cache that charges while it is swept. For the charge, another caller sweeps.
    struct ChargesInSweep {
        runtime: Runtime,
        is_search_due: Mutex<Option<bool>>,
    }

    impl Retires for ChargesInSweep {
        fn start_grace_period(&self, _known: Known) -> bool {
            assert!(self.runtime.charge(self.runtime.root(), ByteSize::new(1)).is_err());
            *self.is_search_due.lock() = Some(self.runtime.retired().is_search_due());
            false
        }

        fn drop_some(&self, _entries: usize, _known: Known) -> usize {
            0
        }
    }

    #[test]
    fn a_late_charge_beside_another_sweep_delays_no_search() {
        let budget = ByteSize::mib(1);
        let runtime = Runtime::builder().budget(budget).direct_time_max(Duration::ZERO).build().unwrap();
        runtime.charge(runtime.root(), budget).unwrap();
        let cache = Arc::new(ChargesInSweep { runtime: runtime.clone(), is_search_due: Mutex::default() });
        let retires: Arc<dyn Retires> = Arc::clone(&cache) as _;
        runtime.retired().add(MaintenanceId(1), Arc::downgrade(&retires));
        let _dropped = runtime.retired().sweep(Known::All);
        assert_eq!(*cache.is_search_due.lock(), Some(true));
        runtime.retired().remove(MaintenanceId(1));
        runtime.root().uncharge(budget);
    }

    /// A cache beside whose visits another thread drops a retired entry of one byte each.
    struct FallsInSweep(Arc<RetiredBytes>);

    /// A cache of which each visit drops one entry. With the drop, the charge of the entry's value
    /// ends, if there is one.
    struct DropsOne(Option<(Memcg, ByteSize)>);

    impl Retires for DropsOne {
        fn start_grace_period(&self, _known: Known) -> bool {
            true
        }

        fn drop_some(&self, _entries: usize, _known: Known) -> usize {
            self.0.iter().for_each(|(group, bytes)| group.uncharge(*bytes));
            1
        }
    }

    #[test]
    fn a_late_charge_is_not_refused_before_all_caches_were_visited() {
        let budget = ByteSize::mib(1);
        let runtime = Runtime::builder().budget(budget).direct_time_max(Duration::ZERO).build().unwrap();
        runtime.charge(runtime.root(), budget).unwrap();
        let caches: Vec<Arc<dyn Retires>> = (0..1_000)
            .map(|n| Arc::new(DropsOne((n == 999).then(|| (runtime.root().clone(), budget)))) as Arc<dyn Retires>)
            .collect();
        (1..).zip(&caches).for_each(|(id, cache)| runtime.retired().add(MaintenanceId(id), Arc::downgrade(cache)));
        let charged = runtime.charge(runtime.root(), ByteSize::new(1));
        assert!(charged.is_ok(), "{charged:?}");
        runtime.root().uncharge(ByteSize::new(1));
        (1..=1_000).for_each(|id| runtime.retired().remove(MaintenanceId(id)));
    }

    impl Retires for FallsInSweep {
        fn start_grace_period(&self, _known: Known) -> bool {
            self.0.add(-1);
            false
        }

        fn drop_some(&self, _entries: usize, _known: Known) -> usize {
            0
        }
    }

    #[test]
    fn a_late_charge_waits_for_no_end_of_another_threads_drops() {
        let budget = ByteSize::mib(1);
        let runtime = Runtime::builder().budget(budget).direct_time_max(Duration::ZERO).build().unwrap();
        runtime.charge(runtime.root(), budget).unwrap();
        let cache: Arc<dyn Retires> = Arc::new(FallsInSweep(runtime.retired().count()));
        runtime.retired().add(MaintenanceId(1), Arc::downgrade(&cache));
        runtime.retired().count().add(10_000);
        assert!(runtime.charge(runtime.root(), ByteSize::new(1)).is_err());
        let dropped = 10_000 - runtime.retired().bytes().get();
        assert!(dropped <= 2, "{dropped} drops: one sweep, and one more for a lap over all caches");
        runtime.retired().remove(MaintenanceId(1));
        runtime.root().uncharge(budget);
    }
}
