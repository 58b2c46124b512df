//! The four limits of a group: their meaning, getters and setters.
//!
//! | limit | default | meaning |
//! |---|---|---|
//! | `min` | 0 | reclaim does not touch a group that uses no more than this |
//! | `low` | 0 | if usage is at most this, reclaim touches the group last |
//! | `high` | none | charges above it succeed, and report that reclaim should begin |
//! | `max` | none | charges that would exceed it fail |
//!
//! `min` and `low` do not protect the group at which the reclaim starts, and they protect a group
//! below it only as far as its ancestors' `min` and `low` allow (`protection.rs`).
//!
//! A change must ensure that each limit keeps the meaning of cgroup v2's file of that name, except
//! that `high` throttles no thread; and that `set_max` stores a lower `max` before it drains the
//! stock (invariant 4 of `stock.rs`).

use super::group::Memcg;
use lowwater_base::ByteSize;

/// # Limits
///
/// In bytes, as cgroup v2's `memory.min`, `.low`, `.high` and `.max`, but `high` throttles no
/// thread. Each may be set at any time and to any value. All apply at once: a `max` below `min`
/// still refuses charges, and a `low` adds nothing to a `min` that protects as much.
impl Memcg {
    /// Returns the usage up to which reclaim does not touch the group, unless the reclaim starts at
    /// the group, and as far as its ancestors' `min` allows ([`protection`](Self::protection)). 0
    /// unless set.
    #[doc(alias = "memory.min")]
    pub fn min(&self) -> ByteSize {
        ByteSize::new(self.limits().min.setting())
    }

    /// Returns the usage up to which reclaim touches the group only when nothing else gives enough,
    /// unless the reclaim starts at the group, and as far as its ancestors' `low` allows
    /// ([`protection`](Self::protection)). 0 unless set.
    #[doc(alias = "memory.low")]
    pub fn low(&self) -> ByteSize {
        ByteSize::new(self.limits().low.setting())
    }

    /// Returns the usage above which charges request reclaim. [`ByteSize::MAX`] unless set.
    #[doc(alias = "memory.high")]
    #[inline]
    pub fn high(&self) -> ByteSize {
        ByteSize::new(self.limits().high())
    }

    /// Returns the usage above which charges fail. [`ByteSize::MAX`] unless set.
    #[doc(alias = "memory.max")]
    #[inline]
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

    /// Sets [`high`](Self::high). Nothing is reclaimed by this call: a charge above the new value
    /// requests it, at the latest when the stock that was charged before is used up.
    pub fn set_high(&self, high: ByteSize) {
        self.limits().set_high(high.get());
    }

    /// Sets [`max`](Self::max). It may be below the usage: then charges fail until enough is
    /// uncharged. Nothing is reclaimed by this call. A concurrent charge on another thread may
    /// still use the old value.
    ///
    /// A lower `max` drains the stock of the group and of the groups below it, so that nothing is
    /// charged from stock either: O(slots).
    pub fn set_max(&self, max: ByteSize) {
        if max.get() < self.limits().swap_max(max.get()) {
            self.tree().drain_stock(|memcg| memcg.is_descendant_of(self));
        }
    }
}
