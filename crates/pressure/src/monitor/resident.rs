//! A maximum of this process's resident memory: decides from each reading whether the allocator has
//! to return memory (a trim), or the caches have to free some (a lower ceiling).
//!
//! Freed memory is resident until the allocator returns it. So a reading that leaves at most half
//! of the margin below the maximum requests a trim first, and only a reading after a trim lowers
//! the ceiling, by the excess. The memory that the caches then free is returned by the next trim.
//! Where a trim has to wait for long, the monitor (`state.rs`) sets the ceiling to the caches'
//! usage meanwhile. Times are in nanoseconds of the monitor's clock.
//!
//! A change must ensure that this limit lowers the ceiling at most once between two trims:
//! otherwise the ceiling falls to its floor while the allocator holds the memory.

use core::mem;
use core::time::Duration;

use lowwater_lru_core::ByteSize;

use super::margin::Margin;
use crate::Level;

/// The margin is one in this many parts of the maximum; half of the margin may be used without
/// pressure ([`Margin`]).
const MARGIN_PARTS: u64 = 16;
/// The time between two readings. Each reads one small file, in about 30 us.
const EVERY: Duration = Duration::from_millis(100);
/// The time between two readings while the maximum is near.
const EVERY_NEAR: Duration = Duration::from_millis(10);
/// The time to the next reading when the caches have nothing more to give.
const EVERY_IN_VAIN: Duration = Duration::from_secs(10);

/// The maximum, and the state of the reaction to a resident memory near it.
#[derive(Debug)]
pub(super) struct ResidentLimit {
    max: ByteSize,
    /// The time of the next reading.
    due: u64,
    /// A reading has requested a trim, which has not ended yet.
    is_asked: bool,
    /// A requested trim has ended. Since then no cache has freed memory, and the ceiling was not
    /// lowered: the next reading may lower it.
    is_trimmed: bool,
}

/// The reaction to a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// None: the maximum is not near.
    Calm,
    /// The allocator has to return freed memory. `is_first`: no reading since the last trim has
    /// requested one.
    Trim { level: Level, is_first: bool },
    /// The caches have to free this much.
    Lower { level: Level, excess: ByteSize },
}

impl Reaction {
    pub(super) fn level(&self) -> Level {
        match *self {
            Self::Calm => Level::Calm,
            Self::Trim { level, .. } | Self::Lower { level, .. } => level,
        }
    }
}

impl ResidentLimit {
    pub(super) fn new(max: ByteSize) -> Self {
        Self { max, due: 0, is_asked: false, is_trimmed: false }
    }

    /// Returns the time of the next reading.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// Notes that a trim has ended.
    pub(super) fn trimmed(&mut self) {
        self.is_trimmed = mem::replace(&mut self.is_asked, false);
    }

    /// Notes that caches free or have freed memory, which the allocator may still hold.
    pub(super) fn fell(&mut self) {
        self.is_trimmed = false;
    }

    /// Notes that the ceiling could not be lowered.
    pub(super) fn was_in_vain(&mut self, now_ns: u64) {
        self.due = now_ns.saturating_add(EVERY_IN_VAIN.as_nanos() as u64);
    }

    /// Returns the reaction to a resident memory of `usage`, and sets the time of the next reading.
    /// `is_busy` means that the caches are still freeing memory.
    pub(super) fn seen(&mut self, now_ns: u64, usage: ByteSize, is_busy: bool) -> Reaction {
        let margin = Margin(ByteSize::new(self.max.get() / MARGIN_PARTS));
        let level = margin.level(usage, self.max);
        let every = if level == Level::Calm { EVERY } else { EVERY_NEAR };
        self.due = now_ns.saturating_add(every.as_nanos() as u64);
        if level == Level::Calm {
            (self.is_asked, self.is_trimmed) = (false, false);
            return Reaction::Calm;
        }
        if is_busy || !self.is_trimmed {
            return Reaction::Trim { level, is_first: !mem::replace(&mut self.is_asked, true) };
        }
        self.is_trimmed = false;
        Reaction::Lower { level, excess: margin.excess(usage, self.max) }
    }

    /// Postpones the next reading after one that failed, and requires another trim.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.is_trimmed = false;
        self.due = now_ns.saturating_add(EVERY.as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: ByteSize = ByteSize::new(1_600);

    fn seen(limit: &mut ResidentLimit, usage: u64) -> Reaction {
        limit.seen(0, ByteSize::new(usage), false)
    }

    fn trim(level: Level, is_first: bool) -> Reaction {
        Reaction::Trim { level, is_first }
    }

    fn lower(level: Level, excess: u64) -> Reaction {
        Reaction::Lower { level, excess: ByteSize::new(excess) }
    }

    #[test]
    fn the_ceiling_is_lowered_once_after_each_trim() {
        let mut limit = ResidentLimit::new(MAX);
        assert_eq!(seen(&mut limit, 1_549), Reaction::Calm);
        assert_eq!(seen(&mut limit, 1_550), trim(Level::Medium, true));
        assert_eq!(seen(&mut limit, 1_550), trim(Level::Medium, false));
        limit.trimmed();
        // The excess is what has to be freed so that three quarters of the margin of 100 are free.
        assert_eq!(seen(&mut limit, 1_560), lower(Level::Medium, 35));
        assert_eq!(seen(&mut limit, 1_580), trim(Level::Critical, true));
        limit.trimmed();
        assert_eq!(seen(&mut limit, 5_000), lower(Level::Critical, 3_475));
        assert_eq!(seen(&mut limit, 1_525), Reaction::Calm);
        limit.trimmed();
        assert_eq!(seen(&mut limit, 1_550), trim(Level::Medium, true), "no reading has asked for that trim");
    }

    #[test]
    fn memory_that_is_freed_has_to_be_trimmed_first() {
        let mut limit = ResidentLimit::new(MAX);
        assert_eq!(seen(&mut limit, 1_600), trim(Level::Critical, true));
        limit.trimmed();
        assert_eq!(limit.seen(0, MAX, true), trim(Level::Critical, true));
        limit.fell();
        limit.trimmed();
        limit.fell();
        assert_eq!(seen(&mut limit, 1_600), trim(Level::Critical, true), "it fell after the trim");
        limit.trimmed();
        limit.failed(0);
        assert_eq!(seen(&mut limit, 1_600), trim(Level::Critical, true), "the trim was long ago");
        limit.trimmed();
        assert_eq!(seen(&mut limit, 1_600), lower(Level::Critical, 75));
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
        limit.was_in_vain(7);
        assert_eq!(limit.due(), 10_000_000_007);
    }
}
