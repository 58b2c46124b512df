//! A deadline for code that may deadlock.
//!
//! A test that could deadlock would otherwise hang the whole run.
//!
//! A change must ensure that a test which is late fails.

use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// The longest run. It only ends a test that fails.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `f` on a thread of its own, and returns its result.
///
/// # Panics
///
/// If `f` has not returned after 120 s, or with the panic of `f`.
pub fn in_time<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || drop(sender.send(f())));
    match receiver.recv_timeout(DEADLINE) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("deadlock: not done within {DEADLINE:?}"),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}
