//! What a tenant has inserted without paying for it, in bytes.

use std::sync::atomic::{AtomicI32, Ordering};

use lowwater_lru_core::ByteSize;

/// Records of one eviction batch, at most: one for a small tenant, so that the tenant does not lose all its records at once; more where one batch
/// makes room for several inserts.
pub(crate) const BATCH_MAX: u64 = 8;
/// A deficit of so many records is high: as many as one batch evicts.
const DEFICIT_HIGH: u64 = BATCH_MAX;
/// Bound of a deficit, and of a credit, in records of the size of the one that changes the deficit: older debts are forgotten.
const DEFICIT_MAX: u64 = 2 * DEFICIT_HIGH;
/// Bound of a deficit and of a credit in bytes: 2 GiB.
const BYTES_MAX: i64 = i32::MAX as i64;

/// The bytes that a tenant has inserted, less the bytes that ghost hits have earned, less the bytes that were evicted from the tenant to
/// make room for its own inserts, or that left on their own. Negative: the tenant has a credit.
///
/// A tally: all accesses are Relaxed, and a lost update does no harm.
#[doc(alias = "balance")]
#[doc(alias = "deficit counter")]
#[derive(Default)]
pub(crate) struct Deficit(AtomicI32);

impl Deficit {
    /// Counts an insert of `bytes`, of which a ghost hit has `earned` some.
    #[inline]
    pub(crate) fn insert(&self, bytes: ByteSize, earned: ByteSize) {
        if bytes != earned {
            self.change(signed(bytes) - signed(earned), bytes);
        }
    }

    /// Counts `bytes` that left the tenant: evicted to make room for an insert of `wanted` bytes, or unlinked by the tenant itself.
    pub(crate) fn credit(&self, bytes: ByteSize, wanted: ByteSize) {
        self.change(-signed(bytes), wanted);
    }

    /// Tells whether the tenant has inserted more than it has paid for.
    pub(crate) fn is_positive(&self) -> bool {
        self.get() > 0
    }

    /// Tells whether the deficit is that of several records of `bytes`.
    #[inline]
    pub(crate) fn is_high(&self, bytes: ByteSize) -> bool {
        self.get() >= times(bytes, DEFICIT_HIGH)
    }

    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed).into()
    }

    /// Changes the deficit, to no more than a record of `bytes` may lead to, unless the deficit was larger before.
    #[inline]
    fn change(&self, by: i64, bytes: ByteSize) {
        let (before, most) = (self.get(), times(bytes, DEFICIT_MAX));
        let deficit = before.saturating_add(by).clamp(before.min(-most), before.max(most)).clamp(-BYTES_MAX, BYTES_MAX);
        if deficit != before {
            self.0.store(deficit as i32, Ordering::Relaxed);
        }
    }
}

fn signed(bytes: ByteSize) -> i64 {
    i64::try_from(bytes.get()).unwrap_or(i64::MAX)
}

fn times(bytes: ByteSize, times: u64) -> i64 {
    signed(ByteSize::new(bytes.get().saturating_mul(times))).min(BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_back_is_paid_for_by_what_it_is_worth() {
        let (deficit, record) = (Deficit::default(), ByteSize::new(100));
        deficit.insert(record, record);
        assert!(!deficit.is_positive());
        deficit.insert(record, ByteSize::new(300));
        (0..2).for_each(|_| deficit.insert(record, ByteSize::ZERO));
        assert!(!deficit.is_positive(), "three for one");
        deficit.insert(record, ByteSize::new(99));
        assert!(deficit.is_positive());
    }

    #[test]
    fn what_was_put_in_is_owed_until_it_is_paid() {
        let (deficit, record) = (Deficit::default(), ByteSize::new(100));
        assert!(!deficit.is_positive());
        deficit.insert(record, ByteSize::ZERO);
        assert!(deficit.is_positive());
        deficit.credit(ByteSize::new(250), record);
        deficit.insert(record, ByteSize::ZERO);
        assert!(!deficit.is_positive(), "50 more than it put in");
        deficit.insert(record, ByteSize::ZERO);
        assert!(deficit.is_positive());
        deficit.forget();
        assert!(!deficit.is_positive());
        (0..7).for_each(|_| deficit.insert(record, ByteSize::ZERO));
        assert!(!deficit.is_high(record));
        deficit.insert(record, ByteSize::ZERO);
        assert!(deficit.is_high(record));
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        let (deficit, record) = (Deficit::default(), ByteSize::new(100));
        (0..100).for_each(|_| deficit.insert(record, ByteSize::ZERO));
        deficit.credit(ByteSize::new(1_599), record);
        assert!(deficit.is_positive());
        deficit.credit(ByteSize::new(1), record);
        assert!(!deficit.is_positive(), "sixteen entries are as much as can be owed");
        deficit.credit(ByteSize::new(5_000), record);
        (0..16).for_each(|_| deficit.insert(record, ByteSize::ZERO));
        assert!(!deficit.is_positive());
        deficit.insert(record, ByteSize::ZERO);
        assert!(deficit.is_positive(), "and as much as can be paid before");
    }

    #[test]
    fn a_large_entry_is_owed_though_small_ones_follow() {
        for (large, small) in [(1_000_000, 100), (u64::MAX, 1)].map(|(l, s)| (ByteSize::new(l), ByteSize::new(s))) {
            let deficit = Deficit::default();
            deficit.insert(large, ByteSize::ZERO);
            (0..100).for_each(|_| deficit.insert(small, ByteSize::ZERO));
            deficit.credit(ByteSize::new(large.get() / 2), small);
            assert_eq!(!deficit.is_positive(), large == ByteSize::MAX, "2 GiB are as much as can be told");
            deficit.credit(large, large);
            (0..100).for_each(|_| deficit.credit(small, small));
            deficit.insert(ByteSize::new(400_000), ByteSize::ZERO);
            assert!(!deficit.is_positive());
        }
    }
}
