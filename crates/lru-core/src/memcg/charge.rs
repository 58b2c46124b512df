//! Charging: every byte is counted in its group and in all groups above, mostly from a stock.
//!
//! The fast path takes bytes from this processor's stock and touches no shared counter. A change
//! must ensure: no charge leaves `usage` above a `max` that it read, and a refused charge changes
//! nothing.

use super::group::{Memcg, Tree};
use super::limits::Limits;
use super::stock::{Take, BATCH};
use lowwater_base::ByteSize;

/// The result of a charge that succeeded: whether a group is above its `high`, so that bytes of it
/// should be reclaimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "above a `high` limit the caller is the one to ask for reclaim"]
pub enum Charged {
    /// Every group up to the root is within its `high`.
    Within,
    /// This group is above its `high`. If several are, it is the one nearest to the charged group.
    /// Reclaim should begin at this group.
    AboveHigh(Memcg),
}

/// A refused charge; nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot charge {requested} bytes: group {path} uses {used} of at most {max} bytes; reclaim from it, or raise its limit",
    path = memcg.path(), used = memcg.usage(), max = ByteSize::new(memcg.limits().max())
)]
pub struct OverLimit {
    /// The group whose `max` refused: the charged group or an ancestor. Reclaim from this group
    /// helps.
    pub memcg: Memcg,
    /// The size of the refused charge.
    pub requested: ByteSize,
}

impl Memcg {
    /// Returns the part of [`usage`](Self::usage) that is in this processor's stock, for this group
    /// or a group below it. Zero also while another thread uses that stock. O(depth).
    pub fn in_stock(&self) -> ByteSize {
        ByteSize::new(self.tree().stock().bytes_here(|group| group.is_descendant_of(self)))
    }

    /// Charges `bytes` to this group and all groups above it, if no `max` on the way refuses.
    ///
    /// Small charges are mostly served from the stock of this processor, without touching a shared
    /// line; a charge from stock returns [`Charged::Within`], since no stock is filled above a
    /// `high`, and [`set_high`](Self::set_high) drains it. (A charge that runs at the same time as
    /// that call may fill it once more; then a charge reports the group when this stock is used
    /// up.) When a `max` refuses, the stock of its group and of the groups below is drained, and
    /// the charge tried once more, so that no stock makes a charge fail. O(depth), and O(slots) for
    /// each `max` that refuses. A dying group may be charged, too: its bytes stay counted in its
    /// ancestors.
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group that refused.
    #[inline]
    #[doc(alias = "try_charge_memcg")]
    pub fn try_charge(&self, bytes: ByteSize) -> Result<Charged, OverLimit> {
        match self.tree().take_stock(self, bytes.get()) {
            Take::Taken => Ok(Charged::Within),
            take => self.try_charge_slow(bytes, take, BATCH),
        }
    }

    /// As [`try_charge`](Self::try_charge), and takes at most `stock` more bytes for the stock of
    /// this processor: for callers that have made room for several charges. O(depth).
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group that refused.
    pub fn try_charge_with_stock(&self, bytes: ByteSize, stock: ByteSize) -> Result<Charged, OverLimit> {
        let batch = bytes.saturating_add(stock).get().min(BATCH);
        match self.tree().take_stock(self, bytes.get()) {
            Take::Taken => Ok(Charged::Within),
            // A slot is not taken from another group for nothing.
            Take::ChargeBatch if batch == bytes.get() => self.try_charge_exactly(bytes),
            take => self.try_charge_slow(bytes, take, batch),
        }
    }

    /// Charges `bytes` if this processor has them in stock for this group: they were counted when
    /// the stock was filled. False: nothing is charged; [`try_charge`](Self::try_charge) may
    /// succeed. For callers that evict rather than fill the stock.
    #[inline]
    pub fn try_charge_from_stock(&self, bytes: ByteSize) -> bool {
        self.tree().take_stock_if_there(self, bytes.get())
    }

    /// As [`try_charge`](Self::try_charge), but does not fill the stock: for callers near a limit
    /// that evict as much as they charge. O(depth).
    ///
    /// # Errors
    ///
    /// [`OverLimit`], with the group that refused.
    pub fn try_charge_exactly(&self, bytes: ByteSize) -> Result<Charged, OverLimit> {
        self.try_charge_slow(bytes, Take::ChargeExactly, BATCH)
    }

    /// Charges `batch` bytes, if `take` says so, and puts those beyond `bytes` into the stock; else
    /// `bytes`.
    #[cold]
    fn try_charge_slow(&self, bytes: ByteSize, take: Take, batch: u64) -> Result<Charged, OverLimit> {
        let tree = self.tree();
        let mut refused_before = None;
        // Each iteration but the last drains the stock below another group, nearer to the root:
        // bounded by the depth.
        loop {
            // Also after a drain: the drained bytes may be enough for a batch.
            if take == Take::ChargeBatch && self.add_usage(batch, stock_max).is_ok() {
                tree.put_stock(self, batch - bytes.get());
                return Ok(Charged::Within);
            }
            match self.add_usage(bytes.get(), Limits::max) {
                Ok(()) => return Ok(self.above_high().cloned().map_or(Charged::Within, Charged::AboveHigh)),
                Err(refused)
                    if tree.stock().is_empty() || refused_before.is_some_and(|depth| refused.depth() >= depth) =>
                {
                    return Err(OverLimit { memcg: refused.clone(), requested: bytes });
                }
                Err(refused) => {
                    tree.drain_stock_bytes(|group| group.is_descendant_of(refused));
                    refused_before = Some(refused.depth());
                }
            }
        }
    }

    /// Uncharges `bytes` that were charged to this group. The group may be dying: objects outlive
    /// their group.
    ///
    /// Bytes that fit go into the stock of this processor, if it is this group's and no group up to
    /// the root is above its `high`; otherwise they are subtracted in all these groups.
    ///
    /// # Panics
    ///
    /// In debug builds, if more is uncharged than the group's [`usage`](Self::usage), in which
    /// bytes in stock hide a smaller error. Otherwise the usage stops at zero, and the groups above
    /// lose as many bytes as this one had.
    #[inline]
    #[doc(alias = "mem_cgroup_uncharge")]
    pub fn uncharge(&self, bytes: ByteSize) {
        if !self.tree().put_back_stock(self, bytes.get()) {
            let subtracted = self.sub_usage(bytes.get());
            debug_assert!(
                subtracted == bytes.get(),
                "{self:?}: {bytes} uncharged, but only {} are charged",
                ByteSize::new(subtracted)
            );
        }
    }
}

/// Returns the usage up to which stock may be filled: not above the present `high`, so that a
/// charge from stock needs no comparison.
fn stock_max(limits: &Limits) -> u64 {
    limits.max().min(limits.high())
}

// Non-inline forwarders to the stock for `Memcg`'s inline functions: one copy of each, in this
// crate.
impl Tree {
    fn take_stock(&self, memcg: &Memcg, bytes: u64) -> Take {
        self.stock().take(memcg, bytes)
    }

    fn take_stock_if_there(&self, memcg: &Memcg, bytes: u64) -> bool {
        self.stock().take_if_there(memcg, bytes)
    }

    fn put_back_stock(&self, memcg: &Memcg, bytes: u64) -> bool {
        self.stock().put_back(memcg, bytes, || memcg.above_high().is_none())
    }
}
