//! The bytes that are charged to a group for one foreign cache.
//!
//! A foreign cache changes its weight by itself. So after each update and each eviction the charge
//! is *settled*: raised or lowered to the present weight. The charge moves in steps of [`STEP`]
//! bytes, so that most updates compare two numbers and charge nothing:
//!
//! ```text
//!     weight <= charged < weight + 2 steps      after a settlement, if no other thread updates
//! ```
//!
//! `charged` is never more than the bytes that are charged to the group: a raise charges first and
//! adds to `charged` afterwards, and a lowering subtracts from `charged` first. Two threads that
//! raise at once may charge too much; the next settlement returns the excess.
//!
//! A lowering may race with another thread's update:
//!
//! ```text
//!     thread A                            thread B
//!       reads the weight                    adds entries to the cache
//!       lower_to(the weight it read)        compares the weight with `charged`: enough
//!       compares the weight again: raises
//! ```
//!
//! If B compares before A lowers `charged`, then B added its entries before that, so the weight
//! that A reads again, after it released the lock of `charged`, includes them. So each thread that
//! has lowered the charge compares the weight again.
//!
//! A change must ensure that no lock is held while bytes are charged: a charge reclaims.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lowwater::lru_core::OverLimit;
use lowwater::shrinker::NoReclaim;
use lowwater::{ByteSize, Memcg, Runtime};

/// The charge is a multiple of this number of bytes.
pub(crate) const STEP: u64 = 16 << 10;

/// The charge of one foreign cache.
#[derive(Debug)]
pub(crate) struct Balance {
    runtime: Runtime,
    group: Memcg,
    charged: Mutex<ByteSize>,
}

impl Balance {
    pub(crate) fn new(runtime: &Runtime, group: Memcg) -> Self {
        Self { runtime: runtime.clone(), group, charged: Mutex::default() }
    }

    pub(crate) fn group(&self) -> &Memcg {
        &self.group
    }

    pub(crate) fn charged(&self) -> ByteSize {
        *self.lock()
    }

    /// Returns the most that can be charged, in whole steps: the least `max` of the group and those
    /// above it. O(depth).
    pub(crate) fn max(&self) -> ByteSize {
        let groups = std::iter::successors(Some(&self.group), |group| group.parent());
        let max = groups.map(Memcg::max).min().unwrap_or_default();
        ByteSize::new(max.get() / STEP * STEP)
    }

    /// Keeps this thread's charges from reclaiming. `None` if they are kept from that already, or
    /// without memory.
    pub(crate) fn no_reclaim_scope(&self) -> Option<NoReclaim<'_>> {
        self.runtime.registry().first_no_reclaim_scope()
    }

    /// Charges the bytes that a cache of this weight needs beyond the present charge. Reclaims at a
    /// limit, from this cache as well, so no lock of the cache may be held.
    pub(crate) fn raise_to(&self, weight: ByteSize) -> Result<(), OverLimit> {
        self.raise_by(weight, |steps| self.runtime.charge(&self.group, steps))
    }

    /// As [`raise_to`](Self::raise_to), without reclaim: for a thread that may be inside a scan, or
    /// where only this cache could give way.
    pub(crate) fn try_raise_to(&self, weight: ByteSize) -> Result<(), OverLimit> {
        self.raise_by(weight, |steps| self.group.try_charge(steps).map(|_above| ()))
    }

    fn raise_by(
        &self,
        weight: ByteSize,
        charge: impl FnOnce(ByteSize) -> Result<(), OverLimit>,
    ) -> Result<(), OverLimit> {
        let missing = weight - self.charged();
        if missing == ByteSize::ZERO {
            return Ok(());
        }
        let steps = ByteSize::new(missing.get().div_ceil(STEP).saturating_mul(STEP));
        charge(steps)?;
        *self.lock() += steps;
        Ok(())
    }

    /// Charges as many of the bytes that a cache of this weight needs as are free below the limit
    /// that refused a charge, in whole steps.
    pub(crate) fn raise_to_limit(&self, weight: ByteSize, over: &OverLimit) {
        // Another thread may have freed more than is needed since the charge was refused.
        let missing = (weight - self.charged()).get().div_ceil(STEP).saturating_mul(STEP);
        let room = over.memcg.max() - over.memcg.usage();
        let steps = ByteSize::new(room.get().min(missing) / STEP * STEP);
        if steps > ByteSize::ZERO && self.group.try_charge(steps).is_ok() {
            *self.lock() += steps;
        }
    }

    /// Uncharges the bytes that a cache of this weight does not need. Returns whether there were
    /// any: then the caller compares the weight again.
    pub(crate) fn lower_to(&self, weight: ByteSize) -> bool {
        let keep = ByteSize::new(weight.get().div_ceil(STEP).saturating_mul(STEP));
        let mut charged = self.lock();
        let excess = *charged - keep;
        // An excess of one step is kept, so that an insert after an eviction charges nothing.
        let spare = if keep == ByteSize::ZERO { 0 } else { STEP };
        if excess.get() <= spare {
            return false;
        }
        *charged -= excess;
        drop(charged);
        self.group.uncharge(excess);
        true
    }

    /// Locks `charged`. Ignores poison: no panic leaves `charged` half changed.
    fn lock(&self) -> MutexGuard<'_, ByteSize> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        self.group.uncharge(self.charged());
    }
}
