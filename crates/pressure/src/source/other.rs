//! Other systems: nothing from outside tells pressure in a file; the thread only waits for time, and to be waked.

use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::path::Path;
use std::time::Instant;

use lowwater_base::sync::{Condvar, Mutex};

use super::{Source, SourceError, SourceEvent};

/// There is none.
#[derive(Debug)]
pub(crate) struct OpenSource(Infallible);

impl OpenSource {
    pub(crate) fn open(source: &Source) -> Result<Self, SourceError> {
        Err(SourceError::Unsupported { file: source.file()? })
    }

    pub(crate) fn cgroup_events(_file: &Path) -> Result<Option<Self>, SourceError> {
        Ok(None)
    }

    pub(crate) fn file(&self) -> &str {
        match self.0 {}
    }
}

/// The place where the one thread waits, for time, or to be waked.
#[derive(Debug)]
pub(crate) struct Poller {
    waked: Mutex<bool>,
    changed: Condvar,
}

impl Poller {
    #[expect(clippy::unnecessary_wraps, reason = "where it is a file descriptor, there may be none left")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waked: Mutex::new(false), changed: Condvar::new() })
    }

    /// Ends the wait under way, or the next.
    pub(crate) fn wake(&self) {
        *self.waked.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for `time` at most, without end for none.
    pub(crate) fn wait(
        &self,
        time: Option<Duration>,
        _sources: &mut [Option<OpenSource>],
        _heard: impl FnMut(usize, Result<SourceEvent, SourceError>),
    ) {
        // A time that no clock reaches is no time.
        let until = time.and_then(|time| Instant::now().checked_add(time));
        let mut waked = self.waked.lock();
        while !*waked {
            match until {
                Some(until) if self.changed.wait_until(&mut waked, until).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut waked),
            }
        }
        *waked = false;
    }
}
