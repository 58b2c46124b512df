//! Tests in processes of their own: leaked memory, refused system calls and broken state end with
//! the process.
//!
//! Included by the tests of this folder with `mod alone`.
//!
//! A change must ensure that a test fails if its child does.

use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longer than any machine takes, unless the awaited event never happens.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Leaks a value as far as the compiler is concerned, but keeps it reachable for a leak checker.
#[allow(dead_code, reason = "not every test does")]
pub fn for_ever<T>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let value = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(std::ptr::from_ref(value).expose_provenance());
    value
}

/// Runs `body` in a child process that executes only the test `name`. Returns the child's exit
/// status; `None` in the child itself.
pub fn outcome(name: &str, body: impl FnOnce()) -> Option<ExitStatus> {
    const ORDER: &str = "LOWWATER_ALONE";
    if std::env::var_os(ORDER).is_some_and(|order| order == name) {
        body();
        return None;
    }
    // A leak checker needs system calls that a child may refuse, and would report the child's
    // intended leaks.
    let options = std::env::var("ASAN_OPTIONS").unwrap_or_default() + ":detect_leaks=0";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(ORDER, name).env("ASAN_OPTIONS", options);
    let mut child = child.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `body` in a child process, which must succeed.
pub fn alone(name: &str, body: impl FnOnce()) {
    // Not 0, with which a process ends that has run no test.
    const DONE: i32 = 77;
    let status = outcome(name, || {
        body();
        std::process::exit(DONE);
    });
    assert_eq!(status.and_then(|status| status.code()), Some(DONE), "{name}: {status:?}");
}
