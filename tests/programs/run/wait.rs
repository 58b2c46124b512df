//! Waits for work on the library's threads.
//!
//! A change must keep the time limit, which detects a housekeeper that no longer works.

use std::time::{Duration, Instant};

use lowwater::Runtime;

use crate::token::fail;

/// The longest wait for work on the library's threads.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true; after `patience` fails with the message of `otherwise`.
pub fn until(patience: Duration, holds: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > patience {
            fail(&otherwise());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops a group, and waits until the housekeeper has ended it.
pub fn housekeeper_works(runtime: &Runtime) {
    if runtime.group("last").and_then(|last| runtime.drop_group(&last)).is_ok() {
        until(PATIENCE, || runtime.find_group("last").is_none(), || "a dropped group does not go".into());
    }
}
