//! Waits for a condition that another thread makes true.
//!
//! Tests wait for a state, never for a time, so that a busy machine only makes them slower.
//!
//! A change must ensure that a wait ends by the state or by a failure with the condition's name.

use std::time::{Duration, Instant};

/// The longest wait. It only ends a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_done` returns true.
///
/// # Panics
///
/// After [`PATIENCE`]; the message contains `what`.
pub fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < PATIENCE, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
