//! File descriptors: the process's limit is raised to what all connections need, and one descriptor
//! is kept in reserve.
//!
//! Without the spare, a process that is out of descriptors could not even accept a client to refuse
//! it, and the client would wait for ever.
//!
//! A change must ensure that the spare is reserved again after each refusal.

use std::fs::File;
use std::time::{Duration, Instant};

/// Descriptors of each thread's event loop.
const PER_THREAD: u64 = 4;
/// Descriptors of each listener: its socket, and the spare one.
const PER_LISTENER: u64 = 2;
/// Descriptors for standard streams, HTTP, files, and clients that are being refused.
const OTHERS: u64 = 64;
/// The least time between two log lines about clients without a descriptor.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// A limit that the system puts on the number of a process's file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorLimit {
    /// The limit that is in force; `None`: none.
    soft: Option<u64>,
    /// The limit up to which the process may raise `soft`; `None`: none.
    hard: Option<u64>,
}

/// Raises the process's limit of file descriptors, if it is too low for this many connections,
/// threads and listeners. `inherited` of the listeners are duplicates of the service manager's
/// descriptors, which stay open.
///
/// # Errors
///
/// A sentence, if the system does not allow as many.
#[cfg(unix)]
pub fn allow(connections_max: u64, threads: usize, listeners: usize, inherited: usize) -> Result<(), String> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

    let given = getrlimit(Resource::Nofile);
    let limit = DescriptorLimit { soft: given.current, hard: given.maximum };
    let needed = needed(connections_max, threads, listeners, inherited);
    let Some(wanted) = limit.raised_to(needed) else { return Ok(()) };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: wanted.soft, maximum: wanted.hard });
    raised.map_err(|_| limit.refusal(needed, connections_max))
}

/// Elsewhere, sockets are not bounded by such a limit.
#[cfg(not(unix))]
pub fn allow(_connections_max: u64, _threads: usize, _listeners: usize, _inherited: usize) -> Result<(), String> {
    Ok(())
}

/// Returns the number of descriptors that a server needs.
fn needed(connections_max: u64, threads: usize, listeners: usize, inherited: usize) -> u64 {
    let of_listeners = listeners as u64 * PER_LISTENER + inherited as u64;
    connections_max.saturating_add(threads as u64 * PER_THREAD + of_listeners + OTHERS)
}

impl DescriptorLimit {
    /// Returns the limit to set, so that `needed` descriptors are allowed; `None` if they are
    /// already. Only a privileged process may raise the hard limit.
    fn raised_to(self, needed: u64) -> Option<Self> {
        let is_low = |limit: Option<u64>| limit.is_some_and(|limit| limit < needed);
        is_low(self.soft).then(|| Self { soft: Some(needed), hard: self.hard.map(|hard| hard.max(needed)) })
    }

    fn refusal(self, needed: u64, connections_max: u64) -> String {
        let hard = self.hard.unwrap_or(u64::MAX);
        format!(
            "-c: {connections_max} connections need {needed} file descriptors, and the system allows {hard}; \
             raise its limit (ulimit -Hn, or LimitNOFILE= of systemd), or allow fewer connections with -c"
        )
    }
}

/// A file descriptor in reserve. While it is released, one more client can be accepted, to be
/// refused: otherwise clients would wait in the listener's queue without an answer.
#[derive(Debug)]
pub struct SpareDescriptor {
    /// An open null device; `None` while released, or if it could not be opened.
    file: Option<File>,
    /// The time of the last log line.
    logged: Option<Instant>,
    /// Refused clients since the last log line.
    refused: u64,
}

impl SpareDescriptor {
    pub fn new() -> Self {
        let mut spare = Self { file: None, logged: None, refused: 0 };
        spare.reserve();
        spare
    }

    /// Returns whether the error of an `accept` means that there is no descriptor left.
    pub fn is_needed_for(why: &std::io::Error) -> bool {
        // `EMFILE` and `ENFILE`, which have these numbers on all unix systems.
        cfg!(unix) && matches!(why.raw_os_error(), Some(23 | 24))
    }

    /// Releases the descriptor. Returns false if none is in reserve.
    pub fn release(&mut self) -> bool {
        self.file.take().is_some()
    }

    /// Opens the descriptor again, unless the system has none left: then a later call tries again.
    pub fn reserve(&mut self) {
        if self.file.is_none() {
            self.file = File::open(if cfg!(unix) { "/dev/null" } else { "NUL" }).ok();
        }
    }

    /// Counts a refused client. Returns the number of clients to log, not more often than once in
    /// [`LOG_PAUSE`].
    pub fn note_refused(&mut self, now: Instant) -> Option<u64> {
        self.refused += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_PAUSE) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_if_it_is_too_low() {
        let limit = |soft, hard| DescriptorLimit { soft, hard };
        for (given, needed, wanted) in [
            (limit(Some(1024), Some(4096)), 1024, None),
            (limit(Some(1024), Some(4096)), 1025, Some(limit(Some(1025), Some(4096)))),
            (limit(Some(1024), Some(1024)), 1025, Some(limit(Some(1025), Some(1025)))),
            (limit(Some(40), None), 1025, Some(limit(Some(1025), None))),
            (limit(None, None), u64::MAX, None),
        ] {
            assert_eq!(given.raised_to(needed), wanted, "{given:?} {needed}");
        }
        assert_eq!(needed(u64::MAX, 4, 1, 0), u64::MAX);
        let why = limit(Some(40), Some(40)).refusal(needed(1024, 4, 1, 1), 1024);
        assert!(why.contains("1024 connections need 1107 file descriptors, and the system allows 40"), "{why}");
    }

    #[test]
    fn refused_clients_are_logged_now_and_then() {
        let (mut spare, start) = (SpareDescriptor::new(), Instant::now());
        assert!(spare.release() && !spare.release());
        spare.reserve();
        assert!(spare.release());
        assert_eq!(spare.note_refused(start), Some(1));
        assert_eq!((0..5).find_map(|_| spare.note_refused(start)), None);
        assert_eq!(spare.note_refused(start + LOG_PAUSE), Some(6));
    }
}
