//! Measurements whose result depends on the time at which the reclaimer's thread runs.
//!
//! On a busy machine a single one may be outside of its bound. A defect of the code puts most of
//! them outside.
//!
//! A change must ensure that two bad measurements of three fail.

use std::time::Duration;

/// The pause after a bad measurement: what made it bad, such as a thread that waits for a processor
/// and holds back memory, may last.
const PAUSE: Duration = Duration::from_secs(3);

/// Returns whether a measurement is good, or if it is not, whether two more are.
pub fn two_of_three(mut is_good: impl FnMut() -> bool) -> bool {
    is_good() || {
        std::thread::sleep(PAUSE);
        is_good() && is_good()
    }
}
