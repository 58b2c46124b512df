//! `-d`, `-u` and `-P`: a server in the background, as another user, with its id in a file.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, test_kill_process, Pid, Signal};

/// Runs the server's program with these flags, on any free port.
fn run(flags: &[&str]) -> Output {
    Command::new("timeout")
        .args(["-s", "TERM", "10", env!("CARGO_BIN_EXE_lowwater-server"), "-p0", "-m8"])
        .args(flags)
        .output()
        .unwrap()
}

fn pid_file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lowwater-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_server_in_the_background_has_started_when_the_call_returns() {
    let path = pid_file("background");
    let begun = Instant::now();
    // The program's output is read to its end, which the server must not keep open.
    let started = run(&["-d", "-P", path.to_str().unwrap()]);
    assert!(started.status.success() && begun.elapsed() < Duration::from_secs(8), "{started:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let pid = Pid::from_raw(text.trim().parse().unwrap()).unwrap();
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid, "a session of its own");
    kill_process(pid, Signal::TERM).unwrap();
    while test_kill_process(pid).is_ok() && path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the server does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!path.exists(), "the file is removed at the end");
}

#[test]
fn a_server_that_cannot_start_in_the_background_says_why() {
    let failed = run(&["-d", "-P", "/nonexistent/folder/pid"]);
    let why = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && why.contains("-P: /nonexistent/folder/pid: "), "{failed:?}");
    assert!(why.contains("-d: the server in the background has ended"), "{why}");
}

#[test]
fn flags_without_an_effect_are_logged_in_one_line() {
    let path = pid_file("flags");
    let ran = Command::new("timeout")
        .args(["-s", "TERM", "2", env!("CARGO_BIN_EXE_lowwater-server"), "-p0", "-m8", "-f", "1.1", "-R", "20", "-C"])
        .args(["-P", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "lowwater-server: flags of memcached that have no effect here: -R -C -f\n"
    );
    assert!(!path.exists(), "the file is removed at the end");
}

#[test]
fn root_can_start_it_as_another_user() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can change the user");
        return;
    }
    let unknown = run(&["-u", "no-such-user"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("-u: there is no user no-such-user"), "{unknown:?}");
    // The other user must be able to run the program.
    let program = std::env::temp_dir().join(format!("lowwater-server-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_lowwater-server"), &program).unwrap();
    let mut server = Command::new(&program)
        .args(["-p0", "-m8", "-u", "nobody"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let uids = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
        let lines = status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Groups:"));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
    };
    let begun = Instant::now();
    while uids() != "Uid: 65534 65534 65534 65534, Groups:" {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", uids());
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = server.kill();
    let _ = server.wait();
    let _ = std::fs::remove_file(&program);
}
