//! `--save-file`: the values survive a restart.
//!
//! The server runs as a process, is ended in each possible way, and is started again on the same
//! file. An end that does not save must leave no file, since its values would be outdated.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation};
use rustix::process::{kill_process, Pid, Signal};

use super::server::{exchange, until, Server};

/// The path of a file that does not exist yet. The file is removed on drop, and so are the files
/// whose names the server derives from the path.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let file = Self(std::env::temp_dir().join(format!("lowwater-saved-{name}-{}", std::process::id())));
        file.remove();
        file
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn damaged(&self) -> PathBuf {
        format!("{}.damaged", self.path()).into()
    }

    /// The names of damaged files.
    fn all_damaged(&self) -> impl Iterator<Item = PathBuf> + '_ {
        std::iter::once(self.damaged()).chain((1..10).map(|n| format!("{}.damaged.{n}", self.path()).into()))
    }

    fn remove(&self) {
        let lock = format!("{}.lock", self.path()).into();
        for path in [self.0.clone(), lock].into_iter().chain(self.all_damaged()) {
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.remove();
    }
}

fn get(server: &Server, key: &str) -> String {
    exchange(&server.connect(), &format!("get {key}\r\n"), "END\r\n").unwrap()
}

#[test]
fn values_survive_a_restart_by_a_signal_or_a_command() {
    let file = File::new("restart");
    let flags = ["-A", "--save-file", file.path()];
    let mut server = Server::start(&flags);
    let large = "v".repeat(100_000);
    let request = format!("set shop:large 7 1000 100000\r\n{large}\r\nset b 0 0 3\r\nabc\r\n");
    exchange(&server.connect(), &request, "STORED\r\nSTORED\r\n").unwrap();
    for how in ["TERM", "USR1", "graceful"] {
        match how {
            "TERM" => kill_process(server.process(), Signal::TERM).unwrap(),
            "USR1" => kill_process(server.process(), Signal::USR1).unwrap(),
            _ => drop(exchange(&server.connect(), "shutdown graceful\r\n", "never").unwrap()),
        }
        assert!(server.wait().success(), "{how}");
        server.wait_for_log("saved 2 values");
        assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600, "it has all values");
        server = Server::start(&flags);
        server.wait_for_log("loaded 2 values");
        assert!(get(&server, "shop:large") == format!("VALUE shop:large 7 100000\r\n{large}\r\nEND\r\n"), "{how}");
        assert_eq!(get(&server, "b"), "VALUE b 0 3\r\nabc\r\nEND\r\n");
        assert!(!file.0.exists(), "a crash must not bring old values back");
    }
}

/// Ends the server so that it saves its values, and starts it again on the same file.
fn restart(server: &mut Server, file: &File) {
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    *server = Server::start(&["--save-file", file.path()]);
}

/// Stores `a` and delays a flush, restarts the server, and sends `request`. Returns the server and
/// the time at which the flush is due. Again with a longer delay, unless the reply is `in_time`: on
/// a busy machine, the flush may precede the request.
fn restart_with_delayed_flush(file: &File, request: &str, in_time: &str) -> (Server, Instant) {
    let mut server = Server::start(&["--save-file", file.path()]);
    for doublings in 1..6 {
        let delay = 1 << doublings;
        let delayed = format!("set a 0 0 1\r\nx\r\nflush_all {delay}\r\n");
        exchange(&server.connect(), &delayed, "OK\r\n").unwrap();
        let due = Instant::now() + Duration::from_secs(delay);
        restart(&mut server, file);
        let reply = exchange(&server.connect(), &format!("{request}mn\r\n"), "MN\r\n").unwrap();
        if reply == format!("{in_time}MN\r\n") {
            return (server, due);
        }
    }
    panic!("no restart was in time");
}

#[test]
fn a_delayed_flush_survives_a_restart() {
    let file = File::new("flush");
    let request = "set b 0 0 1\r\nx\r\ntouch a 0\r\n";
    let (mut server, _) = restart_with_delayed_flush(&file, request, "STORED\r\nTOUCHED\r\n");
    until("all values are flushed", || get(&server, "a") == "END\r\n" && get(&server, "b") == "END\r\n");
    // A flush that is over concerns no later value.
    exchange(&server.connect(), "set c 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
    restart(&mut server, &file);
    assert_eq!(exchange(&server.connect(), "mg c t\r\n", "\r\n").unwrap(), "HD t-1\r\n");
}

#[test]
fn a_flush_after_a_restart_cancels_a_delayed_one_before() {
    let file = File::new("flush-again");
    let found = "VALUE a 0 1\r\nx\r\nEND\r\n";
    let (server, due) = restart_with_delayed_flush(&file, "flush_all 10000\r\nget a\r\n", &format!("OK\r\n{found}"));
    std::thread::sleep((due + Duration::from_millis(500)).saturating_duration_since(Instant::now()));
    assert_eq!(get(&server, "a"), found);
}

#[test]
fn a_flush_that_is_due_during_a_restart_precedes_the_first_client() {
    let file = File::new("flush-due");
    let mut server = Server::start(&["--save-file", file.path()]);
    exchange(&server.connect(), "set a 0 0 1\r\nx\r\nflush_all 1\r\n", "OK\r\n").unwrap();
    let due = Instant::now() + Duration::from_secs(1);
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    std::thread::sleep((due + Duration::from_millis(100)).saturating_duration_since(Instant::now()));
    let server = Server::start(&["--save-file", file.path()]);
    let reply = exchange(&server.connect(), "touch a 0\r\nset b 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
    assert_eq!(reply, "NOT_FOUND\r\nSTORED\r\n");
    assert_eq!(get(&server, "b"), "VALUE b 0 1\r\nx\r\nEND\r\n", "no later value is flushed");
}

/// A client that reads nothing has a `delete` behind replies that its socket cannot hold. It reads
/// when the save has begun: either there is no answer, or the value is not in the file.
#[test]
fn a_delete_that_is_answered_is_in_the_file() {
    let file = File::new("answered");
    let flags = ["-m", "128", "--save-file", file.path()];
    let mut server = Server::start(&flags);
    let mut client = server.connect();
    exchange(&client, "set x 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
    // 60 MB, whose save takes far longer than the replies.
    let value = "v".repeat(1_000_000);
    for n in 0..60 {
        exchange(&client, &format!("set v{n} 0 0 1000000\r\n{value}\r\n"), "STORED\r\n").unwrap();
    }
    client.write_all(format!("{}delete x\r\n", "get v1\r\n".repeat(16)).as_bytes()).unwrap();
    // The first reply has begun, so the server has read all commands.
    client.read_exact(&mut [0; 1]).unwrap();
    kill_process(server.process(), Signal::TERM).unwrap();
    let new = PathBuf::from(format!("{}.new.{}", file.path(), server.process().as_raw_nonzero()));
    until("the save begins", || new.exists() || file.0.exists());
    let mut replies = Vec::new();
    // An error means that the server has cut the client off.
    let _ = client.read_to_end(&mut replies);
    assert!(server.wait().success());
    let server = Server::start(&flags);
    let is_deleted = get(&server, "x") == "END\r\n";
    assert_eq!(replies.ends_with(b"DELETED\r\n"), is_deleted, "{} bytes of replies", replies.len());
}

/// Starts a server that waits for the lock of the file when the signals arrive, so it finds them
/// when it has loaded the values. Returns its end.
fn end_during_load(file: &File, signals: &[Signal]) -> std::process::Output {
    // The bit of SIGUSR1, the last of the signals for which the server installs a handler.
    const HANDLED: u64 = 1 << 9;
    loop {
        let lock = std::fs::File::open(format!("{}.lock", file.path())).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
        command.args(["-p0", "-m8", "--save-file", file.path()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (status, mut has_ended) = (format!("/proc/{}/status", child.id()), false);
        until("the server handles signals", || {
            has_ended = child.try_wait().unwrap().is_some();
            if has_ended {
                return true;
            }
            let status = std::fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & HANDLED != 0
        });
        if !has_ended {
            for signal in signals {
                kill_process(Pid::from_child(&child), *signal).unwrap();
            }
        }
        drop(lock);
        let ended = child.wait_with_output().unwrap();
        // On a busy machine this test may hold the lock for longer than the server waits.
        if !String::from_utf8_lossy(&ended.stderr).contains("another server uses it") {
            return ended;
        }
    }
}

#[test]
fn a_signal_during_the_load_keeps_the_file() {
    let file = File::new("load");
    let saved = save_one(&file);
    // SIGHUP asks for a reload after the start, and does not end the server.
    for signals in [&[Signal::INT][..], &[Signal::TERM], &[Signal::HUP, Signal::TERM]] {
        let ended = end_during_load(&file, signals);
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && ended.stdout.is_empty(), "{signals:?}: {ended:?}");
        assert!(log.contains("loaded 1 values") && log.contains("left as it is"), "{signals:?}: {log}");
        assert!(std::fs::read(&file.0).unwrap() == saved, "{signals:?}");
    }
}

#[test]
fn an_interrupt_and_a_plain_shutdown_save_nothing() {
    let file = File::new("interrupt");
    for how in ["INT", "shutdown"] {
        let mut server = Server::start(&["-A", "--save-file", file.path()]);
        exchange(&server.connect(), "set a 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
        match how {
            "INT" => kill_process(server.process(), Signal::INT).unwrap(),
            _ => drop(exchange(&server.connect(), "shutdown\r\n", "never").unwrap()),
        }
        assert!(server.wait().success());
        assert!(!file.0.exists(), "{how}");
    }
    let server = Server::start(&[]);
    let reply = exchange(&server.connect(), "shutdown\r\n", "\r\n").unwrap();
    assert_eq!(reply, "SERVER_ERROR: shutdown not enabled\r\n");
}

/// Returns the error of a server that does not start with this file and these flags.
fn refusal(path: &str, flags: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_lowwater-server");
    let refused = Command::new(program).args(["-p0", "-m8", "--save-file", path]).args(flags).output().unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains(&format!("--save-file: {path}")), "{why}");
    why
}

/// Lets a server save one value to `file`.
fn save_one(file: &File) -> Vec<u8> {
    let mut server = Server::start(&["--save-file", file.path()]);
    exchange(&server.connect(), "set a 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    std::fs::read(&file.0).unwrap()
}

#[test]
fn a_damaged_file_is_kept_aside_and_a_bad_path_is_refused() {
    let file = File::new("damaged");
    let mut saved = save_one(&file);
    *saved.last_mut().unwrap() ^= 1;
    std::fs::write(&file.0, &saved).unwrap();
    // Folders have the names of damaged files, so the file cannot be renamed. The server does not
    // start, as it would load the file again after a crash.
    file.all_damaged().for_each(|path| std::fs::create_dir(path).unwrap());
    let why = refusal(file.path(), &[]);
    assert!(why.contains("cannot be removed"), "{why}");
    assert!(std::fs::read(&file.0).unwrap() == saved);
    file.all_damaged().for_each(|path| std::fs::remove_dir(path).unwrap());

    let server = Server::start(&["--save-file", file.path()]);
    server.wait_for_log("kept as");
    assert!(std::fs::read(file.damaged()).unwrap() == saved);
    assert!(!file.0.exists());
    refusal("/nonexistent/folder/file", &[]);
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_alone() {
    let file = File::new("foreign");
    // A file of saved values begins with `lowwate` and a version (`src/snapshot/chunk.rs`).
    for (text, part) in
        [("no values", "no file of saved values"), ("", "no file"), ("lowwate0 and more", "another version")]
    {
        std::fs::write(&file.0, text).unwrap();
        let why = refusal(file.path(), &[]);
        assert!(why.contains(part), "{why}");
        assert_eq!(std::fs::read_to_string(&file.0).unwrap(), text);
    }
    file.remove();
    std::fs::create_dir(&file.0).unwrap();
    assert!(refusal(file.path(), &[]).contains("no regular file"));
    assert!(file.0.is_dir());
    file.remove();
    // An open of a FIFO without a writer could wait for ever.
    assert!(Command::new("mkfifo").arg(&file.0).status().unwrap().success());
    assert!(refusal(file.path(), &[]).contains("no regular file"));
    assert!(file.0.exists() && !file.damaged().exists());
}

#[test]
fn a_second_server_does_not_touch_the_file_of_the_first_one() {
    let file = File::new("second");
    let id = format!("{}.pid", file.path());
    let mut first = Server::start(&["--save-file", file.path(), "-P", &id]);
    exchange(&first.connect(), "set a 0 0 1\r\nx\r\n", "STORED\r\n").unwrap();
    let why = refusal(file.path(), &["-P", &id]);
    assert!(why.contains("another server uses it"), "{why}");
    assert_eq!(std::fs::read_to_string(&id).unwrap(), format!("{}\n", first.process().as_raw_nonzero()));
    kill_process(first.process(), Signal::TERM).unwrap();
    assert!(first.wait().success());
    let second = Server::start(&["--save-file", file.path()]);
    assert_eq!(get(&second, "a"), "VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_start_that_fails_keeps_the_file() {
    let file = File::new("kept");
    let saved = save_one(&file);
    let program = env!("CARGO_BIN_EXE_lowwater-server");
    let flags = ["-p0", "-m8", "--save-file", file.path(), "-P", "/nonexistent/folder/id"];
    let refused = Command::new(program).args(flags).output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("-P: "), "{refused:?}");
    assert!(std::fs::read(&file.0).unwrap() == saved);
}
