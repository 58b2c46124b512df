//! The times of entries in the model: when an entry may have expired, and when it must have.
//!
//! A program with a manual clock knows the time of each step. The library rounds deadlines up, and
//! writes an idle deadline only now and then, so an entry's end is an interval.
//!
//! A change must ensure that the interval contains the library's deadline.

use crate::step::{CacheChoices, Life};

/// The most by which the library rounds a time to live up, in milliseconds.
const ROUNDED: u64 = 10;
/// The same for an idle time, whose least part of an eighth is 16 ms.
const IDLE_ROUNDED: u64 = 40;

/// The times of a cache, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct CacheTimes {
    life: Life,
    /// The idle time beside a time to live.
    idle: Option<u8>,
    pub ahead: u64,
    pub stale: u64,
    is_computed: bool,
}

impl CacheTimes {
    pub fn of(choices: &CacheChoices) -> Self {
        let (ahead, stale) = (choices.ahead.into(), choices.stale.into());
        Self { life: choices.life, idle: choices.idle, ahead, stale, is_computed: choices.computes_times }
    }
}

/// The end of an entry, in milliseconds of the program's clock.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The entry is present before this time.
    pub from: u64,
    /// The entry is absent from this time on.
    pub until: u64,
    /// The idle time, by which uses extend the end.
    idle: Option<u64>,
}

impl End {
    pub const NEVER: Self = Self { from: u64::MAX, until: u64::MAX, idle: None };
    /// Nothing is known.
    const UNKNOWN: Self = Self { from: 0, until: u64::MAX, idle: None };

    /// Returns the end of an entry that is inserted now.
    pub fn of(life: Life, times: Option<&CacheTimes>, now: u64) -> Self {
        let idle_end = |ms: u64| Self { from: now + ms, until: now + ms + ms / 8 + IDLE_ROUNDED, idle: Some(ms) };
        let live_end = |ms: u64| Self { from: now + ms, until: now + ms + ROUNDED, idle: None };
        match (life, times) {
            (_, Some(times)) if times.is_computed => Self::UNKNOWN,
            (Life::Default, Some(CacheTimes { life: Life::Live(live), idle: Some(idle), .. })) => {
                let (live, idle) = (u64::from(*live), u64::from(*idle));
                Self { from: now + live.min(idle), until: now + live + ROUNDED, idle: None }
            }
            (Life::Default, Some(times)) if !matches!(times.life, Life::Default) => Self::of(times.life, None, now),
            (Life::Live(ms), _) => live_end(ms.into()),
            (Life::Idle(ms), _) => idle_end(ms.into()),
            (Life::Default | Life::Forever, _) => Self::NEVER,
        }
    }

    /// Extends the end by a use; `counts` if each such use extends it.
    pub fn used(&mut self, now: u64, counts: bool) {
        let Some(idle) = self.idle else { return };
        let end = Self::of(Life::Idle(idle.min(255) as u8), None, now);
        self.until = self.until.max(end.until);
        if counts {
            self.from = self.from.max(end.from);
        }
    }

    /// Returns the end of an entry that has one of two ends.
    pub fn or(self, other: Self) -> Self {
        let idle = self.idle.max(other.idle);
        Self { from: self.from.min(other.from), until: self.until.max(other.until), idle }
    }
}
