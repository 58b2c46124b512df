//! A high-water mark of the number of records, which tells whether a cache has shrunk.
//!
//! A change must ensure that a mark stays small: with two bytes more an empty cache would cost more
//! than a kilobyte.

use std::sync::atomic::{AtomicU16, Ordering};

/// A cache has shrunk if it has lost this fraction of its records, as a divisor. One that is full
/// has room for new records in the slots of removed ones, after their readers have left; it loses
/// and gains fewer records, between the watermarks.
const SHRUNK_PARTS: f32 = 16.0;

/// The largest number of records seen, as the upper half of an `f32`: at most 1/128 less.
pub(super) struct LenMark(AtomicU16);

impl Default for LenMark {
    /// A mark for which any number is a shrink.
    fn default() -> Self {
        Self(AtomicU16::new(upper_half(f32::MAX)))
    }
}

impl LenMark {
    /// Returns whether `len` is less than the mark by 1 / [`SHRUNK_PARTS`]; then `len` is the new
    /// mark. Otherwise raises the mark to `len`.
    pub(super) fn has_shrunk(&self, len: usize) -> bool {
        let len = len as f32;
        // Relaxed, both accesses: the mark only decides when to collect; if two threads find the
        // same shrink, two collections do no harm.
        let mark = f32::from_bits(u32::from(self.0.load(Ordering::Relaxed)) << 16);
        let has_shrunk = len <= mark - mark / SHRUNK_PARTS;
        self.0.store(upper_half(if has_shrunk { len } else { mark.max(len) }), Ordering::Relaxed);
        has_shrunk
    }
}

const fn upper_half(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sixteenth_less_than_the_largest_number_is_a_shrink() {
        let mark = LenMark::default();
        assert!(mark.has_shrunk(1_000), "nothing was collected yet");
        assert!(!mark.has_shrunk(1_600), "it has grown");
        assert!(!mark.has_shrunk(1_540) && !mark.has_shrunk(1_501), "99 less, since it was largest");
        assert!(mark.has_shrunk(1_500));
        assert!(!mark.has_shrunk(1_500), "since the last time");
        assert!(!mark.has_shrunk(1_420) && mark.has_shrunk(1_390));
    }

    #[test]
    fn no_number_is_too_small_or_too_large() {
        let mark = LenMark::default();
        assert!(mark.has_shrunk(usize::MAX) && !mark.has_shrunk(usize::MAX) && mark.has_shrunk(0));
        assert!(mark.has_shrunk(0), "an empty cache has nothing to lose");
        assert!(!mark.has_shrunk(1) && mark.has_shrunk(0));
    }
}
