//! Charging: every byte is counted in its group and in all groups above.
//!
//! # In pseudo-code
//!
//! ```text
//!     for group in self, parent, .., root:
//!         usage' = group.usage + bytes;  usage' > group.max?  take back what was added below, fail
//!         compare_exchange(group.usage, usage')
//! ```
//!
//! The kernel's page counters add first and take back when the sum is too high, so that for an instant the counter is above
//! the limit, and a second charge may fail because of one that fails itself. Here a counter is changed only to a value that
//! its limit allows. (Below the group that refuses, bytes are counted for an instant that will not stay, so there a second
//! charge may still fail in vain. The caller reclaims and tries again, as after any other failure.)
//!
//! # Invariants
//!
//! 1. No charge takes `usage` above the `max` it read.
//! 2. When nothing is in progress, the `usage` of a group is the sum of what is charged to it and the groups below and not
//!    uncharged, plus what is in [stock](super::stock) for those.

use crate::memcg::stock::{Take, BATCH};
use crate::memcg::Memcg;
use crate::mutated;
use crate::sync::atomic::Ordering;
use crate::unit::Bytes;

/// A charge that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "above a `high` limit the caller is the one to ask for reclaim"]
pub enum Charged {
    /// Every group up to the root is within its `high`.
    Within,
    /// This group is above its `high`; of several, the one nearest to the charged group. Reclaim should begin there.
    AboveHigh(Memcg),
}

/// A charge was refused; nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot charge {requested} bytes: group {path} uses {used} of at most {max} bytes; reclaim from it, or raise its max",
    path = memcg.path(), used = memcg.usage(), max = memcg.max()
)]
pub struct OverLimit {
    /// The group whose `max` refused: the charged group or an ancestor. Reclaim from here helps.
    pub memcg: Memcg,
    /// What was to be charged.
    pub requested: Bytes,
}

impl Memcg {
    /// Bytes charged to this group and the groups below it, and at most 32 KiB for each stock slot on top.
    #[doc(alias = "memory.current")]
    pub fn usage(&self) -> Bytes {
        // Relaxed: a number that moves; limits are kept by the compare-exchange in `add_usage`.
        Bytes::new(self.core().usage.load(Ordering::Relaxed))
    }

    /// Of [`usage`](Self::usage), what is not used yet, but in this processor's stock for this group or one below it. Zero also while
    /// another thread is at that stock. O(depth).
    pub fn in_stock(&self) -> Bytes {
        Bytes::new(self.tree().stock().below(self))
    }

    /// Charges `bytes` to this group and all groups above it, if no `max` on the way refuses.
    ///
    /// Small charges are mostly served from the stock of this processor, without touching a shared line; a charge from stock
    /// answers [`Charged::Within`], since no stock is ever taken above a `high`. When a `max` refuses, the stock of the groups
    /// below it is drained, and the charge tried once more, so that no stock makes a charge fail. O(depth), and O(slots) for
    /// each `max` that refuses. A dying group may be charged, too: its ancestors carry it.
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group that refused.
    #[inline]
    #[doc(alias = "try_charge_memcg")]
    pub fn try_charge(&self, bytes: Bytes) -> Result<Charged, OverLimit> {
        match self.tree().stock().take(self, bytes.get()) {
            Take::Taken => Ok(Charged::Within),
            take => self.try_charge_slow(bytes, take),
        }
    }

    /// Charges `bytes` if this processor has them in stock for this group: they were counted when they came there. False: nothing is
    /// charged; [`try_charge`](Self::try_charge) may do it. For callers that rather give something back than take stock.
    #[inline]
    pub fn try_charge_from_stock(&self, bytes: Bytes) -> bool {
        self.tree().stock().take_if_there(self, bytes.get())
    }

    /// As [`try_charge`](Self::try_charge), and takes nothing for the stock: for callers that give something back for what they take,
    /// near a limit. O(depth).
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group that refused.
    pub fn try_charge_exactly(&self, bytes: Bytes) -> Result<Charged, OverLimit> {
        self.try_charge_slow(bytes, Take::ChargeExactly)
    }

    #[cold]
    fn try_charge_slow(&self, bytes: Bytes, take: Take) -> Result<Charged, OverLimit> {
        let stock = self.tree().stock();
        if take == Take::ChargeBatch && self.add_usage(BATCH, Memcg::stock_max).is_ok() {
            let rest = BATCH - bytes.get();
            if !stock.put(self, rest) {
                self.sub_usage(rest);
            }
            return Ok(Charged::Within);
        }
        let mut refused_before = None;
        // Each turn but the last drains what is in stock below another group, nearer to the root: bounded by the depth.
        loop {
            match self.add_usage(bytes.get(), Memcg::max) {
                Ok(()) => return Ok(self.above_high().map_or(Charged::Within, Charged::AboveHigh)),
                Err(refused) if stock.is_empty() || refused_before.is_some_and(|depth| refused.depth() >= depth) => {
                    return Err(OverLimit { memcg: refused.clone(), requested: bytes });
                }
                Err(refused) => {
                    stock.empty(refused);
                    refused_before = Some(refused.depth());
                }
            }
        }
    }

    /// Takes back what was charged to this group, or a part of it. The group may be dying: objects outlive their group.
    ///
    /// What fits goes into the stock of this processor, if that holds this group's; the rest is subtracted up to the root.
    ///
    /// # Panics
    ///
    /// In debug builds, if more is uncharged than was charged. Otherwise the count stops at zero.
    #[inline]
    #[doc(alias = "mem_cgroup_uncharge")]
    pub fn uncharge(&self, bytes: Bytes) {
        if !self.tree().stock().put_back(self, bytes.get()) {
            self.sub_usage(bytes.get());
        }
    }

    /// Counts `bytes` here and in all groups above, within what `limit` says for each. An error names the group that refused.
    fn add_usage(&self, bytes: u64, limit: impl Fn(&Memcg) -> Bytes) -> Result<(), &Memcg> {
        // Bounded by the depth.
        for memcg in self.ancestry() {
            // Relaxed: the counter is only a number; nobody reads memory on the strength of it. What must be exact, must not
            // be above the limit, is in the exchange of one word. Here and for the exchange.
            let add = |usage: u64| usage.checked_add(bytes).filter(|sum| *sum <= limit(memcg).get());
            let usage = &memcg.core().usage;
            if mutated!("charge without exchange") {
                // Relaxed: it is wrong anyway.
                usage.store(add(usage.load(Ordering::Relaxed)).unwrap_or(0), Ordering::Relaxed);
            } else if usage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
                self.sub_usage_below(memcg, bytes);
                return Err(memcg);
            }
        }
        self.refresh_chain();
        Ok(())
    }

    /// Takes `bytes` out here and in all groups above.
    pub(super) fn sub_usage(&self, bytes: u64) {
        self.ancestry().for_each(|memcg| memcg.sub_own(bytes));
        self.refresh_chain();
    }

    /// Takes `bytes` out here and in the groups above that are below `end`.
    fn sub_usage_below(&self, end: &Memcg, bytes: u64) {
        self.ancestry().take_while(|memcg| *memcg != end).for_each(|memcg| memcg.sub_own(bytes));
        self.refresh_chain();
    }

    fn sub_own(&self, bytes: u64) {
        let sub = |usage: u64| Some(usage.saturating_sub(bytes));
        // Relaxed: as in `add_usage`. An update that cannot fail.
        let before = self.core().usage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).unwrap_or(0);
        debug_assert!(before >= bytes, "{self:?}: {bytes} bytes uncharged, but only {before} are charged");
    }

    /// What stock may be taken up to: never above a `high`, so that a charge served from it need not look.
    fn stock_max(&self) -> Bytes {
        self.max().min(self.high())
    }

    /// Does no group on the way up use more than its `max`? Then none was lowered below what is used.
    pub(super) fn is_within_max(&self) -> bool {
        self.ancestry().all(|memcg| memcg.usage() <= memcg.max())
    }

    fn above_high(&self) -> Option<Memcg> {
        self.ancestry().find(|memcg| memcg.usage() > memcg.high()).cloned()
    }
}
