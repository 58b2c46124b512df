//! Charges a group for an insert: from stock first, then by evicting from the cache or shrinker
//! whose memory is least useful, then by direct reclaim.
//!
//! ```text
//!     enough in the processor's stock,
//!     and few retired bytes?            take the bytes from the stock, and return
//!     many retired bytes?               drop those that no reader holds back; if the bytes do not
//!                                       fit, wait for readers, or reject (`runtime::retired`)
//!     above the min watermark or high?  evict a batch, from the cache or shrinker whose memory is
//!                                       least useful; at most twice
//!     close to a limit?                 charge, with a stock for one batch of records only
//!     far from it, or refused           the runtime's charge, with its direct reclaim
//! ```
//!
//! The reclaimer is woken at the low watermark, before inserts run short of memory. An insert
//! evicts only if the reclaimer has fallen behind (usage above the min watermark), or if usage
//! would exceed `high`. Each of its two evictions frees at most 8 records; with more than 16 pairs
//! (`ALL_MAX` of `utility/pairs.rs`) at most 15, from several pairs. Direct reclaim may free more.
//!
//! A change must ensure that a charge is taken before the record is in the index, that it is
//! returned on every path that does not insert, and that an insert inside a callback drops no
//! retired record.

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_shrinker::{Reclaim, Work};

use super::error::RejectReason;
use super::handle::Cache;
use super::policy::tenant::Tenant;
use crate::runtime::{smallest_limit, Known, SweepProgress};

/// Batches that one insert evicts. More than one, to catch up with inserts that have found no
/// victim.
const BATCHES_MAX: u32 = 2;
/// The most records that an insert scans for each batch: more than a batch, as the first may only
/// lose a use.
const SCAN_MAX: u64 = 256;
/// Time of one wait for readers.
const READERS_WAIT: Duration = Duration::from_micros(100);
/// The least number of waits for readers: on a busy machine one wait may take as long as a charge
/// may take, and the reader may not have run yet.
const READERS_WAITS_MIN: u32 = 8;
/// The most leftovers of large caches that one insert drops: other threads may end caches as fast.
const LEFTOVERS_MAX: u32 = 64;
/// The stock that a charge far from all limits may add to its own bytes: a full stock slot, as
/// `BATCH` in `memcg/stock.rs` of `lowwater-lru-core` says.
const STOCK: ByteSize = ByteSize::kib(32);
/// Near a limit, the stock is for the records of one batch: this many, with the charged one. An
/// insert evicts as many (`BATCH_MAX` in `least_useful/victim.rs` of `lowwater-shrinker`).
const BATCH: u64 = 8;
/// Near a limit, the stock of one processor is at most the smallest limit of the group and its
/// ancestors, divided by this.
const STOCK_PARTS: u64 = 64;
/// The stocks of all processors together are at most that limit, divided by this.
const ALL_STOCKS_PARTS: u64 = 8;

/// The free memory for a charge in a group and in all its ancestors, as far as their limits and
/// watermarks decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room<'a> {
    /// Enough for the charge and a whole stock; or the record is larger than a `max`, and never
    /// fits.
    Ample,
    /// Enough for the charge, but not for a whole stock.
    Near,
    /// Too little: this is the nearest group whose usage, with the charge, would be above its min
    /// watermark or its `high`.
    Short(&'a Memcg),
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Charges `group`, whose tenant in this cache is `tenant`, for a record; evicts if there is
    /// too little free memory. Most inserts need only
    /// [`charge_from_stock`](Self::charge_from_stock).
    #[inline(never)]
    pub(super) fn charge(&self, group: &Memcg, bytes: ByteSize, tenant: Option<&Tenant>) -> Result<(), RejectReason> {
        if self.charge_from_stock(group, bytes) {
            return Ok(());
        }
        // A record that never fits is refused as such below, without a wait for readers.
        if self.inner.runtime.retired().is_much() && may_fit(group, bytes) {
            self.look_at_retired(bytes)?;
        }
        if self.evict_and_charge(group, bytes, tenant) {
            return Ok(());
        }
        let runtime = &self.inner.runtime;
        runtime.charge(group, bytes).map_err(|over| {
            let (group, max) = (over.memcg.try_path().unwrap_or_default(), over.memcg.max());
            // Pressure may have lowered the root's `max` below the budget, for a while.
            let is_for_now = || over.memcg == *runtime.root() && bytes <= runtime.budget_without_pressure();
            match bytes > max && !is_for_now() {
                true => RejectReason::TooLarge { bytes, group, max },
                false => RejectReason::NoRoom { bytes, group },
            }
        })
    }

    /// As [`charge`](Self::charge), for a caller in the read side: without direct reclaim and
    /// waits, as the caller itself holds back what they would wait for. Returns false if that does
    /// not suffice.
    pub(super) fn charge_pinned(&self, group: &Memcg, bytes: ByteSize, tenant: Option<&Tenant>) -> bool {
        let runtime = &self.inner.runtime;
        if runtime.retired().is_much() && !runtime.retired().has_room_for(bytes) {
            return false;
        }
        let is_charged = group.try_charge_from_stock(bytes)
            || self.evict_and_charge(group, bytes, tenant)
            || group.try_charge(bytes).is_ok();
        if is_charged {
            runtime.reclaimer().charged(group);
        }
        is_charged
    }

    /// Drops a part of the retired records, if they are many: after a
    /// [`charge_pinned`](Self::charge_pinned), outside of the read side.
    #[inline]
    pub(super) fn sweep_if_due(&self) {
        let runtime = &self.inner.runtime;
        if runtime.retired().is_much() && runtime.retired().is_sweep_due() {
            // Not inside a callback, as in `look_at_retired`.
            let scope = runtime.registry().first_no_reclaim_scope();
            let _swept = scope.map(|_scope| runtime.retired().sweep(Known::Reported));
        }
    }

    /// Evicts up to [`BATCHES_MAX`] batches if there is too little free memory, and charges `group`
    /// if it is close to a limit. Returns false if nothing is charged.
    #[inline]
    fn evict_and_charge(&self, group: &Memcg, bytes: ByteSize, tenant: Option<&Tenant>) -> bool {
        let runtime = &self.inner.runtime;
        let mut room = self.room(group, bytes);
        for _ in 0..BATCHES_MAX {
            let Room::Short(limit) = room else { break };
            let needy = tenant.and_then(|tenant| self.inner.core.queues.pair(group, tenant));
            let mut work = Work::one_batch(SCAN_MAX).within(runtime.direct_time_max());
            runtime.registry().shrink_least_useful(limit, needy, Reclaim::FOREGROUND, &mut work);
            room = self.room(group, bytes);
        }
        // Near a limit there is no free memory for a whole stock, so the stock is only for the
        // records of one batch.
        if !matches!(room, Room::Ample) {
            let stock = stock_near_limit(bytes, smallest_limit(group), runtime.tree().stock_slots());
            if group.try_charge_with_stock(bytes, stock).is_ok() {
                runtime.reclaimer().charged(group);
                return true;
            }
        }
        false
    }

    /// Charges `group` for a record, if this processor's stock has the bytes and few bytes are
    /// retired. Takes no lock but the stock's, and evicts nothing.
    #[inline]
    pub(super) fn charge_from_stock(&self, group: &Memcg, bytes: ByteSize) -> bool {
        !self.inner.runtime.retired().is_much() && group.try_charge_from_stock(bytes)
    }

    /// Returns the free memory for `bytes` more in `group` and in all its ancestors. O(depth).
    pub(super) fn room<'a>(&self, group: &'a Memcg, bytes: ByteSize) -> Room<'a> {
        let marks = self.inner.runtime.reclaimer().watermarks();
        let mut above = Some(group);
        let mut room = Room::Ample;
        while let Some(memcg) = above {
            let max = memcg.max();
            if bytes > max {
                return Room::Ample;
            }
            let (after, usage_max) = (memcg.usage().saturating_add(bytes), marks.min(max).min(memcg.high()));
            if !matches!(room, Room::Short(_)) && after.saturating_add(STOCK) > usage_max {
                // Stock is charged but unused, so it is subtracted. `in_stock` is read only if the
                // first test does not decide already.
                let is_short = after > usage_max && after.saturating_sub(memcg.in_stock()) > usage_max;
                room = if is_short { Room::Short(memcg) } else { Room::Near };
            }
            above = memcg.parent();
        }
        room
    }

    /// Drops a part of the retired records, if they are many. If readers hold back so much that
    /// `bytes` do not fit, waits for readers, for at most the time limit of a charge or
    /// [`READERS_WAITS_MIN`] waits, whichever is longer, and the rest of a lap over all caches.
    /// Inside a callback rejects instead.
    #[cold]
    fn look_at_retired(&self, bytes: ByteSize) -> Result<(), RejectReason> {
        let runtime = &self.inner.runtime;
        let retired = runtime.retired();
        // Inside a callback no retired record is dropped: a value whose `Drop` inserts could
        // otherwise drop another one, without bound.
        let sweep = || {
            let scope = runtime.registry().first_no_reclaim_scope();
            scope.map(|_scope| retired.sweep(Known::Reported))
        };
        if retired.has_room_for(bytes) {
            if retired.is_sweep_due() && matches!(sweep(), Some(None | Some(0))) {
                // Lets a reader run that was preempted and holds back the records.
                std::thread::yield_now();
            }
            return Ok(());
        }
        let deadline = Instant::now() + runtime.direct_time_max();
        let (mut waits, mut leftovers, mut progress) = (0, 0, SweepProgress::of(retired));
        loop {
            let swept = sweep();
            if retired.has_room_for(bytes) {
                return Ok(());
            }
            let root = runtime.root();
            if root.usage().saturating_add(bytes) > root.max().saturating_add(retired.allowance()) {
                // A limit was lowered, and the reclaimer has not freed enough yet: the end of no
                // reader would help.
                return Err(RejectReason::NoRoom { bytes, group: root.try_path().unwrap_or_default() });
            }
            // Records that no reader holds back may be in a cache that was not visited yet.
            let is_late = Instant::now() >= deadline;
            if swept.is_some() && progress.is_made(is_late) {
                if swept == Some(None) {
                    std::thread::sleep(READERS_WAIT);
                }
                continue;
            }
            if swept.is_none() || waits >= READERS_WAITS_MIN && is_late {
                // No reader holds back the entries that a large cache has left.
                let drop_leftover = |_scope| runtime.housekeeper().drop_leftover();
                if leftovers < LEFTOVERS_MAX && runtime.registry().first_no_reclaim_scope().is_some_and(drop_leftover) {
                    leftovers += 1;
                    continue;
                }
                let (retired, allowed) = (retired.bytes(), retired.allowance());
                return Err(RejectReason::HeldByReaders { bytes, retired, allowed });
            }
            waits += 1;
            // Sleeps, as the reader may be a thread that waits for this processor.
            std::thread::sleep(READERS_WAIT);
        }
    }
}

/// Returns whether a record of `bytes` is within the `max` of `group` and of its ancestors.
/// O(depth).
fn may_fit(group: &Memcg, bytes: ByteSize) -> bool {
    std::iter::successors(Some(group), |memcg| memcg.parent()).all(|memcg| bytes <= memcg.max())
}

/// Returns the stock that a charge of `bytes` may add near `limit`, in a tree with `slots` stocks:
/// for the records of one batch, if all stocks together leave most of the limit to records.
fn stock_near_limit(bytes: ByteSize, limit: ByteSize, slots: usize) -> ByteSize {
    let parts = STOCK_PARTS.max(slots as u64 * ALL_STOCKS_PARTS);
    ByteSize::new(bytes.get().saturating_mul(BATCH - 1).min(limit.get() / parts))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lowwater_store::slab::RetiredBytes;

    use super::*;
    use crate::runtime::{MaintenanceId, Retires, Runtime};

    #[test]
    fn near_a_limit_all_stocks_are_at_most_an_eighth_of_it() {
        let limit = ByteSize::kib(64);
        for slots in [0, 1, 2, 8, 9, 64, 1_000] {
            let stock = stock_near_limit(ByteSize::kib(4), limit, slots);
            assert!(stock.get() <= limit.get() / 64, "{slots} slots: {stock}");
            assert!(stock.get() * slots as u64 <= limit.get() / 8, "{slots} slots: {stock} each");
        }
        assert_eq!(stock_near_limit(ByteSize::new(100), limit, 2), ByteSize::new(700), "seven more records");
        assert_eq!(stock_near_limit(ByteSize::new(100), ByteSize::ZERO, 2), ByteSize::ZERO);
    }

    /// A cache with retired entries of one byte each: each visit drops some, or another thread
    /// drops one beside it.
    struct DropsInSweep {
        bytes: Arc<RetiredBytes>,
        by_this_thread: bool,
    }

    impl Retires for DropsInSweep {
        fn start_grace_period(&self, _known: Known) -> bool {
            self.bytes.add(-i64::from(!self.by_this_thread));
            self.by_this_thread
        }

        fn drop_some(&self, entries: usize, _known: Known) -> usize {
            self.bytes.add(-(entries as i64));
            entries
        }
    }

    /// Inserts a record while the retired bytes are 64 KiB above the bound, and returns the bytes
    /// that are dropped before it is refused.
    fn dropped_by_an_insert(by_this_thread: bool) -> u64 {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).direct_time_max(Duration::ZERO).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        let retired = runtime.retired();
        let drops: Arc<dyn Retires> = Arc::new(DropsInSweep { bytes: retired.count(), by_this_thread });
        retired.add(MaintenanceId(u64::MAX / 2), Arc::downgrade(&drops));
        let before = ByteSize::mib(17) + ByteSize::kib(64);
        retired.count().add(before.get() as i64);
        let refused = cache.insert(1, 1).map_err(|error| error.reason);
        assert!(matches!(refused, Err(RejectReason::HeldByReaders { .. })), "{refused:?}");
        let dropped = before.saturating_sub(retired.bytes());
        retired.remove(MaintenanceId(u64::MAX / 2));
        retired.count().add(-(retired.bytes().get() as i64));
        dropped.get()
    }

    #[test]
    fn a_late_insert_waits_for_no_end_of_drops() {
        // A lap over two caches, and a sweep after each wait.
        let sweeps = u64::from(READERS_WAITS_MIN) + 3;
        let dropped = dropped_by_an_insert(false);
        assert!(dropped <= sweeps, "{dropped} drops of another thread");
        let dropped = dropped_by_an_insert(true);
        assert!(dropped <= 256 * sweeps, "{dropped} drops of this thread");
    }
}
