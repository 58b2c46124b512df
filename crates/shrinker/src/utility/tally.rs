//! A sum that decays: one word, in floating point, so that it does not saturate.
//!
//! With costs, the hits of a large budget exceed 32 bits, and pairs whose tallies have saturated
//! would all be as useful. Up to 2^27 a tally is exact; above it has 27 significant bits, so an
//! addend counts unless it is less than a 2^26th of the sum.
//!
//! A change must ensure that no sum wraps, and that the value never falls by an addition. A race
//! may lose one.

use lowwater_base::sync::atomic::{AtomicU32, Ordering};

use super::clock::HALF_LIFE;

/// The significant bits of a tally. The bits above these are the number of places by which they
/// are shifted.
const SIGNIFICANT_BITS: u32 = 27;
/// The greatest value: all significant bits, shifted by the maximum of the other five.
const MAX: u64 = ((1 << SIGNIFICANT_BITS) - 1) << (u32::MAX >> SIGNIFICANT_BITS);

/// A tally; see the module. All accesses are Relaxed: a statistic, which orders no other data.
#[derive(Default)]
pub(super) struct Tally(AtomicU32);

impl Tally {
    pub(super) fn get(&self) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        u64::from(word & ((1 << SIGNIFICANT_BITS) - 1)) << (word >> SIGNIFICANT_BITS)
    }

    /// Stores a value, less the bits that are not significant.
    pub(super) fn set(&self, value: u64) {
        let value = value.min(MAX);
        let places = (u64::BITS - value.leading_zeros()).saturating_sub(SIGNIFICANT_BITS);
        self.0.store((value >> places) as u32 | places << SIGNIFICANT_BITS, Ordering::Relaxed);
    }

    pub(super) fn add(&self, n: u64) {
        self.set(self.get().saturating_add(n));
    }

    /// Decays the tally by this number of epochs.
    pub(super) fn decay(&self, epochs: u32) {
        let before = self.get();
        // Most tallies of a pair without ghost hits are 0.
        if before > 0 {
            self.set(decayed(before, epochs));
        }
    }
}

/// Returns the rest of a sum after `epochs` epochs.
pub(super) fn decayed(sum: u64, epochs: u32) -> u64 {
    /// 2 to the power of minus n quarters, in 65,536ths.
    const QUARTERS: [u64; HALF_LIFE as usize] = [65_536, 55_109, 46_341, 38_968];
    let part = QUARTERS[(epochs % HALF_LIFE) as usize];
    let left = (u128::from(sum) * u128::from(part)) >> 16;
    left.checked_shr(epochs / HALF_LIFE).unwrap_or(0) as u64
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sum_halves_in_four_epochs() {
        for (epochs, left) in [(0, 1_000), (1, 840), (2, 707), (4, 500), (8, 250), (40, 0), (u32::MAX, 0)] {
            assert_eq!(decayed(1_000, epochs), left, "after {epochs}");
            let tally = Tally::default();
            tally.set(1_000);
            tally.decay(epochs);
            assert_eq!(tally.get(), left, "after {epochs}");
        }
        assert_eq!(decayed(u64::MAX, 1), ((u128::from(u64::MAX) * 55_109) >> 16) as u64);
    }

    #[test]
    fn a_value_has_27_significant_bits_and_never_falls() {
        let exact = 1_u64 << 27;
        let tally = Tally::default();
        let stored = |value| {
            tally.set(value);
            tally.get()
        };
        for value in [0, 1, exact - 1, exact, 5 * exact / 2, (exact - 1) << 31] {
            assert_eq!(stored(value), value);
        }
        assert_eq!([exact + 1, 4 * exact + 7].map(stored), [exact, 4 * exact], "the rest is cut off");
        assert_eq!([MAX + 1, u64::MAX].map(stored), [MAX; 2]);
        let values = (2..64).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1]).map(stored);
        assert!(values.collect::<alloc::vec::Vec<_>>().is_sorted());
    }

    #[test]
    fn an_addend_counts_if_it_is_a_2_26th_of_the_sum() {
        for sum in [0, 1, (1 << 27) - 1, 1 << 40, 3 << 39, (1 << 41) - (1 << 14), 1 << 50] {
            let tally = Tally::default();
            tally.set(sum);
            tally.add((sum >> 26).max(1));
            assert!(tally.get() > sum, "{sum}");
        }
        let tally = Tally::default();
        tally.set(3 << 39);
        tally.add(3 << 12);
        assert_eq!(tally.get(), 3 << 39, "a 2^27th may be lost");
        let tally = Tally::default();
        (0..3).for_each(|_| tally.add(u64::MAX));
        assert_eq!(tally.get(), MAX);
    }
}
