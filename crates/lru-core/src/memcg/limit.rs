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
//! that `high` throttles no thread; and that `set_max` and `set_high` store a lower limit before
//! they drain the stock (invariant 4 of `stock.rs`), and call the hooks last, when it is in effect.

use super::group::Memcg;
#[cfg(doc)]
use super::group::OfflineHook;
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

    /// Sets [`high`](Self::high). It may be below the usage: then reclaim begins as described at
    /// [`set_max`](Self::set_max), and charges succeed meanwhile.
    ///
    /// A lower `high` drains stock as a lower `max` does, so that the next charge is compared with
    /// it: O(slots).
    pub fn set_high(&self, high: ByteSize) {
        if high.get() < self.limits().swap_high(high.get()) {
            self.report_lowered(high);
        }
    }

    /// Sets [`max`](Self::max). It may be below the usage: then charges fail until enough is
    /// uncharged. This call reclaims nothing itself. It wakes the reclaimer of the tree, if there
    /// is one, as in a `lowwater::Runtime` ([`OfflineHook::limit_lowered`]). A concurrent charge on
    /// another thread may still use the old value.
    ///
    /// A lower `max` drains the stock of the group and of the groups below it, so that nothing is
    /// charged from stock either: O(slots).
    pub fn set_max(&self, max: ByteSize) {
        if max.get() < self.limits().swap_max(max.get()) {
            self.report_lowered(max);
        }
    }

    /// Sets [`max`](Self::max) as [`set_max`](Self::set_max) does, but calls no hook: for callers
    /// that reclaim themselves, or on whose thread no hook may run.
    #[doc(hidden)]
    pub fn set_max_unreported(&self, max: ByteSize) {
        if max.get() < self.limits().swap_max(max.get()) {
            self.drain_stock();
        }
    }

    /// Sets [`max`](Self::max) to 0 without a report, before the owner of the tree removes the
    /// group's objects: reclaimers ignore the group's `max` from now on, for ever.
    #[doc(hidden)]
    pub fn begin_drop(&self) {
        self.limits().begin_drop();
        self.set_max_unreported(ByteSize::ZERO);
    }

    /// Returns the `max` that a reclaimer has to bring the usage below: [`max`](Self::max), or none
    /// while the group's objects are left to the owner of the tree.
    #[doc(hidden)]
    pub fn reclaim_max(&self) -> ByteSize {
        ByteSize::new(self.limits().reclaim_max())
    }

    fn drain_stock(&self) {
        self.tree().drain_stock(|memcg| memcg.is_descendant_of(self));
    }

    /// Drains the stock of the group and of the groups below it, and calls the hooks if the usage
    /// is above a limit that was lowered to `limit`.
    ///
    /// A charge that runs at the same time may read the old limit while its bytes are not in the
    /// usage that is read here: then it is the group's next charge that requests reclaim.
    #[cold]
    fn report_lowered(&self, limit: ByteSize) {
        self.drain_stock();
        if self.usage() > limit {
            self.tree().hooks().for_each(|hook| hook.limit_lowered(self));
        }
    }
}
