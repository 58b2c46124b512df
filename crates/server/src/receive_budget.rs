//! The budget for values that are being received.
//!
//! A value is nobody's until it is there whole: a key that names a new tenant makes it only then,
//! and many a store changes nothing. But its bytes take memory from the first one on, and a client
//! may stop in the middle of them. So what has come is charged to the root group a little at a
//! time: the budget holds it, and what is stored makes room for it. All of them together may have
//! half the budget, or clients that never finish could empty the cache. One at a time may have more
//! than that, up to its end; for if each of many had a part of what all may have, none could go on.
//!
//! When a value is put there, it is charged to its tenant; so what it was charged for on its way is
//! given back just before, and taken again while it waits for room.
//!
//! Not counted: the first 4 KiB of each, so that small values pay nothing; its connection's buffer;
//! and what the allocator and the table of pieces take for the others, less than half a percent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater::{ByteSize, Runtime};

/// Bytes of each value that are not counted.
const FREE_BYTES: u64 = 4 * 1024;

/// Bytes reserved at a time.
const STEP_BYTES: u64 = 64 * 1024;

/// The bytes of all values that are being received, at most half of the budget.
#[derive(Debug)]
pub struct ReceiveBudget {
    runtime: Runtime,
    /// Drop values when the memory is full.
    evict: bool,
    /// The exempt value has at most so many beyond the bound of all.
    item_bytes_max: u64,
    bytes: AtomicU64,
    /// A value is exempt from the bound of all.
    exempt: AtomicBool,
}

impl ReceiveBudget {
    /// Creates a budget of which nothing is reserved.
    pub fn new(runtime: &Runtime, evict: bool, item_bytes_max: usize) -> Arc<Self> {
        let (runtime, item_bytes_max) = (runtime.clone(), item_bytes_max as u64);
        Arc::new(Self { runtime, evict, item_bytes_max, bytes: AtomicU64::new(0), exempt: AtomicBool::new(false) })
    }

    /// Returns the bytes that are reserved now.
    pub fn bytes(&self) -> ByteSize {
        // Relaxed: a number for people.
        ByteSize::new(self.bytes.load(Ordering::Relaxed))
    }

    /// Reserves and charges `bytes` more, unless the bound or the budget is reached.
    fn reserve(&self, bytes: u64, exempt: bool) -> bool {
        let more = if exempt { self.item_bytes_max } else { 0 };
        let max = self.runtime.root().max().get() / 2 + more;
        let add = |before: u64| before.checked_add(bytes).filter(|&after| after <= max);
        // Relaxed, both: a count that bounds, and guards no other memory.
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
        // Relaxed: as in `reserve`.
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn charge(&self, bytes: u64) -> bool {
        let (root, bytes) = (self.runtime.root(), ByteSize::new(bytes));
        let has_room = || root.usage().saturating_add(bytes) <= root.max();
        // As for a value that is put there: without evictions, nothing is to be reclaimed for it.
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

/// The part of a [`ReceiveBudget`] that one value has; released when it is dropped.
#[derive(Debug, Default)]
pub struct ReceiveCharge {
    /// None: the value is not counted.
    receive_budget: Option<Arc<ReceiveBudget>>,
    /// The value's length.
    length: u64,
    /// Bytes reserved for it.
    bytes: u64,
    /// Of the reserved bytes, those that are charged.
    charged: u64,
    /// It is the value that is exempt from the bound of all.
    exempt: bool,
}

impl ReceiveCharge {
    /// Creates the charge of a value of `length` bytes, of which none has been received.
    pub fn new(receive_budget: Option<&Arc<ReceiveBudget>>, length: usize) -> Self {
        let length = length as u64;
        // Mostly it is short, and nobody needs to be asked.
        Self { receive_budget: receive_budget.filter(|_| length > FREE_BYTES).cloned(), length, ..Self::default() }
    }

    /// Charges the first `length` bytes of the value, and returns whether there was room.
    pub fn charge_up_to(&mut self, length: usize) -> bool {
        let Some(receive_budget) = &self.receive_budget else { return true };
        let missing = (length as u64).saturating_sub(FREE_BYTES + self.bytes);
        if missing == 0 {
            return true;
        }
        let more = missing.next_multiple_of(STEP_BYTES).min(self.length - FREE_BYTES - self.bytes);
        let taken = receive_budget.reserve(more, self.exempt) || {
            // Relaxed: a token that guards no other memory.
            self.exempt = self.exempt || !receive_budget.exempt.swap(true, Ordering::Relaxed);
            self.exempt && receive_budget.reserve(more, true)
        };
        if taken {
            self.bytes += more;
            self.charged += more;
        }
        taken
    }

    /// Uncharges the value, whose tenant is charged from now on.
    pub fn uncharge(&mut self) {
        if let Some(receive_budget) = self.receive_budget.as_ref().filter(|_| self.charged > 0) {
            receive_budget.uncharge(self.charged);
            self.charged = 0;
        }
    }

    /// Charges the value again, if there is room; its bytes stay reserved either way.
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
                // Relaxed: as in `charge_up_to`.
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
    fn what_has_come_is_charged_and_given_back() {
        const FREE: usize = FREE_BYTES as usize;
        let (runtime, receive_budget) = receive_budget(true);
        let mut small = ReceiveCharge::new(Some(&receive_budget), FREE);
        assert!(small.charge_up_to(FREE));
        assert_eq!(charged(&runtime), 0, "it is free");
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
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 200_000 - FREE_BYTES), "its share is kept");
        charge.recharge();
        charge.recharge();
        assert_eq!(charged(&runtime), 200_000 - FREE_BYTES);
        drop(charge);
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 0));
    }

    #[test]
    fn all_together_have_half_the_budget_and_one_may_go_on() {
        const EACH: u64 = 88_000 - FREE_BYTES;
        let (runtime, receive_budget) = receive_budget(true);
        let mut charges: Vec<_> = (0..10).map(|_| ReceiveCharge::new(Some(&receive_budget), 88_000)).collect();
        let reached: Vec<_> = (0..10).filter(|&n| charges[n].charge_up_to(88_000)).collect();
        assert_eq!(reached, [0, 1, 2, 3, 4, 5, 6], "six have half of it, and the seventh may go on");
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (7 * EACH, 7 * EACH));
        assert!(charges.remove(6).exempt);
        assert!(charges[6].charge_up_to(88_000) && charges[6].exempt, "then another may");
        charges.drain(..6);
        assert!(charges[1].charge_up_to(88_000) && !charges[1].exempt);
        drop(charges);
        assert_eq!((charged(&runtime), receive_budget.bytes().get()), (0, 0));
        runtime.set_budget(ByteSize::kib(400));
        assert!(
            ReceiveCharge::new(Some(&receive_budget), 300_000).charge_up_to(300_000),
            "there is always room for one"
        );
    }

    #[test]
    fn without_evictions_what_is_full_is_full() {
        let (runtime, receive_budget) = receive_budget(false);
        runtime.charge(runtime.root(), ByteSize::kib(1000)).unwrap();
        assert!(!ReceiveCharge::new(Some(&receive_budget), 100_000).charge_up_to(100_000));
        runtime.root().uncharge(ByteSize::kib(1000));
        assert!(ReceiveCharge::new(Some(&receive_budget), 100_000).charge_up_to(100_000));
        assert_eq!(receive_budget.bytes(), ByteSize::ZERO);
    }
}
