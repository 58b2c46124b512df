//! `-d`, `-u` and `-P`: a server in the background, as another user, with its id in a file.
//!
//! Start scripts of memcached rely on these: `-d` returns when clients can connect, and a failed
//! start has an exit code and a message.
//!
//! A change of an exit code or message is visible to such scripts.

use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::{getsid, getuid, kill_process, Pid, Signal};

use super::server::{until, Server};

/// Runs the server's program with these flags, on any free port, until it ends.
fn run(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowwater-server")).args(["-p0", "-m8"]).args(flags).output().unwrap()
}

fn pid_file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lowwater-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_server_in_the_background_has_started_when_the_call_returns() {
    let path = pid_file("background");
    // The call returns: `output` also waits until no process has stdout or stderr open.
    let started = run(&["-d", "-P", path.to_str().unwrap()]);
    assert!(started.status.success(), "{started:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let pid = Pid::from_raw(text.trim().parse().unwrap()).unwrap();
    assert_eq!(getsid(Some(pid)).unwrap(), pid, "a session of its own");
    kill_process(pid, Signal::TERM).unwrap();
    until("the server ends, and removes the file", || !path.exists());
}

#[test]
fn a_failed_background_start_is_reported() {
    let failed = run(&["-d", "-P", "/nonexistent/folder/pid"]);
    let why = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && why.contains("-P: /nonexistent/folder/pid: "), "{failed:?}");
    assert!(why.contains("-d: the server in the background has ended"), "{why}");
}

#[test]
fn flags_without_an_effect_are_logged_in_one_line() {
    let path = pid_file("flags");
    let mut server = Server::start(&["-f", "1.1", "-R", "20", "-C", "-P", path.to_str().unwrap()]);
    let log = server.wait_for_log("no effect");
    assert_eq!(log, "lowwater-server: flags of memcached that have no effect here: -R -C -f\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", server.process().as_raw_nonzero()));
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    assert!(!path.exists(), "the file is removed at the end");
}

#[test]
fn limits_of_traffic_that_reach_no_connection_are_logged() {
    let path = pid_file("limits");
    let text = "shop requests=5\nsearch deny=stats\ncrawler max=4M\ndefault requests=9\n";
    std::fs::write(&path, text).unwrap();
    let server = Server::start(&["-l", "tag_search_:127.0.0.1:0", "--config", path.to_str().unwrap()]);
    let log = server.wait_for_log("no effect");
    assert!(
        log.ends_with("have no effect for shop: no user (-Y) or address (-l tag_NAME_:) has this tenant\n"),
        "{log}"
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn root_can_start_the_server_as_another_user() {
    if !getuid().is_root() {
        eprintln!("skipped: only root can change the user");
        return;
    }
    let unknown = run(&["-u", "no-such-user"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("-u: there is no user no-such-user"), "{unknown:?}");
    // The other user must be able to run the program.
    let program = std::env::temp_dir().join(format!("lowwater-server-{}", std::process::id()));
    // Written by another process: a child of another test, forked meanwhile, would keep the file
    // open for writing until its `exec`, and such a file cannot be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_lowwater-server")).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(["-p0", "-m8", "-u", "nobody"]);
    let server = Server::start_by(command);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process().as_raw_nonzero())).unwrap();
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    assert_eq!((of("Uid:").as_str(), of("Groups:").as_str()), ("65534\t65534\t65534\t65534", ""));
    drop(server);
    let _ = std::fs::remove_file(&program);
}
