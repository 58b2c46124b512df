//! Charges a group for an insert: stock first, then the runtime, which frees memory where it earns least.
//!
//! ```text
//!     much is retired?                drop what no reader holds; wait, or be rejected (`runtime::retired`)
//!     in this processor's stock?      taken
//!     far above the low watermark?    a batch is evicted, of whichever cache or shrinker earns least by its memory, twice at most
//!     else                            the runtime's charge, with its direct reclaim
//! ```
//!
//! The reclaimer is woken at the low watermark and works ahead of need. An insert evicts only where the reclaimer falls behind, and
//! then 16 records at most, unless it comes to direct reclaim.

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_shrinker::{Reclaim, Work};

use super::error::RejectReason;
use super::handle::Cache;
use super::policy::tenant::Tenant;

/// Batches that one insert evicts: more than one, to catch up with inserts that have found no victim.
const BATCHES_MAX: u32 = 2;
/// Records that it looks at for each of them.
const SCAN_MAX: u64 = 256;
/// How long readers are waited for at a time.
const READERS_WAIT: Duration = Duration::from_micros(100);
/// The stock that a charge may take in addition.
const STOCK: ByteSize = ByteSize::kib(32);

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Charges `group`, whose tenant is `tenant`, for a record; frees memory if there is not enough.
    pub(super) fn charge(&self, group: &Memcg, bytes: ByteSize, tenant: Option<&Tenant>) -> Result<(), RejectReason> {
        let runtime = &self.inner.runtime;
        if runtime.retired().is_much() {
            self.look_at_retired(bytes)?;
        }
        if group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        for _ in 0..BATCHES_MAX {
            let Some(limit) = self.short(group, bytes) else { break };
            let needy = tenant.and_then(|tenant| self.inner.core.queues.pair(group, tenant));
            runtime.registry().shrink_least_useful(limit, needy, Reclaim::FOREGROUND, &mut Work::one_batch(SCAN_MAX));
        }
        if group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        // What is taken for the stock would be used up before anybody made room for it.
        if self.short(group, bytes.saturating_add(STOCK)).is_some() && group.try_charge_exactly(bytes).is_ok() {
            runtime.reclaimer().charged(group);
            return Ok(());
        }
        runtime.charge(group, bytes).map_err(|over| {
            let (group, max) = (over.memcg.path(), over.memcg.max());
            match bytes > max {
                true => RejectReason::TooLarge { bytes, group, max },
                false => RejectReason::NoRoom { bytes, group },
            }
        })
    }

    /// The nearest group in which the reclaimer has fallen behind, or that is above its `high`; none also for a record that never
    /// fits.
    pub(super) fn short<'a>(&self, group: &'a Memcg, bytes: ByteSize) -> Option<&'a Memcg> {
        let marks = self.inner.runtime.reclaimer().watermarks();
        let is_short = |memcg: &Memcg, usage: ByteSize| {
            let after = usage.saturating_add(bytes);
            after > memcg.high() || marks.is_min(after, memcg.max())
        };
        let mut above = Some(group);
        let mut short = None;
        while let Some(memcg) = above {
            if bytes > memcg.max() {
                return None;
            }
            // What is in stock is not used yet; mostly it need not be asked for.
            let usage = memcg.usage();
            if short.is_none() && is_short(memcg, usage) && is_short(memcg, usage.saturating_sub(memcg.in_stock())) {
                short = Some(memcg);
            }
            above = memcg.parent();
        }
        short
    }

    /// Drops a part of what readers have left, where there is much. Where they hold back so much
    /// that there is no room for so many bytes, lets them run for as long as a charge may take.
    #[cold]
    fn look_at_retired(&self, bytes: ByteSize) -> Result<(), RejectReason> {
        let runtime = &self.inner.runtime;
        let retired = runtime.retired();
        // Inside a callback nothing is dropped: a value whose drop inserts could have another one
        // dropped, without end.
        let sweep = || runtime.registry().first_no_reclaim_scope().map(|_scope| retired.sweep());
        if retired.has_room_for(bytes) {
            if retired.is_sweep_due() && sweep() == Some(0) {
                std::thread::yield_now();
            }
            return Ok(());
        }
        let deadline = Instant::now() + runtime.direct_time_max();
        loop {
            let swept = sweep();
            if retired.has_room_for(bytes) {
                return Ok(());
            }
            if swept.is_none() || Instant::now() >= deadline {
                let (retired, allowed) = (retired.bytes(), retired.allowance());
                return Err(RejectReason::HeldByReaders { bytes, retired, allowed });
            }
            if swept == Some(0) {
                // The reader may be a thread that waits for this processor.
                std::thread::sleep(READERS_WAIT);
            }
        }
    }
}
