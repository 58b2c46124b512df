//! Deadlines, thread ends, and separate processes, for tests. Used by the tests of other crates
//! (`#[path]`), mainly those of misuse.
//!
//! A test of misuse may hang or abort: `within` turns a hang into a failure, and `in_a_process`
//! keeps an abort or a leak from other tests.
//!
//! A change must ensure that a hang and an abort fail one test and not the run.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longer than any machine takes, unless the awaited event never happens.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `f` on a thread of its own; fails if it does not end within `PATIENCE`.
pub fn within<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || tell.send(f()));
    match told.recv_timeout(PATIENCE) {
        Ok(result) => {
            assert!(thread.join().is_ok(), "{what}: a destructor panicked");
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(_) => panic!("{what}: nothing came back"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// Waits until `is_done` returns true; fails before `within` does, with the name of the event.
pub fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < PATIENCE / 2, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Actions for the last destructor of a thread's locals.
#[derive(Default)]
struct Late(RefCell<Vec<Box<dyn FnOnce()>>>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|f| f());
    }
}

std::thread_local! { static LATE: Late = Late::default(); }

/// Calls `begin` on a new thread, and the function that `begin` returns at that thread's end: in
/// the destructor of a thread-local, after the destructors of the library's, since the local that
/// was used first is destroyed last.
pub fn at_the_end_of_a_thread(what: &str, begin: impl FnOnce() -> Box<dyn FnOnce()> + Send + 'static) {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        LATE.with(|_| ());
        let end = begin();
        let end = move || {
            // A panic in a destructor of a thread-local would abort the process.
            let ended = catch_unwind(AssertUnwindSafe(end)).is_ok();
            // The test may have given up; a panic here would abort the whole run.
            let _ = tell.send(ended);
        };
        LATE.with(|late| late.0.borrow_mut().push(Box::new(end)));
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "{what}, at the end of a thread");
}

/// Runs the test `name` in a process of its own, where it calls `f`; leaks end with that process.
///
/// `name` must be the whole path of the calling test (`module::test`).
pub fn in_a_process(name: &str, f: impl FnOnce()) {
    const CHILD: &str = "LOWWATER_HAZARD";
    // Not 0, with which a process ends that has run no test.
    const DONE: i32 = 77;
    if std::env::var_os(CHILD).is_some() {
        f();
        std::process::exit(DONE);
    }
    let program = std::env::current_exe().expect("the test's own program");
    let mut child = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        // The test may leak on purpose.
        .envs(["ASAN_OPTIONS", "LSAN_OPTIONS"].map(|options| (options, "detect_leaks=0")))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("its status") {
            return assert_eq!(status.code(), Some(DONE), "{name}: {status}");
        }
        if start.elapsed() > PATIENCE {
            child.kill().expect("the child runs");
            panic!("{name}: it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
