//! The budget for values that are being received.
//!
//! A value that is being received belongs to no tenant: a key that names a new tenant creates that
//! tenant only with the complete value, and many stores change nothing in the end. But its bytes
//! take memory from the first one on, and a client may stop in the middle. So the received bytes
//! are charged to the root group in small steps: the memory is part of the budget, and stored
//! values are evicted to make room for it. All values being received may take at most half of the
//! budget beyond all tenants' `min` limits; if there are any, also not so much that a value of the
//! maximum size has no room beside them (the shared bound). Otherwise unfinished values could empty
//! the cache, and keep tenants from their `min`.
//!
//! Nor may the clients of one tenant use up the shared bound: the values that the connections of a
//! tenant receive take at most half of what those of the other tenants leave of it. One value of
//! each tenant at a time is exempt until it is stored or abandoned: otherwise, if many values were
//! each received in part, none could be completed. The exempt values of all tenants together may
//! exceed the shared bound by one value of the maximum size. So if all values of one tenant are
//! never finished, each other tenant still has room for a value of a quarter of the budget, if
//! there is no `min`.
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

/// The reserved bytes of the values that the connections of a tenant receive, and those of all
/// tenants.
#[derive(Debug)]
pub struct ReceiveBudget {
    shared: Arc<SharedBudget>,
    /// Reserved bytes of the tenant's values.
    bytes: AtomicU64,
    /// Whether a value of the tenant is exempt from the bounds.
    exempt: AtomicBool,
}

/// The reserved bytes of all values that are being received; within the shared bound, except for
/// exempt values.
#[derive(Debug)]
struct SharedBudget {
    runtime: Runtime,
    /// Whether stored values may be evicted when the budget is full.
    evict: bool,
    /// The sum of all `min` limits that have an effect; the store changes it.
    mins: Arc<AtomicU64>,
    /// The bytes by which the shared bound is higher for exempt values.
    item_bytes_max: u64,
    /// Reserved bytes of all values. They count against the shared bound, and are charged to the
    /// budget as well, except while their value is being stored.
    bytes: AtomicU64,
}

impl ReceiveBudget {
    /// Creates a budget with nothing reserved, of connections that belong to no tenant.
    pub fn new(runtime: &Runtime, evict: bool, mins: &Arc<AtomicU64>, item_bytes_max: usize) -> Arc<Self> {
        let (runtime, mins, item_bytes_max) = (runtime.clone(), Arc::clone(mins), item_bytes_max as u64);
        let shared = SharedBudget { runtime, evict, mins, item_bytes_max, bytes: AtomicU64::new(0) };
        Arc::new(Self::of(Arc::new(shared)))
    }

    /// Creates the budget of another tenant, with nothing reserved for that one.
    pub fn of_another_tenant(&self) -> Arc<Self> {
        Arc::new(Self::of(Arc::clone(&self.shared)))
    }

    fn of(shared: Arc<SharedBudget>) -> Self {
        Self { shared, bytes: AtomicU64::new(0), exempt: AtomicBool::new(false) }
    }

    /// Returns the bytes reserved now, by all tenants.
    pub fn bytes(&self) -> ByteSize {
        // Relaxed: read for statistics only.
        ByteSize::new(self.shared.bytes.load(Ordering::Relaxed))
    }

    /// Reserves and charges `bytes` more bytes, unless a bound (only the higher shared one, if
    /// `exempt`) or the budget would be exceeded.
    fn reserve(&self, bytes: u64, exempt: bool) -> bool {
        let max = self.shared.bytes_max();
        // Relaxed, all: the counts bound the reservations, and guard no other memory. Of two
        // reservations at the same time, each may count the other one, even if that one fails.
        let tenant_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        // Half of what the others leave is as much as is then left of the bound.
        let max = if exempt { max + self.shared.item_bytes_max } else { max.saturating_sub(tenant_bytes) };
        let add = |before: u64| before.checked_add(bytes).filter(|&after| after <= max);
        if self.shared.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        let charged = self.shared.charge(bytes);
        if !charged {
            self.release(bytes);
        }
        charged
    }

    fn release(&self, bytes: u64) {
        // Relaxed, both: the counts guard no other memory (see `reserve`).
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl SharedBudget {
    /// Returns the shared bound.
    fn bytes_max(&self) -> u64 {
        // Relaxed: a limit that guards no other memory. Values that are being received when a `min`
        // is raised keep their bytes.
        let mins = self.mins.load(Ordering::Relaxed);
        let room = self.runtime.root().max().get().saturating_sub(mins);
        // Without any `min`, unfinished values keep no tenant from its own.
        match mins {
            0 => room / 2,
            _ => (room / 2).min(room.saturating_sub(self.item_bytes_max)),
        }
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
    /// Whether this value is the tenant's exempt one.
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
            receive_budget.shared.uncharge(self.charged);
            self.charged = 0;
        }
    }

    /// Charges the value again, if there is room; the bytes stay reserved either way.
    pub fn recharge(&mut self) {
        if let Some(receive_budget) = self.receive_budget.as_ref().filter(|_| self.charged < self.bytes) {
            if receive_budget.shared.charge(self.bytes) {
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
        let receive_budget = ReceiveBudget::new(&runtime, evict, &Arc::default(), 300_000);
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
        assert_eq!(reached, [0, 1, 2, 3], "three take half of the shared bound, and the fourth is exempt");
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (4 * EACH, 4 * EACH));
        assert!(charges.remove(3).exempt);
        assert!(charges[3].charge_up_to(88_000) && charges[3].exempt, "then another value is exempt");
        // The first one of the other tenants finds room for one value within the shared bound.
        let mut exempt = Vec::new();
        for expected in [&[0, 1][..], &[0], &[0], &[0], &[]] {
            let tenant = receive_budget.of_another_tenant();
            let mut charges: Vec<_> = (0..3).map(|_| ReceiveCharge::new(Some(&tenant), 88_000)).collect();
            let reached: Vec<_> = (0..3).filter(|&n| charges[n].charge_up_to(88_000)).collect();
            assert_eq!(reached, expected);
            exempt.push(charges);
        }
        assert_eq!(receive_budget.bytes().get(), 9 * EACH, "by one value of the maximum more than the shared bound");
        drop(exempt);
        charges.drain(..3);
        assert!(charges[1].charge_up_to(88_000) && !charges[1].exempt);
        drop(charges);
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 0));
        runtime.set_budget(ByteSize::kib(400));
        assert!(ReceiveCharge::new(Some(&receive_budget), 300_000).charge_up_to(300_000), "one value always has room");
    }

    #[test]
    fn all_values_leave_room_for_the_min_limits() {
        let mins = Arc::new(AtomicU64::new(0));
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let receive_budget = ReceiveBudget::new(&runtime, true, &mins, 300_000);
        for (min, length, expected) in [
            (0, 130_000, &[0, 1, 2][..]),
            (400_000, 130_000, &[0, 1]),
            (700_000, 130_000, &[0]),
            ((1 << 20) - 300_000, 300_000, &[0]),
            ((1 << 20) - 300_000, FREE_BYTES as usize, &[0, 1, 2, 3]),
            (1 << 20, 300_000, &[0]),
        ] {
            mins.store(min, Ordering::Relaxed);
            let mut charges: Vec<_> = (0..4).map(|_| ReceiveCharge::new(Some(&receive_budget), length)).collect();
            let reached: Vec<_> = (0..4).filter(|&n| charges[n].charge_up_to(length)).collect();
            assert_eq!(reached, expected, "{min}");
            assert!(min == 1 << 20 || charged(&runtime) + min <= 1 << 20, "{min}");
        }
        // Without them, a budget below the maximum size still has room for several values.
        mins.store(0, Ordering::Relaxed);
        runtime.set_budget(ByteSize::new(300_000));
        let mut charges: Vec<_> = (0..4).map(|_| ReceiveCharge::new(Some(&receive_budget), 60_000)).collect();
        let reached: Vec<_> = (0..4).filter(|&n| charges[n].charge_up_to(60_000)).collect();
        assert_eq!(reached, [0, 1]);
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
