//! More time from the service manager for a save or load that takes longer than its limits.
//!
//! A change must ensure that the time is extended only while values are written or read: a server
//! that hangs must be stopped.

use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::service_manager::{self, State};

/// The time between two extensions.
const EVERY: Duration = Duration::from_secs(10);
/// The time that each extension gives from then on.
const EXTENSION: Duration = Duration::from_secs(60);
/// The same before a call that writes all of a file to the disk, and reports no progress.
const SYNC_EXTENSION: Duration = Duration::from_secs(600);

/// The extensions of one save or load.
#[derive(Debug, Default)]
pub struct TimeExtension {
    last: Option<Instant>,
}

impl TimeExtension {
    /// Extends the manager's limit, if the last extension is [`EVERY`] ago, or there was none.
    pub fn note_progress(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            extend(EXTENSION);
        }
    }

    /// Extends the manager's limit before the file is synced.
    pub fn note_sync() {
        extend(SYNC_EXTENSION);
    }
}

fn extend(time: Duration) {
    // An error was logged, or will be, when the server reports that it is ready or stops.
    #[cfg(unix)]
    let _ = service_manager::notify(State::Busy(time));
    #[cfg(not(unix))]
    let _ = time;
}
