//! The heavy side of the asymmetric fence: a full fence on every processor that runs a thread of
//! this process.
//!
//! `membarrier` is that fence. If the first pin finds that the system does not have it, readers
//! execute fences of their own, and no fence of this module is run. A filter of system calls that
//! is installed later, as servers do when they drop privileges, can refuse `membarrier` to a
//! process whose readers rely on it. From then on the visitor, a thread of this library, [runs on
//! every processor](Processors::visit) on which a reader may run:
//!
//! ```text
//!     reader on processor c                    visitor
//!                                              now = global epoch, under the participants' lock
//!       local epoch = t, follow the pointer    processors of all readers: sched_getaffinity
//!       --- switched out ---                   for each processor c: sched_setaffinity(c)
//!                                                  runs on c
//!       --- switched in ---                    stamps before `now` have had their fence
//! ```
//!
//! While the visitor runs on `c`, no reader does. The local epoch of a reader that was switched out
//! before is stored, and a reader that is switched in afterwards sees everything that the visitor
//! saw: both take the lock of `c`'s run queue, and Linux documents a full barrier for each context
//! switch. A migration is a context switch, too, so a reader that moves between two visited
//! processors is covered. None of this depends on the architecture. A visit takes as long as the
//! visitor waits for each processor: microseconds for an idle one, milliseconds for a busy one. No
//! caller waits for the visitor.
//!
//! Alternatives that were not taken:
//!
//! - `mprotect` of a page, so that the TLB shootdown interrupts the processors: aarch64 broadcasts
//!   the invalidation in hardware, and so does Linux 6.15 on x86 processors with `INVLPGB`. A
//!   broadcast neither interrupts a reader nor waits for its stores.
//! - Readers that switch to fences of their own: a reader that was preempted inside `enter` cannot
//!   be distinguished from one that is outside, so the switch needs a heavy fence itself, or one
//!   more load in each pin.
//!
//! A kernel that accepts `sched_setaffinity` without moving the thread would make the visit
//! ineffective as a fence. gVisor does so, and is recognized by its release name. An emulation that
//! has the expedited `membarrier` and reports a release before 4.14, which introduced it, is not
//! Linux either. On these systems the fence is refused. It is refused as well if the processors of
//! a reader cannot be determined, or if the visitor may not run on one of them.
//!
//! A change must ensure that every processor on which a registered reader may run is visited, or
//! the fence is refused.

pub(super) use system::*;

#[cfg(not(miri))]
mod system {
    use core::ffi::CStr;
    use rustix::io::Errno;
    use rustix::thread::{gettid, membarrier, sched_getaffinity, sched_setaffinity, CpuSet, MembarrierCommand, Pid};
    use std::fs::File;
    use std::io::Read;

    /// The id of a thread.
    pub(crate) type Thread = Pid;

    /// Returns the id of the calling thread.
    pub(crate) fn thread() -> Thread {
        gettid()
    }

    /// Registers the process for the expedited `membarrier`, before the first [`run`]. Returns true
    /// if the system has it.
    pub(crate) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    /// Runs `membarrier`; returns false if the system refuses.
    pub(crate) fn run() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }

    /// Returns whether this is Linux itself, which really moves a thread on `sched_setaffinity`.
    /// Allocates nothing. Must be called at registration, as the file may be inaccessible after
    /// privileges were dropped.
    pub(crate) fn can_visit() -> bool {
        let mut release = [0; 64];
        let read = File::open("/proc/sys/kernel/osrelease").and_then(|mut file| file.read(&mut release[..63]));
        read.is_ok() && CStr::from_bytes_until_nul(&release).is_ok_and(|release| release.to_str().is_ok_and(is_linux))
    }

    /// Returns whether `release` is that of Linux itself, given that the kernel has `membarrier`.
    /// Otherwise it is an emulation.
    pub(super) fn is_linux(release: &str) -> bool {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let version = (numbers.next(), numbers.next());
        let (Some(Ok(major)), Some(Ok(minor))) = version else { return false };
        (major, minor) >= (4, 14) && !release.contains("gvisor")
    }

    /// A set of processors on which readers may run.
    pub(crate) struct Processors(CpuSet);

    impl Processors {
        /// Creates an empty set.
        pub(crate) fn new() -> Self {
            Self(CpuSet::new())
        }

        /// Adds the processors on which `thread` may run; returns false if they cannot be
        /// determined.
        pub(crate) fn add(&mut self, thread: Thread) -> bool {
            match sched_getaffinity(Some(thread)) {
                Ok(its) => (0..CpuSet::MAX_CPU).filter(|&n| its.is_set(n)).for_each(|n| self.0.set(n)),
                // The thread has ended, so it was switched out and does not return.
                Err(Errno::SRCH) => (),
                Err(_) => return false,
            }
            true
        }

        #[cfg(test)]
        pub(super) fn is_empty(&self) -> bool {
            self.0.count() == 0
        }

        /// Runs the calling thread on each processor of the set, and leaves it on the last one;
        /// returns false if it may not run on one of them.
        pub(crate) fn visit(&self) -> bool {
            (0..CpuSet::MAX_CPU).filter(|&n| self.0.is_set(n)).all(|n| {
                let mut one = CpuSet::new();
                one.set(n);
                sched_setaffinity(None, &one).is_ok()
            })
        }
    }
}

/// Miri has no `membarrier`: readers execute fences.
#[cfg(miri)]
mod system {
    pub(crate) type Thread = ();

    pub(crate) fn thread() -> Thread {}

    pub(crate) fn register() -> bool {
        false
    }

    pub(crate) fn run() -> bool {
        false
    }

    pub(crate) fn can_visit() -> bool {
        false
    }

    pub(crate) struct Processors;

    impl Processors {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn add(&mut self, _thread: Thread) -> bool {
            false
        }

        pub(crate) fn visit(&self) -> bool {
            false
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use core::sync::atomic::{compiler_fence, fence, AtomicU64, Ordering};

    #[test]
    fn an_emulation_of_linux_is_not_visited() {
        for linux in ["4.14.0", "4.19.0-27-amd64", "5.10.0", "6.18.44-fc-v669", "10.0-rc1"] {
            assert!(system::is_linux(linux), "{linux}");
        }
        for other in ["4.4.0", "4.19.0-gvisor", "4.4.0-19041-Microsoft", "3.10.0", "", "gvisor", "6", "six.one"] {
            assert!(!system::is_linux(other), "{other}");
        }
        assert!(can_visit(), "tests run on Linux");
    }

    #[test]
    fn an_ended_thread_needs_no_visit() {
        let thread = std::thread::spawn(thread).join().unwrap();
        // `join` returns before the system removes the thread.
        loop {
            let mut processors = Processors::new();
            assert!(processors.add(thread));
            if processors.is_empty() {
                return assert!(processors.visit(), "nothing to do");
            }
            std::thread::yield_now();
        }
    }

    /// The reader stores a rising number, and loads `GONE`, with a compiler fence in between. A
    /// number that the visitor does not find after its visit was stored after the visit, so the
    /// load that follows the store finds the value that the visitor stored before the visit.
    #[test]
    fn a_visit_is_a_fence_on_both_sides() {
        const ROUNDS: u64 = 100;
        static MARK: AtomicU64 = AtomicU64::new(0);
        static GONE: AtomicU64 = AtomicU64::new(0);
        let (tell, told) = std::sync::mpsc::channel();
        let (see, seen) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            tell.send(thread()).unwrap();
            let mut mark = 0;
            for round in 1..=ROUNDS {
                loop {
                    mark += 1;
                    MARK.store(mark, Ordering::Relaxed);
                    compiler_fence(Ordering::SeqCst);
                    if GONE.load(Ordering::Relaxed) == round {
                        break;
                    }
                }
                see.send(mark).unwrap();
            }
        });
        let mut processors = Processors::new();
        assert!(processors.add(told.recv().unwrap()));
        let visitor = std::thread::spawn(move || {
            let mut last = 0;
            for round in 1..=ROUNDS {
                // Wait until the reader is in its loop.
                while MARK.load(Ordering::Relaxed) < last + 100 {
                    std::thread::yield_now();
                }
                GONE.store(round, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                assert!(processors.visit());
                let found = MARK.load(Ordering::Relaxed);
                last = seen.recv().unwrap();
                assert!(last <= found + 1, "in round {round}, {} looks found the old", last - found - 1);
            }
        });
        visitor.join().unwrap();
        reader.join().unwrap();
    }
}
