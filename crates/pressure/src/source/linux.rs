//! Sources of pressure on Linux: PSI triggers, the service manager's file, and the counters of
//! control groups. Each is a file descriptor, and the monitor's thread polls them all.
//!
//! The types of readiness differ (POLLPRI for PSI and counters, POLLIN for a FIFO or socket),
//! so each source has a `How`.
//!
//! A change must ensure that each error of a source is reported: the monitor then drops the source,
//! as a poll of a dead descriptor returns at once, for ever.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::Timespec;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Source, SourceError, SourceEvent};
use crate::cgroup::{CgroupError, Events};
use crate::psi::{Psi, StallKind, Stalls};
use crate::systemd::Watch;
use crate::Level;

/// Bytes in one read from a FIFO or a socket, and the most reads in a row, so that a fast writer
/// does not hold up the thread. If more was written, the next poll returns at once.
const DRAIN_BYTES: usize = 4096;
const DRAIN_READS: usize = 16;
/// The buffer for the counters of a group, larger than the file of any kernel.
const COUNTERS_BYTES: usize = 4096;
/// The pause after a failed poll.
const POLL_REST: Duration = Duration::from_millis(100);

/// A source that is being watched.
#[derive(Debug)]
pub(crate) struct OpenSource {
    file: String,
    fd: OwnedFd,
    how: How,
}

/// How events of a source arrive.
#[derive(Debug)]
enum How {
    /// By `POLLPRI`, after `text` was written to the file. The first event takes `first`.
    Trigger { level: Level, text: Vec<u8>, first: Option<First> },
    /// By bytes without meaning. `echo` has the bytes that this side wrote to a FIFO and has not
    /// read back yet.
    Bytes { echo: Vec<u8> },
    /// By `POLLPRI`, from the change of a counter until the file is read through the polled
    /// descriptor. `seen` has the counters of the last read. `has_others`: the file also counts
    /// OOMs of groups whose limits do not apply to this process.
    Counters { seen: Events, has_others: bool },
}

/// The stall times when the watch began, with which the first event of a trigger is compared.
///
/// The kernel does not sample for triggers while there is none. So the first event of a new trigger
/// may report stalls from before the watch, since the last trigger was closed: those of a build,
/// for example, that ended a quarter of an hour ago.
#[derive(Debug)]
struct First {
    began: Stalls,
    kind: StallKind,
    /// The stall time of the trigger. If the stall time has grown by less than half of this, the
    /// first event is about older stalls.
    stall: Duration,
}

impl First {
    /// Reads the stall times before the trigger is written; `None` if the file is not a PSI file.
    fn begin(file: &str, kind: StallKind, stall: Duration) -> Option<Self> {
        Some(Self { began: stalls(file)?, kind, stall })
    }

    /// Returns whether an event that arrives now is about stalls since the watch began.
    fn is_news(&self, file: &str) -> bool {
        let total = |stalls: &Stalls| match self.kind {
            StallKind::Some => stalls.some.total_us,
            StallKind::Full => stalls.full.total_us,
        };
        // If the file can no longer be read, the event counts as new. Half of the stall suffices,
        // because the two values are not sampled at the same time.
        stalls(file).is_none_or(|now| {
            u128::from(total(&now).saturating_sub(total(&self.began))) >= self.stall.as_micros().div_ceil(2)
        })
    }
}

/// Reads the stall times; `None` if the file is no readable PSI file.
fn stalls(file: &str) -> Option<Stalls> {
    // Regular files only: a read of a FIFO or a device might not end.
    fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Stalls::parse(&fs::read_to_string(file).ok()?).ok()
}

impl OpenSource {
    /// Opens the source and writes its trigger, or the bytes of `$MEMORY_PRESSURE_WRITE`.
    pub(crate) fn open(source: &Source) -> Result<Self, SourceError> {
        let file = source.file()?;
        match source {
            Source::Psi(psi) => Self::psi(file, psi),
            Source::Systemd(watch) => Self::systemd(file, watch),
        }
    }

    fn psi(file: String, psi: &Psi) -> Result<Self, SourceError> {
        let fd = open(&file, true)?;
        let first = First::begin(&file, psi.trigger.kind(), psi.trigger.stall());
        // The kernel overwrites the last byte of the text with 0, so there has to be one more.
        let text = alloc::format!("{}\0", psi.trigger).into_bytes();
        if let Err(errno) = rustix::io::write(&fd, &text) {
            return Err(SourceError::Trigger {
                file,
                trigger: psi.trigger,
                error: errno.into(),
                advice: trigger_advice(psi, errno),
            });
        }
        Ok(Self { file, fd, how: How::Trigger { level: psi.trigger.level(), text, first } })
    }

    /// Opens the file of `$MEMORY_PRESSURE_WATCH` according to its type (regular file, FIFO,
    /// socket), and writes the bytes of `$MEMORY_PRESSURE_WRITE`.
    fn systemd(file: String, watch: &Watch) -> Result<Self, SourceError> {
        let kind = fs::metadata(&file).map_err(|error| cannot_open(&file, error))?.file_type();
        let (fd, how) = if kind.is_file() {
            // The service manager chose the stall time, in the bytes to write, which are not
            // parsed: any growth counts as new.
            let first = First::begin(&file, StallKind::Some, Duration::from_micros(1));
            let how = How::Trigger { level: Level::Medium, text: watch.write.clone(), first };
            (open(&file, !watch.write.is_empty())?, how)
        } else if kind.is_fifo() {
            // Opened for writing, too: then the FIFO always has a writer, and never polls as
            // closed.
            (open(&file, true)?, How::Bytes { echo: watch.write.clone() })
        } else if kind.is_socket() {
            (connect(&file).map_err(|errno| cannot_open(&file, errno.into()))?, How::Bytes { echo: Vec::new() })
        } else {
            return Err(SourceError::Kind { file });
        };
        if !watch.write.is_empty() {
            let written = if kind.is_socket() {
                // NOSIGNAL: no SIGPIPE if the peer has closed.
                net::send(&fd, &watch.write, SendFlags::NOSIGNAL)
            } else {
                rustix::io::write(&fd, &watch.write)
            };
            match written {
                Ok(n) if n == watch.write.len() => {}
                Ok(_) => return Err(SourceError::Write { file, error: io::ErrorKind::WriteZero.into() }),
                Err(errno) => return Err(SourceError::Write { file, error: errno.into() }),
            }
        }
        Ok(Self { file, fd, how })
    }

    /// Opens the counters of a group, which is the process's own or one above it; `None` where
    /// there are none (v1, the root).
    pub(crate) fn cgroup_events(group: &Path, is_own: bool) -> Result<Option<Self>, SourceError> {
        // `memory.events` includes the groups below. Below a group above the own one these are also
        // siblings, which may be out of memory at limits of their own: `memory.events.local` (since
        // Linux 5.2) counts an `oom` only in the group that has the limit.
        let (all, local) = (group.join("memory.events"), group.join("memory.events.local"));
        let is_local = !is_own && local.exists();
        let file = if is_local { local } else { all };
        if !file.exists() {
            return Ok(None);
        }
        let file = file.to_string_lossy().into_owned();
        let fd = open(&file, false)?;
        let seen = counters(&fd, &file)?;
        Ok(Some(Self { file, fd, how: How::Counters { seen, has_others: !is_own && !is_local } }))
    }

    /// Returns the path of the file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Returns whether `other` reports the same events: those of the same file, and of the same
    /// trigger if the file takes triggers. The kernel allows several triggers of one file.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let is_same_trigger = match (&self.how, &other.how) {
            (How::Trigger { text, .. }, How::Trigger { text: theirs, .. }) => text == theirs,
            _ => true,
        };
        self.file == other.file && is_same_trigger
    }

    fn interest(&self) -> PollFlags {
        match self.how {
            How::Trigger { .. } | How::Counters { .. } => PollFlags::PRI,
            How::Bytes { .. } => PollFlags::IN,
        }
    }

    /// Reads the event after a poll returned `ready`. After an error the caller drops the source.
    fn hear(&mut self, ready: PollFlags) -> Result<SourceEvent, SourceError> {
        let gone = ready.intersects(PollFlags::ERR | PollFlags::NVAL);
        match &mut self.how {
            How::Trigger { .. } if gone => Err(SourceError::Gone { file: self.file.clone() }),
            How::Trigger { level, first, .. } => {
                let is_news = first.take().is_none_or(|first| first.is_news(&self.file));
                Ok(if is_news { SourceEvent::Level(*level) } else { SourceEvent::Nothing })
            }
            // The kernel returns ERR together with PRI each time the counters change.
            How::Counters { seen, has_others } => {
                let now = counters(&self.fd, &self.file)?;
                // The `max` and `high` counters are ignored: page cache alone makes them grow. The
                // group's usage is read instead, also where an OOM may be that of another group.
                let has_oom = now.oom > seen.oom || now.oom_kill > seen.oom_kill;
                let out_of_memory = has_oom && !*has_others;
                *seen = now;
                Ok(if out_of_memory { SourceEvent::Level(Level::Critical) } else { SourceEvent::Look })
            }
            How::Bytes { echo } => {
                let heard = drain(&self.fd, echo, &self.file)?;
                Ok(if heard { SourceEvent::Level(Level::Medium) } else { SourceEvent::Nothing })
            }
        }
    }
}

/// Reads the counters of a group from offset 0.
fn counters(fd: &OwnedFd, file: &str) -> Result<Events, SourceError> {
    let mut buffer = [0; COUNTERS_BYTES];
    let read = match rustix::io::pread(fd, &mut buffer, 0) {
        Ok(n) => &buffer[..n],
        Err(Errno::NODEV) => return Err(SourceError::Gone { file: file.to_owned() }),
        Err(errno) => return Err(SourceError::Read { file: file.to_owned(), error: errno.into() }),
    };
    Events::parse(&String::from_utf8_lossy(read))
        .map_err(|error| CgroupError::Malformed { file: file.into(), error }.into())
}

/// Reads the available bytes. Returns whether there were others than `echo`, from which the bytes
/// that were read are removed.
fn drain(fd: &OwnedFd, echo: &mut Vec<u8>, file: &str) -> Result<bool, SourceError> {
    let mut buffer = [0; DRAIN_BYTES];
    let mut heard = false;
    for _ in 0..DRAIN_READS {
        let read = match rustix::io::read(fd, &mut buffer) {
            Ok(n @ 1..) => &buffer[..n],
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => continue,
            // The event first: the next poll returns at once, and its read reports the end.
            _ if heard => break,
            Ok(_) => return Err(SourceError::Closed { file: file.to_owned() }),
            Err(errno) => return Err(SourceError::Read { file: file.to_owned(), error: errno.into() }),
        };
        let ours = read.iter().zip(&*echo).take_while(|(read, ours)| read == ours).count();
        if ours == echo.len().min(read.len()) {
            echo.drain(..ours);
            heard |= read.len() > ours;
        } else {
            // Another reader has consumed our bytes.
            echo.clear();
            heard = true;
        }
    }
    Ok(heard)
}

fn open(file: &str, write: bool) -> Result<OwnedFd, SourceError> {
    let opened = OpenOptions::new().read(true).write(write).custom_flags(OFlags::NONBLOCK.bits() as i32).open(file);
    opened.map(OwnedFd::from).map_err(|error| cannot_open(file, error))
}

/// Connects without blocking. The standard library's `connect` waits if the peer does not accept.
fn connect(file: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(file)?)?;
    Ok(socket)
}

fn cannot_open(file: &str, error: io::Error) -> SourceError {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "is PSI switched off (kernel argument psi=1), or the path wrong? else leave it out",
        io::ErrorKind::PermissionDenied => {
            "let this process write there (systemd: MemoryPressureWatch=), or leave it out"
        }
        _ if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
            "switch PSI on (kernel argument psi=1), or leave it out"
        }
        _ => "correct the path, or leave it out",
    };
    SourceError::Open { file: file.to_owned(), error, advice }
}

fn trigger_advice(psi: &Psi, errno: Errno) -> &'static str {
    match errno {
        Errno::INVAL if !psi.trigger.is_unprivileged() => {
            "without CAP_SYS_RESOURCE the window must be a multiple of 2 s: take 2, 4, 6, 8 or 10 s, or grant the capability"
        }
        Errno::PERM | Errno::ACCESS => "this kernel takes triggers only with CAP_SYS_RESOURCE: grant it, or leave this out",
        Errno::BUSY => "leave this out, or open the file once more for a second trigger",
        Errno::OPNOTSUPP => "switch PSI on (kernel argument psi=1), or leave this out",
        _ => "is this a PSI file?",
    }
}

/// The poll of the monitor's thread: for events of sources, a timeout, and a wake-up.
#[derive(Debug)]
pub(crate) struct Poller {
    waker: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn wake(&self) {
        // The only possible error is a full counter, which means that a wake-up is pending.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Waits for up to `time`, or without limit for `None`. Calls `heard` with the index of each
    /// source that has an event.
    pub(crate) fn wait(
        &self,
        time: Option<Duration>,
        sources: &mut [Option<OpenSource>],
        mut heard: impl FnMut(usize, Result<SourceEvent, SourceError>),
    ) {
        let mut fds: Vec<_> = sources
            .iter()
            .flatten()
            .map(|source| PollFd::from_borrowed_fd(source.fd.as_fd(), source.interest()))
            .chain([PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)])
            .collect();
        let time = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut fds, time.as_ref()) {
            Ok(_) => {}
            // A signal counts as a timeout; the caller polls again.
            Err(Errno::INTR) => return,
            // Out of memory, or more descriptors than the process may have: sleeps, instead of
            // polling in a busy loop.
            Err(_) => return std::thread::sleep(POLL_REST),
        }
        let ready: Vec<_> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if ready.last().is_some_and(|waker| !waker.is_empty()) {
            let _ = rustix::io::read(&self.waker, &mut [0_u8; 8]);
        }
        let open = sources.iter_mut().enumerate().filter_map(|(index, source)| source.as_mut().map(|s| (index, s)));
        for ((index, source), ready) in open.zip(ready).filter(|(_, ready)| !ready.is_empty()) {
            heard(index, source.hear(ready));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trigger;
    use std::io::Write;

    /// A kernel without triggers for a long time reports all stalls of that time to a new trigger.
    #[test]
    fn a_first_event_about_older_stalls_is_dropped() {
        let path = std::env::temp_dir().join(alloc::format!("lowwater-psi-{}", std::process::id()));
        let file = path.to_str().expect("a plain path");
        let says = |some: u64, full: u64| {
            let line =
                |kind: &str, total: u64| alloc::format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
            fs::write(file, line("some", some) + &line("full", full)).unwrap();
        };
        let (stall, window) = (Duration::from_millis(150), Duration::from_secs(2));
        let hears = |trigger: Trigger, before: [u64; 2], then: Option<[u64; 2]>| {
            says(before[0], before[1]);
            let mut opened = OpenSource::open(&Source::Psi(Psi::file(file, trigger))).unwrap();
            match then {
                Some([some, full]) => says(some, full),
                None => fs::write(file, "garbage").unwrap(),
            }
            [0; 2].map(|_| opened.hear(PollFlags::PRI).unwrap())
        };
        let (some, full) = (Trigger::some(stall, window).unwrap(), Trigger::full(stall, window).unwrap());
        let (medium, critical) = (SourceEvent::Level(Level::Medium), SourceEvent::Level(Level::Critical));
        let before = [228_845_631, 206_382_783];
        assert_eq!(hears(some, before, Some([228_847_552, 206_384_329])), [SourceEvent::Nothing, medium]);
        assert_eq!(hears(some, before, Some([228_995_631, 206_382_783])), [medium, medium]);
        assert_eq!(hears(full, before, Some([228_995_631, 206_382_783])), [SourceEvent::Nothing, critical]);
        assert_eq!(hears(full, before, Some([228_995_631, 206_532_783])), [critical, critical]);
        assert_eq!(hears(some, before, None), [medium, medium], "an unreadable file makes every event count");
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn an_event_before_the_peers_close_is_heard() {
        let path = std::env::temp_dir().join(alloc::format!("lowwater-closed-{}", std::process::id()));
        let file = path.to_str().expect("a plain path").to_owned();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // A peer that closes before it has read all bytes resets the connection.
        for write in [b"".as_slice(), b"unread"] {
            let watch = Watch { path: file.clone(), write: write.into() };
            let mut opened = OpenSource::open(&Source::Systemd(watch)).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(b"!").unwrap();
            drop(peer);
            let mut hears = || opened.hear(PollFlags::IN | PollFlags::HUP);
            assert!(matches!(hears(), Ok(SourceEvent::Level(Level::Medium))), "{write:?}");
            assert!(matches!(hears(), Err(SourceError::Closed { .. })), "{write:?}");
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_oom_at_another_groups_limit_is_no_pressure() {
        let group = std::env::temp_dir().join(alloc::format!("lowwater-oom-{}", std::process::id()));
        let _ = fs::remove_dir_all(&group);
        fs::create_dir_all(&group).unwrap();
        let (all, local) = (group.join("memory.events"), group.join("memory.events.local"));
        let says = |file: &Path, oom: u64, oom_kill: u64| {
            fs::write(file, alloc::format!("high 0\nmax 7\noom {oom}\noom_kill {oom_kill}\n")).unwrap();
        };
        let open = |is_own| {
            says(&all, 1, 1);
            OpenSource::cgroup_events(&group, is_own).unwrap().unwrap()
        };
        let hears = |opened: &mut OpenSource| opened.hear(PollFlags::PRI | PollFlags::ERR).unwrap();
        let critical = SourceEvent::Level(Level::Critical);

        // A kernel before 5.2: the usage decides, except for the own group.
        let (mut own, mut above) = (open(true), open(false));
        says(&all, 2, 2);
        assert_eq!((hears(&mut own), hears(&mut above)), (critical, SourceEvent::Look));
        assert_eq!((hears(&mut own), hears(&mut above)), (SourceEvent::Look, SourceEvent::Look), "seen");

        says(&local, 0, 0);
        let (mut own, mut above) = (open(true), open(false));
        // A sibling's OOM, at the limit of the sibling.
        says(&all, 2, 2);
        assert_eq!((hears(&mut own), hears(&mut above)), (critical, SourceEvent::Look));
        // An OOM at the limit of the group above, which has no process itself.
        says(&local, 1, 0);
        assert_eq!(hears(&mut above), critical);
        fs::remove_dir_all(group).unwrap();
    }

    #[test]
    fn each_errno_of_a_trigger_has_advice() {
        let psi = |window| Psi::system(Trigger::some(Duration::from_millis(150), Duration::from_secs(window)).unwrap());
        let cases = [
            (3, Errno::INVAL, "multiple of 2 s"),
            (2, Errno::INVAL, "is this a PSI file?"),
            (2, Errno::PERM, "only with CAP_SYS_RESOURCE"),
            (2, Errno::ACCESS, "only with CAP_SYS_RESOURCE"),
            (2, Errno::BUSY, "open the file once more"),
            (2, Errno::OPNOTSUPP, "psi=1"),
            (2, Errno::IO, "is this a PSI file?"),
        ];
        for (window, errno, part) in cases {
            let advice = trigger_advice(&psi(window), errno);
            assert!(advice.contains(part), "{errno:?}: {advice}");
        }
        for (errno, part) in [
            (Errno::NOENT, "or the path wrong?"),
            (Errno::ACCESS, "MemoryPressureWatch="),
            (Errno::OPNOTSUPP, "switch PSI on"),
            (Errno::ISDIR, "correct the path"),
        ] {
            let SourceError::Open { advice, .. } = cannot_open("file", errno.into()) else { panic!("{errno:?}") };
            assert!(advice.contains(part), "{errno:?}: {advice}");
        }
    }
}
