//! The budget for values that are being received.
//!
//! A value that is being received belongs to no tenant: a key that names a new tenant creates that
//! tenant only with the complete value, and many stores change nothing in the end. But its bytes
//! take memory from the first one on, and a client may stop in the middle. So the received bytes
//! are charged to the root group in small steps: the memory is part of the budget, and stored
//! values are evicted to make room for it. All values being received may take at most half the
//! budget, or clients that never finish could empty the cache. One value at a time is exempt from
//! this bound until it is stored or abandoned: otherwise, if many values were each received in
//! part, none could be completed.
//!
//! A stored value is charged to its tenant. So the charge of the reception is uncharged just before
//! the store, and charged again while the store waits for room.
//!
//! Not charged: the first 4 KiB of each value, so that small values cost nothing; the connection's
//! buffer; and the overhead of the allocator and of the table of pieces, about one percent at most.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater::{ByteSize, Runtime};

/// Bytes of each value that are not charged.
pub const FREE_BYTES: u64 = 4 * 1024;

/// Granularity of reservations, so that a long value changes the shared count rarely.
const STEP_BYTES: u64 = 64 * 1024;

/// The reserved bytes of all values that are being received; at most half the budget, except for
/// one exempt value.
#[derive(Debug)]
pub struct ReceiveBudget {
    runtime: Runtime,
    /// Whether stored values may be evicted when the budget is full.
    evict: bool,
    /// The bytes by which the shared bound is higher for the exempt value.
    item_bytes_max: u64,
    /// Reserved bytes of all values. They count against the shared bound, and are charged to the
    /// budget as well, except while their value is being stored.
    bytes: AtomicU64,
    /// Whether a value is exempt from the shared bound.
    exempt: AtomicBool,
}

impl ReceiveBudget {
    /// Creates a budget with nothing reserved.
    pub fn new(runtime: &Runtime, evict: bool, item_bytes_max: usize) -> Arc<Self> {
        let (runtime, item_bytes_max) = (runtime.clone(), item_bytes_max as u64);
        Arc::new(Self { runtime, evict, item_bytes_max, bytes: AtomicU64::new(0), exempt: AtomicBool::new(false) })
    }

    /// Returns the bytes reserved now.
    pub fn bytes(&self) -> ByteSize {
        // Relaxed: read for statistics only.
        ByteSize::new(self.bytes.load(Ordering::Relaxed))
    }

    /// Reserves and charges `bytes` more bytes, unless the shared bound (the higher one, if
    /// `exempt`) or the budget would be exceeded.
    fn reserve(&self, bytes: u64, exempt: bool) -> bool {
        let more = if exempt { self.item_bytes_max } else { 0 };
        let max = self.runtime.root().max().get() / 2 + more;
        let add = |before: u64| before.checked_add(bytes).filter(|&after| after <= max);
        // Relaxed, both: the count bounds the reservations, and guards no other memory.
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        let charged = self.charge(bytes);
        if !charged {
            self.release(bytes);
        }
        charged
    }

    fn release(&self, bytes: u64) {
        // Relaxed: the count guards no other memory (see `reserve`).
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn charge(&self, bytes: u64) -> bool {
        let (root, bytes) = (self.runtime.root(), ByteSize::new(bytes));
        let has_room = || root.usage().saturating_add(bytes) <= root.max();
        // As for a stored value: without evictions, a charge may not reclaim memory.
        let may = self.evict || has_room() || {
            self.runtime.tree().drain_stock();
            has_room()
        };
        may && self.runtime.charge(root, bytes).is_ok()
    }

    fn uncharge(&self, bytes: u64) {
        self.runtime.root().uncharge(ByteSize::new(bytes));
    }
}

/// A value's part of the [`ReceiveBudget`]; dropping it uncharges and releases the bytes.
#[derive(Debug, Default)]
pub struct ReceiveCharge {
    /// `None`: the value is not charged.
    receive_budget: Option<Arc<ReceiveBudget>>,
    /// The value's length.
    length: u64,
    /// Bytes reserved for the value.
    bytes: u64,
    /// Bytes charged for the value: those reserved, or 0 after an [`uncharge`](Self::uncharge).
    charged: u64,
    /// Whether this value is the exempt one.
    exempt: bool,
}

impl ReceiveCharge {
    /// Creates the charge of a value of `length` bytes, none of which has been received.
    pub fn new(receive_budget: Option<&Arc<ReceiveBudget>>, length: usize) -> Self {
        let length = length as u64;
        // Most values are short, and need no shared count.
        Self { receive_budget: receive_budget.filter(|_| length > FREE_BYTES).cloned(), length, ..Self::default() }
    }

    /// Charges the first `length` bytes of the value, and returns whether there was room. Must not
    /// be called after [`uncharge`](Self::uncharge).
    pub fn charge_up_to(&mut self, length: usize) -> bool {
        let Some(receive_budget) = &self.receive_budget else { return true };
        let missing = (length as u64).saturating_sub(FREE_BYTES + self.bytes);
        if missing == 0 {
            return true;
        }
        let more = missing.next_multiple_of(STEP_BYTES).min(self.length - FREE_BYTES - self.bytes);
        let taken = receive_budget.reserve(more, self.exempt) || {
            // Relaxed: the flag is a token, and guards no other memory.
            self.exempt = self.exempt || !receive_budget.exempt.swap(true, Ordering::Relaxed);
            self.exempt && receive_budget.reserve(more, true)
        };
        if taken {
            self.bytes += more;
            self.charged += more;
        }
        taken
    }

    /// Uncharges the complete value, before its tenant is charged. The bytes stay reserved.
    pub fn uncharge(&mut self) {
        if let Some(receive_budget) = self.receive_budget.as_ref().filter(|_| self.charged > 0) {
            receive_budget.uncharge(self.charged);
            self.charged = 0;
        }
    }

    /// Charges the value again, if there is room; the bytes stay reserved either way.
    pub fn recharge(&mut self) {
        if let Some(receive_budget) = self.receive_budget.as_ref().filter(|_| self.charged < self.bytes) {
            if receive_budget.charge(self.bytes) {
                self.charged = self.bytes;
            }
        }
    }
}

impl Drop for ReceiveCharge {
    fn drop(&mut self) {
        self.uncharge();
        if let Some(receive_budget) = &self.receive_budget {
            receive_budget.release(self.bytes);
            if self.exempt {
                // Relaxed: the flag is a token, and guards no other memory.
                receive_budget.exempt.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_budget(evict: bool) -> (Runtime, Arc<ReceiveBudget>) {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let receive_budget = ReceiveBudget::new(&runtime, evict, 300_000);
        (runtime, receive_budget)
    }

    fn charged(runtime: &Runtime) -> u64 {
        runtime.tree().drain_stock();
        runtime.root().usage().get()
    }

    #[test]
    fn received_bytes_are_charged_and_released() {
        const FREE: usize = FREE_BYTES as usize;
        let (runtime, receive_budget) = receive_budget(true);
        let mut small = ReceiveCharge::new(Some(&receive_budget), FREE);
        assert!(small.charge_up_to(FREE));
        assert_eq!(charged(&runtime), 0, "small values are not charged");
        let mut charge = ReceiveCharge::new(Some(&receive_budget), 200_000);
        for (length, expected) in [
            (FREE, 0),
            (FREE + 1, 64 << 10),
            (FREE + (64 << 10), 64 << 10),
            (FREE + (64 << 10) + 1, 128 << 10),
            (200_000, 200_000 - FREE_BYTES),
        ] {
            assert!(charge.charge_up_to(length));
            assert_eq!((charged(&runtime), receive_budget.bytes().get()), (expected, expected), "{length}");
        }
        charge.uncharge();
        assert_eq!(
            (charged(&runtime), receive_budget.bytes().get()),
            (0, 200_000 - FREE_BYTES),
            "the bytes stay reserved"
        );
        charge.recharge();
        charge.recharge();
        assert_eq!(charged(&runtime), 200_000 - FREE_BYTES);
        drop(charge);
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 0));
    }

    #[test]
    fn all_values_share_half_the_budget_and_one_is_exempt() {
        const EACH: u64 = 88_000 - FREE_BYTES;
        let (runtime, receive_budget) = receive_budget(true);
        let mut charges: Vec<_> = (0..10).map(|_| ReceiveCharge::new(Some(&receive_budget), 88_000)).collect();
        let reached: Vec<_> = (0..10).filter(|&n| charges[n].charge_up_to(88_000)).collect();
        assert_eq!(reached, [0, 1, 2, 3, 4, 5, 6], "six take half the budget, and the seventh is exempt");
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (7 * EACH, 7 * EACH));
        assert!(charges.remove(6).exempt);
        assert!(charges[6].charge_up_to(88_000) && charges[6].exempt, "then another value is exempt");
        charges.drain(..6);
        assert!(charges[1].charge_up_to(88_000) && !charges[1].exempt);
        drop(charges);
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 0));
        runtime.set_budget(ByteSize::kib(400));
        assert!(ReceiveCharge::new(Some(&receive_budget), 300_000).charge_up_to(300_000), "one value always has room");
    }

    #[test]
    fn without_evictions_a_full_budget_refuses_values() {
        let (runtime, receive_budget) = receive_budget(false);
        runtime.charge(runtime.root(), ByteSize::kib(1000)).unwrap();
        assert!(!ReceiveCharge::new(Some(&receive_budget), 100_000).charge_up_to(100_000));
        runtime.root().uncharge(ByteSize::kib(1000));
        assert!(ReceiveCharge::new(Some(&receive_budget), 100_000).charge_up_to(100_000));
        assert_eq!(receive_budget.bytes(), ByteSize::ZERO);
    }
}
