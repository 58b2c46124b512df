//! Sources on other systems: none. The thread only waits for a timeout or a wake-up.
//!
//! Same interface as `linux.rs`, so that the monitor's thread is the same on all systems.
//!
//! A change must ensure that `wait` returns at the timeout, and after a `wake` that came before it.

use alloc::string::String;
use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::path::Path;
use std::time::Instant;

use lowwater_base::sync::{Condvar, Mutex};

use super::{Source, SourceError, SourceEvent};

/// A source, of which there are none.
#[derive(Debug)]
pub(crate) struct OpenSource(Infallible);

impl OpenSource {
    pub(crate) fn open(source: &Source) -> Result<Self, SourceError> {
        // Without a cgroup, the file of the process's own cgroup has no path.
        let file = source.file().unwrap_or_else(|_| String::from("memory.pressure"));
        Err(SourceError::Unsupported { file })
    }

    pub(crate) fn cgroup_events(_group: &Path, _is_own: bool) -> Result<Option<Self>, SourceError> {
        Ok(None)
    }

    pub(crate) fn file(&self) -> &str {
        match self.0 {}
    }

    pub(crate) fn repeats(&self, _other: &Self) -> bool {
        match self.0 {}
    }
}

/// The wait of the monitor's thread: for a timeout, and a wake-up.
#[derive(Debug)]
pub(crate) struct Poller {
    waked: Mutex<bool>,
    changed: Condvar,
}

impl Poller {
    #[expect(clippy::unnecessary_wraps, reason = "the Linux version needs a file descriptor and may fail")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waked: Mutex::new(false), changed: Condvar::new() })
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn wake(&self) {
        *self.waked.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for up to `time`, or without limit for `None`.
    pub(crate) fn wait(
        &self,
        time: Option<Duration>,
        _sources: &mut [Option<OpenSource>],
        _heard: impl FnMut(usize, Result<SourceEvent, SourceError>),
    ) {
        // A deadline that the clock cannot represent is no deadline.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psi::{Psi, Trigger};
    use crate::systemd::Watch;
    use alloc::vec::Vec;

    #[test]
    fn every_source_is_unsupported() {
        let trigger = Trigger::some(Duration::from_millis(150), Duration::from_secs(2)).unwrap();
        let watch = Watch { path: "/run/pressure".into(), write: Vec::new() };
        let sources = [
            (Source::Psi(Psi::own_cgroup(trigger)), "memory.pressure"),
            (Source::Psi(Psi::system(trigger)), "/proc/pressure/memory"),
            (Source::Systemd(watch), "/run/pressure"),
        ];
        for (source, expected) in sources {
            match OpenSource::open(&source) {
                Err(SourceError::Unsupported { file }) => assert_eq!(file, expected),
                other => panic!("{source:?}: {other:?}"),
            }
        }
    }
}
