//! The memory of values that are still arriving.
//!
//! A value is nobody's until it is there whole: a key that names a new tenant makes it only then, and many a store changes nothing. But
//! its bytes take memory from the first one on, and a client may stop in the middle of them. So what has come is charged to the root
//! group a little at a time: the budget holds it, and what is stored makes room for it. All of them together may have half the budget, or
//! clients that never finish could empty the cache. One at a time may have more than that, up to its end; for if each of many had a part
//! of what all may have, none could go on.
//!
//! When a value is put there, it is charged to its tenant; so what it was charged for on its way is given back just before, and taken
//! again while it waits for room.
//!
//! Not counted: the first 4 KiB of each, so that small values pay nothing; its connection's buffer; and what the allocator and
//! the table of pieces take for the others, less than half a percent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater::{Bytes, Runtime};

/// Of each value, so much is not counted.
const FREE_BYTES: u64 = 4 * 1024;

/// Taken at a time.
const STEP_BYTES: u64 = 64 * 1024;

/// What all values that are arriving have.
#[derive(Debug)]
pub struct Arrivals {
    runtime: Runtime,
    /// Drop values when the memory is full.
    evict: bool,
    /// The one that may have more has no more than this.
    item_bytes_max: u64,
    bytes: AtomicU64,
    /// Somebody is the one that may have more.
    favoured: AtomicBool,
}

impl Arrivals {
    /// Nothing is arriving yet.
    pub fn new(runtime: &Runtime, evict: bool, item_bytes_max: usize) -> Arc<Self> {
        let (runtime, item_bytes_max) = (runtime.clone(), item_bytes_max as u64);
        Arc::new(Self { runtime, evict, item_bytes_max, bytes: AtomicU64::new(0), favoured: AtomicBool::new(false) })
    }

    /// Bytes that are counted now.
    pub fn bytes(&self) -> Bytes {
        // Relaxed: a number for people.
        Bytes::new(self.bytes.load(Ordering::Relaxed))
    }

    /// So many more, if they are not too many.
    fn take(&self, bytes: u64, favoured: bool) -> bool {
        let more = if favoured { self.item_bytes_max } else { 0 };
        let max = self.runtime.root().max().get() / 2 + more;
        let add = |before: u64| before.checked_add(bytes).filter(|&after| after <= max);
        // Relaxed, both: a count that bounds, and guards no other memory.
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        let charged = self.charge(bytes);
        if !charged {
            self.give(bytes);
        }
        charged
    }

    fn give(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn charge(&self, bytes: u64) -> bool {
        let (root, bytes) = (self.runtime.root(), Bytes::new(bytes));
        let has_room = || root.usage().saturating_add(bytes) <= root.max();
        // As for a value that is put there: without evictions, nothing is to be reclaimed for it.
        let may = self.evict || has_room() || {
            self.runtime.tree().drain_stock();
            has_room()
        };
        may && self.runtime.charge(root, bytes).is_ok()
    }

    fn uncharge(&self, bytes: u64) {
        self.runtime.root().uncharge(Bytes::new(bytes));
    }
}

/// What one value has of it; given back when it is dropped.
#[derive(Debug, Default)]
pub struct Claim {
    /// None: nobody counts.
    arrivals: Option<Arc<Arrivals>>,
    /// The value's length.
    length: u64,
    /// Its share of what all may have.
    bytes: u64,
    /// Of that, what is charged.
    charged: u64,
    /// It is the one that may have more.
    favoured: bool,
}

impl Claim {
    /// For a value of `length` bytes of which none has come.
    pub fn new(arrivals: Option<&Arc<Arrivals>>, length: usize) -> Self {
        let length = length as u64;
        // Mostly it is short, and nobody needs to be asked.
        Self { arrivals: arrivals.filter(|_| length > FREE_BYTES).cloned(), length, ..Self::default() }
    }

    /// Takes what the first `length` bytes of the value need; whether it is there.
    pub fn reach(&mut self, length: usize) -> bool {
        let Some(arrivals) = &self.arrivals else { return true };
        let missing = (length as u64).saturating_sub(FREE_BYTES + self.bytes);
        if missing == 0 {
            return true;
        }
        let more = missing.next_multiple_of(STEP_BYTES).min(self.length - FREE_BYTES - self.bytes);
        let taken = arrivals.take(more, self.favoured) || {
            // Relaxed: a token that guards no other memory.
            self.favoured = self.favoured || !arrivals.favoured.swap(true, Ordering::Relaxed);
            self.favoured && arrivals.take(more, true)
        };
        if taken {
            self.bytes += more;
            self.charged += more;
        }
        taken
    }

    /// Gives back what is charged: its tenant's turn to pay.
    pub fn uncharge(&mut self) {
        if let Some(arrivals) = self.arrivals.as_ref().filter(|_| self.charged > 0) {
            arrivals.uncharge(self.charged);
            self.charged = 0;
        }
    }

    /// Charges it once more, if there is room; it keeps its share either way.
    pub fn recharge(&mut self) {
        if let Some(arrivals) = self.arrivals.as_ref().filter(|_| self.charged < self.bytes) {
            if arrivals.charge(self.bytes) {
                self.charged = self.bytes;
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.uncharge();
        if let Some(arrivals) = &self.arrivals {
            arrivals.give(self.bytes);
            if self.favoured {
                // Relaxed: as in `reach`.
                arrivals.favoured.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(evict: bool) -> (Runtime, Arc<Arrivals>) {
        let runtime = Runtime::builder().budget(Bytes::mib(1)).build().unwrap();
        let arrivals = Arrivals::new(&runtime, evict, 300_000);
        (runtime, arrivals)
    }

    fn charged(runtime: &Runtime) -> u64 {
        runtime.tree().drain_stock();
        runtime.root().usage().get()
    }

    #[test]
    fn what_has_come_is_charged_and_given_back() {
        const FREE: usize = FREE_BYTES as usize;
        let (runtime, arrivals) = arrivals(true);
        let mut small = Claim::new(Some(&arrivals), FREE);
        assert!(small.reach(FREE));
        assert_eq!(charged(&runtime), 0, "it is free");
        let mut claim = Claim::new(Some(&arrivals), 200_000);
        for (length, expected) in [
            (FREE, 0),
            (FREE + 1, 64 << 10),
            (FREE + (64 << 10), 64 << 10),
            (FREE + (64 << 10) + 1, 128 << 10),
            (200_000, 200_000 - FREE_BYTES),
        ] {
            assert!(claim.reach(length));
            assert_eq!((charged(&runtime), arrivals.bytes().get()), (expected, expected), "{length}");
        }
        claim.uncharge();
        assert_eq!((charged(&runtime), arrivals.bytes().get()), (0, 200_000 - FREE_BYTES), "its share is kept");
        claim.recharge();
        claim.recharge();
        assert_eq!(charged(&runtime), 200_000 - FREE_BYTES);
        drop(claim);
        assert_eq!((charged(&runtime), arrivals.bytes().get()), (0, 0));
    }

    #[test]
    fn all_together_have_half_the_budget_and_one_may_go_on() {
        const EACH: u64 = 88_000 - FREE_BYTES;
        let (runtime, arrivals) = arrivals(true);
        let mut claims: Vec<_> = (0..10).map(|_| Claim::new(Some(&arrivals), 88_000)).collect();
        let reached: Vec<_> = (0..10).filter(|&n| claims[n].reach(88_000)).collect();
        assert_eq!(reached, [0, 1, 2, 3, 4, 5, 6], "six have half of it, and the seventh may go on");
        assert_eq!((charged(&runtime), arrivals.bytes().get()), (7 * EACH, 7 * EACH));
        assert!(claims.remove(6).favoured);
        assert!(claims[6].reach(88_000) && claims[6].favoured, "then another may");
        claims.drain(..6);
        assert!(claims[1].reach(88_000) && !claims[1].favoured);
        drop(claims);
        assert_eq!((charged(&runtime), arrivals.bytes().get()), (0, 0));
        runtime.set_budget(Bytes::kib(400));
        assert!(Claim::new(Some(&arrivals), 300_000).reach(300_000), "there is always room for one");
    }

    #[test]
    fn without_evictions_what_is_full_is_full() {
        let (runtime, arrivals) = arrivals(false);
        runtime.charge(runtime.root(), Bytes::kib(1000)).unwrap();
        assert!(!Claim::new(Some(&arrivals), 100_000).reach(100_000));
        runtime.root().uncharge(Bytes::kib(1000));
        assert!(Claim::new(Some(&arrivals), 100_000).reach(100_000));
        assert_eq!(arrivals.bytes(), Bytes::ZERO);
    }
}
