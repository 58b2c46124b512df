//! The four limits of a group: their meaning, getters and setters.
//!
//! | limit | default | meaning |
//! |---|---|---|
//! | `min` | 0 | reclaim does not touch a group that uses no more than this |
//! | `low` | 0 | reclaim touches such a group only when nothing else gives enough |
//! | `high` | max | charges above it succeed, and report that reclaim should begin |
//! | `max` | max | charges that would exceed it fail |
//!
//! A change must ensure that each limit keeps the meaning of cgroup v2's file of that name, and
//! that `set_max` stores a lower `max` before it drains the stock (invariant 4 of `stock.rs`).

use super::group::Memcg;
use lowwater_base::ByteSize;

/// # Limits
///
/// In bytes, as cgroup v2's `memory.min`, `.low`, `.high` and `.max`. Each may be set at any time
/// and to any value; where two contradict each other, the stricter one applies.
impl Memcg {
    /// Returns the usage below which reclaim does not touch the group. 0 unless set.
    #[doc(alias = "memory.min")]
    pub fn min(&self) -> ByteSize {
        ByteSize::new(self.limits().min.setting())
    }

    /// Returns the usage below which reclaim touches the group only when nothing else gives enough.
    /// 0 unless set.
    #[doc(alias = "memory.low")]
    pub fn low(&self) -> ByteSize {
        ByteSize::new(self.limits().low.setting())
    }

    /// Returns the usage above which charges request reclaim. [`ByteSize::MAX`] unless set.
    #[doc(alias = "memory.high")]
    pub fn high(&self) -> ByteSize {
        ByteSize::new(self.limits().high())
    }

    /// Returns the usage above which charges fail. [`ByteSize::MAX`] unless set.
    #[doc(alias = "memory.max")]
    pub fn max(&self) -> ByteSize {
        ByteSize::new(self.limits().max())
    }

    /// Sets [`min`](Self::min). A dying group protects nothing, whatever is set.
    pub fn set_min(&self, min: ByteSize) {
        self.set_guarantee(|limits| &limits.min, min);
    }

    /// Sets [`low`](Self::low). A dying group protects nothing, whatever is set.
    pub fn set_low(&self, low: ByteSize) {
        self.set_guarantee(|limits| &limits.low, low);
    }

    /// Sets [`high`](Self::high).
    pub fn set_high(&self, high: ByteSize) {
        self.limits().set_high(high.get());
    }

    /// Sets [`max`](Self::max). It may be below the usage: then charges fail until enough is
    /// uncharged. A concurrent charge on another thread may still use the old value.
    ///
    /// A lower `max` drains the stock of the group and of the groups below it, so that nothing is
    /// charged from stock either: O(slots).
    pub fn set_max(&self, max: ByteSize) {
        if max.get() < self.limits().swap_max(max.get()) {
            self.tree().drain_stock(|memcg| memcg.is_descendant_of(self));
        }
    }
}
