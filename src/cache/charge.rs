//! Charges a group for an insert: stock first, then eviction, then direct reclaim.
//!
//! ```text
//!     much is retired?                drop what no reader holds; wait, or be rejected (`runtime::retired`)
//!     in this processor's stock?      taken
//!     nearly used up?                 a victim is evicted from (`policy::victim`), twice at most
//!     else                            the runtime's charge, with its direct reclaim
//! ```
//!
//! Evicted bytes mostly stay in the processor's stock for the next inserts of that tenant, which then evict nothing: so a
//! full cache stays full at a steady pace, and the reclaimer sleeps. An insert evicts 16 records at most, unless it comes to
//! direct reclaim.

use std::hash::{BuildHasher, Hash};
use std::time::Instant;

use lowwater_lru_core::{ByteSize, Memcg};

use super::error::RejectReason;
use super::handle::Cache;
use super::policy::tenant::Tenant;
use super::policy::victim::RoomRequest;

/// Evictions of one insert: more than one, to catch up with inserts that have found no victim.
const ROOMS_MAX: u32 = 2;
/// A tenant that scans leaves this part of a shared limit free.
const LEFT_PARTS: u64 = 64;
/// The stock that a charge may take in addition.
const STOCK: ByteSize = ByteSize::kib(32);

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Charges `group`, whose tenant is `tenant`, for a record of this hash; frees memory if there is not enough.
    pub(super) fn charge(
        &self,
        group: &Memcg,
        bytes: ByteSize,
        tenant: Option<&Tenant>,
        hash: u64,
    ) -> Result<(), RejectReason> {
        let (core, runtime) = (&self.inner.core, &self.inner.runtime);
        if runtime.retired().is_much() {
            self.look_at_retired(bytes)?;
        }
        let is_scanning = tenant.is_some_and(|tenant| {
            tenant.note_insert();
            tenant.is_scanning()
        });
        // A tenant that scans does not get free memory.
        if !is_scanning && group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        for _ in 0..ROOMS_MAX {
            let Some(limit) = self.short(group, bytes, is_scanning) else { break };
            core.make_room(&RoomRequest { runtime, memcg: group, limit, bytes, tenant, is_scanning, random: hash });
        }
        if group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        // What is taken for the stock would be used up before anybody made room for it.
        if self.short(group, bytes.saturating_add(STOCK), is_scanning).is_some()
            && group.try_charge_exactly(bytes).is_ok()
        {
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

    /// The nearest group whose memory is nearly used up; none also for a record that never fits. For a tenant that
    /// `is_scanning`, memory is used up sooner where other tenants want it, too.
    pub(super) fn short<'a>(&self, group: &'a Memcg, bytes: ByteSize, is_scanning: bool) -> Option<&'a Memcg> {
        let marks = self.inner.runtime.reclaimer().watermarks();
        let is_short = |memcg: &Memcg, usage: ByteSize| {
            let left = if is_scanning && memcg != group { memcg.max().get() / LEFT_PARTS } else { 0 };
            let after = usage.saturating_add(bytes).saturating_add(ByteSize::new(left));
            after > memcg.high() || marks.is_near(after, memcg.max())
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
                std::thread::yield_now();
            }
        }
    }
}
