//! [`Expiry`]: the protocol's exptime, a number of four kinds, as one type.
//!
//! | exptime | meaning |
//! |---|---|
//! | 0 | never |
//! | below 0 | already expired |
//! | up to 30 days in seconds | that many seconds from now |
//! | more | a Unix time, 30 years ahead at most |
//!
//! The store gets this type and never a number, so that the kinds cannot be confused.
//!
//! A change must ensure that `Expiry::of` alone interprets a number of the protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest exptime that is relative; a larger one is a Unix time.
const RELATIVE_MAX_SECONDS: u64 = 60 * 60 * 24 * 30;

/// An exptime further ahead counts as this one: 30 years. The cache takes a deadline more than 34
/// years after its start for never, and a client that gives a time may rely on one.
const AHEAD_MAX: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// The time at which a value expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// In the past: the value has expired already.
    Past,
    /// After this time, counted from the creation of the `Expiry`.
    In(Duration),
}

impl From<Option<Duration>> for Expiry {
    /// Converts the time left of a stored value; `None`: it never expires.
    fn from(left: Option<Duration>) -> Self {
        left.map_or(Self::Never, Self::In)
    }
}

impl Expiry {
    /// Converts an exptime, relative to the current time.
    pub fn of(exptime: i64) -> Self {
        Self::at(exptime, SystemTime::now)
    }

    /// Returns the seconds left, rounded up, as memcached shows them; `None`: it never expires.
    pub fn seconds_left(self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Past => Some(0),
            Self::In(time) => Some(time.as_secs() + u64::from(time.subsec_nanos() > 0)),
        }
    }

    /// Returns the time to live; `None` for a value that never expires, and for one that has
    /// expired already, which is not stored.
    pub fn time_to_live(self) -> Option<Duration> {
        match self {
            Self::Never | Self::Past => None,
            Self::In(time) => Some(time),
        }
    }

    /// Converts an exptime; `clock` is read only if the exptime is a Unix time.
    fn at(exptime: i64, clock: impl FnOnce() -> SystemTime) -> Self {
        let seconds = match u64::try_from(exptime) {
            Err(_) => return Self::Past,
            Ok(0) => return Self::Never,
            Ok(seconds) => seconds,
        };
        let left = if seconds <= RELATIVE_MAX_SECONDS {
            Duration::from_secs(seconds)
        } else {
            let unix = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
            match Duration::from_secs(seconds).checked_sub(unix) {
                None | Some(Duration::ZERO) => return Self::Past,
                Some(left) => left,
            }
        };
        Self::In(left.min(AHEAD_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_exptime() {
        let clock = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let at = |exptime| Expiry::at(exptime, || clock);
        assert_eq!(at(0), Expiry::Never);
        assert_eq!(at(-1), Expiry::Past);
        assert_eq!(at(i64::MIN), Expiry::Past);
        assert_eq!(at(1), Expiry::In(Duration::from_secs(1)));
        assert_eq!(at(2_592_000), Expiry::In(Duration::from_secs(2_592_000)), "30 days are still relative");
        assert_eq!(at(2_592_001), Expiry::Past, "a date in 1970");
        assert_eq!(at(1_700_000_000), Expiry::Past);
        assert_eq!(at(1_700_000_005), Expiry::In(Duration::from_secs(5)));
        let far = 60 * 60 * 24 * 365 * 40;
        assert_eq!(at(1_700_000_000 + far), Expiry::In(AHEAD_MAX), "no time means never");
        assert_eq!(at(i64::MAX), Expiry::In(AHEAD_MAX));
    }

    #[test]
    fn a_begun_second_is_left() {
        for (expiry, left) in [
            (Expiry::Never, None),
            (Expiry::Past, Some(0)),
            (Expiry::In(Duration::from_secs(100)), Some(100)),
            (Expiry::In(Duration::from_millis(99_001)), Some(100)),
        ] {
            assert_eq!(expiry.seconds_left(), left);
        }
    }
}
