//! Freshness: how far a record is from its expiry, for calls that reload a record shortly before or
//! after its expiry (`refresh_ahead`, `stale_while_revalidate`).
//!
//! A record expires when its time to live has passed. It is then stale for the cache's stale time,
//! in which only calls that reload return its value. The deadline that is stored for the record is
//! the end of the stale time, so the reaper, which removes records at their deadline, need not know
//! about stale times. A record with an idle time is never reloaded early, and is never stale: a use
//! extends its deadline.
//!
//! A change must ensure that all deadlines but idle ones are stored with the stale time. (An idle
//! deadline that `Clock::lasting` encodes again has none, but it has passed anyway.)

use std::time::Duration;

use super::deadline::{Deadline, Now};

/// The longest stale time; see
/// [`CacheBuilder::stale_while_revalidate`](crate::cache::CacheBuilder::stale_while_revalidate).
const STALE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The times before and after a record's expiry in which a call may reload the record, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefreshTimes {
    /// The time before the expiry: `refresh_ahead`.
    ahead: i64,
    /// The time from the expiry to the stored deadline: `stale_while_revalidate`.
    stale: i64,
}

/// The place of the present time relative to a record's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// Live, and so near to its expiry that it is to be reloaded.
    Due,
    /// Expired, and kept for calls that reload it.
    Stale,
    /// Past its stored deadline: to be removed.
    Gone,
}

impl RefreshTimes {
    pub(crate) fn new(ahead: Duration, stale: Duration) -> Self {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Self { ahead: nanoseconds(ahead), stale: nanoseconds(stale.min(STALE_MAX)) }
    }

    /// Returns the deadline to be stored for a record that expires at `at`, both in nanoseconds
    /// since the clock's 0.
    pub(crate) fn end(self, at: u128) -> u128 {
        at + u128::from(self.stale.unsigned_abs())
    }

    /// Returns the time between the expiry of a record and the deadline `at` that is stored for it.
    pub(crate) fn stale_time(self, at: Deadline) -> Duration {
        Duration::from_nanos(self.stale_of(at).unsigned_abs())
    }

    fn stale_of(self, at: Deadline) -> i64 {
        if at.is_idle() {
            0
        } else {
            self.stale
        }
    }

    /// Returns the nanoseconds until the expiry of a record with the stored deadline `at`, which
    /// must not be `NEVER`; negative if the record has expired.
    pub(crate) fn left(self, at: Deadline, now: Now) -> i64 {
        at.nanoseconds_from(now).saturating_sub(self.stale_of(at))
    }

    /// Returns the freshness of a record with the stored deadline `at`, which must not be `NEVER`.
    pub(crate) fn freshness(self, at: Deadline, now: Now) -> Freshness {
        match self.left(at, now) {
            _ if at.is_past(now) => Freshness::Gone,
            ..=0 => Freshness::Stale,
            left if left < self.ahead && !at.is_idle() => Freshness::Due,
            _ => Freshness::Fresh,
        }
    }
}

impl Freshness {
    /// Returns whether a call may reload the record.
    pub(crate) fn is_due(self) -> bool {
        matches!(self, Self::Due | Self::Stale)
    }
}
