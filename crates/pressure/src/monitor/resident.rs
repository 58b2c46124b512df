//! The resident memory of this process as a limit.
//!
//! Freed memory is resident until the allocator returns it. So a reading above the margin asks for
//! a trim first, and only a reading after a trim lowers the ceiling, by the excess. The memory that
//! the caches then free is returned by the next trim.
//!
//! A change must ensure that the ceiling is lowered at most once between two trims: otherwise it
//! falls to its floor while the allocator holds the memory.

use core::time::Duration;

use lowwater_lru_core::ByteSize;

use super::margin::Margin;
use crate::Level;

/// The margin below the maximum: this part of it.
const MARGIN_PARTS: u64 = 16;
/// The time between two readings: one small file, about 30 us.
const EVERY: Duration = Duration::from_millis(100);
/// The time between two readings while the maximum is near.
const EVERY_NEAR: Duration = Duration::from_millis(10);

/// The maximum, and where the reaction to a usage near it stands.
#[derive(Debug)]
pub(super) struct ResidentLimit {
    max: ByteSize,
    due: u64,
    /// The allocator was trimmed since the last reading that was calm, or lowered the ceiling.
    is_trimmed: bool,
}

/// The reaction to a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// None: the maximum is not near.
    Calm,
    /// The allocator has to return freed memory.
    Trim,
    /// The caches have to free this much.
    Lower { level: Level, excess: ByteSize },
}

impl ResidentLimit {
    pub(super) fn new(max: ByteSize) -> Self {
        Self { max, due: 0, is_trimmed: false }
    }

    /// Returns the time of the next reading.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// Notes that a trim has ended.
    pub(super) fn trimmed(&mut self) {
        self.is_trimmed = true;
    }

    /// Returns the reaction to a usage of `usage`. While `is_busy` memory is still being freed.
    pub(super) fn seen(&mut self, now_ns: u64, usage: ByteSize, is_busy: bool) -> Reaction {
        let margin = Margin(ByteSize::new(self.max.get() / MARGIN_PARTS));
        let level = margin.level(usage, self.max);
        let every = if level == Level::Calm { EVERY } else { EVERY_NEAR };
        self.due = now_ns.saturating_add(every.as_nanos() as u64);
        if level == Level::Calm {
            self.is_trimmed = false;
            return Reaction::Calm;
        }
        if is_busy || !self.is_trimmed {
            return Reaction::Trim;
        }
        self.is_trimmed = false;
        Reaction::Lower { level, excess: margin.excess(usage, self.max) }
    }

    /// Postpones the next reading, after one that failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.due = now_ns.saturating_add(EVERY.as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: ByteSize = ByteSize::new(1_600);

    #[test]
    fn the_ceiling_is_lowered_once_after_each_trim() {
        let mut limit = ResidentLimit::new(MAX);
        let seen = |limit: &mut ResidentLimit, usage| limit.seen(0, ByteSize::new(usage), false);
        assert_eq!(seen(&mut limit, 1_549), Reaction::Calm);
        assert_eq!(seen(&mut limit, 1_550), Reaction::Trim);
        assert_eq!(seen(&mut limit, 1_550), Reaction::Trim);
        limit.trimmed();
        // Down to three quarters of the margin of 100.
        let lower = |level, excess| Reaction::Lower { level, excess: ByteSize::new(excess) };
        assert_eq!(seen(&mut limit, 1_560), lower(Level::Medium, 35));
        assert_eq!(seen(&mut limit, 1_560), Reaction::Trim);
        limit.trimmed();
        assert_eq!(seen(&mut limit, 5_000), lower(Level::Critical, 3_475));
        limit.trimmed();
        assert_eq!(seen(&mut limit, 1_525), Reaction::Calm);
        assert_eq!(seen(&mut limit, 1_550), Reaction::Trim, "the trim was before it grew again");
    }

    #[test]
    fn nothing_more_is_asked_while_memory_is_freed() {
        let mut limit = ResidentLimit::new(MAX);
        limit.trimmed();
        assert_eq!(limit.seen(0, ByteSize::MAX, true), Reaction::Trim);
        assert!(matches!(limit.seen(0, ByteSize::MAX, false), Reaction::Lower { level: Level::Critical, .. }));
    }

    #[test]
    fn a_usage_near_the_maximum_is_read_more_often() {
        let mut limit = ResidentLimit::new(MAX);
        let mut due_after = |usage| {
            limit.seen(7, ByteSize::new(usage), false);
            limit.due() - 7
        };
        assert_eq!([0, 1_600].map(&mut due_after), [100_000_000, 10_000_000]);
        limit.failed(7);
        assert_eq!(limit.due(), 100_000_007);
    }
}
