//! Log lines on stderr, each with a time stamp: `2026-11-25T16:04:05.123456Z <7 get a`.
//!
//! The shape is that of memcached's lines: `<` and the number of a connection stand before a
//! received line, `>` and the number before a line of a reply. A line is one write, so that the
//! lines of several threads do not mix.
//!
//! A change must keep the single write. This module escapes nothing: each caller escapes bytes from
//! clients that are no printable ASCII (`session.rs`, `net/trace.rs`), so that no client can forge
//! a line.

use std::fmt::Arguments;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum number of bytes, before they are escaped, that callers log of a received line or of
/// a line of a reply: a `get` may be 256 KiB long.
pub const SENT_BYTES_MAX: usize = 512;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Writes a line with the current time. `text` has no line breaks.
pub fn write(text: Arguments<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {text}\n", stamp(now));
    // A closed stderr is no reason to stop serving.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Returns a Unix time as a date and a time of day in UTC, with microseconds.
fn stamp(unix: Duration) -> String {
    let (days, second) = (unix.as_secs() / SECONDS_PER_DAY, unix.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", unix.subsec_micros())
}

/// Returns the year, month and day of the month that is this many days after 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    loop {
        let length = 365 + u64::from(is_leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_time_in_utc() {
        for (seconds, micros, text) in [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, 1, "2000-02-28T23:59:59.000001Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, 999_999, "2024-02-29T23:59:59.999999Z"),
            (1_709_251_200, 0, "2024-03-01T00:00:00.000000Z"),
            (1_798_761_599, 0, "2026-12-31T23:59:59.000000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(stamp(Duration::new(seconds, micros * 1000)), text);
        }
    }
}
