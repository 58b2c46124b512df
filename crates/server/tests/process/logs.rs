//! The log: connections and errors with `-v`, commands and replies with `-vv`.
//!
//! The server runs as a process and its stderr is compared without the time stamps. One test checks
//! that no password appears in the log.
//!
//! A change must ensure that a new kind of line is searched for values and passwords: neither may
//! be in the log.

use rustix::process::{kill_process, Signal};

use super::server::{exchange, Server};

/// Returns the lines without their time stamps, which must be there.
fn without_stamps(log: &str) -> Vec<String> {
    let text = |line: &str| {
        let (stamp, text) = line.split_once(' ').unwrap_or_default();
        let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{line}");
        text.to_owned()
    };
    log.lines().map(text).collect()
}

#[test]
fn commands_and_replies_are_logged_with_vv() {
    // One thread serves all connections until the end, so the last line is not lost when a thread
    // gets no processor before the server ends.
    let mut server = Server::start(&["-vv", "-t", "1", "-l", "127.0.0.1"]);
    let client = server.connect();
    for (request, end) in [
        ("set shop:a 0 0 6\r\nsecret\r\n", "STORED\r\n"),
        ("get shop:a none\r\n", "END\r\n"),
        ("mg shop:a v k\r\n", "secret\r\n"),
        ("gets \x1b[31m\r\n", "END\r\n"),
        ("set x 0 0 1 noreply\r\n1\r\nincr x 5\r\n", "6\r\n"),
        ("set long x 0 3\r\nabc\r\nversion\r\n", "0.1.0\r\n"),
        ("nonsense\r\n", "ERROR\r\n"),
    ] {
        assert!(exchange(&client, request, end).unwrap().ends_with(end), "{request:?}");
    }
    // A value that arrives in two parts.
    assert_eq!(exchange(&client, "set p 0 0 3000\r\n1", "").unwrap(), "");
    exchange(&client, &format!("{}\r\n", "2".repeat(2999)), "STORED\r\n").unwrap();
    drop(client);
    let log = server.wait_for_log("connection closed (normal)");
    let lines = without_stamps(&log);
    assert_eq!(lines[0].split(" on ").next().unwrap(), "<1 server listening");
    assert!(lines[1].starts_with("<2 new auto-negotiating client connection from tcp:127.0.0.1:"), "{log}");
    let expected = [
        "<2 set shop:a 0 0 6",
        ">2 STORED",
        "<2 get shop:a none",
        ">2 sending key shop:a",
        ">2 END",
        "<2 mg shop:a v k",
        ">2 VA 6 kshop:a",
        "<2 gets \\x1b[31m",
        ">2 END",
        "<2 set x 0 0 1 noreply",
        "<2 incr x 5",
        ">2 sending number",
        "<2 set long x 0 3",
        ">2 CLIENT_ERROR bad command line format",
        "<2 version",
        ">2 VERSION 1.6.18-lowwater-0.1.0",
        "<2 nonsense",
        ">2 ERROR",
        "<2 set p 0 0 3000",
        ">2 STORED",
        "<2 connection closed (normal)",
    ];
    assert_eq!(lines[2], "<2 client using the ascii protocol");
    assert_eq!(lines[3..], expected, "{log}");
    assert!(!log.contains("secret"), "no values");
    let waiting = server.connect();
    // The reply shows that the server has accepted the connection before it ends.
    exchange(&waiting, "version\r\n", "\r\n").unwrap();
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    server.wait_for_log("<3 connection closed (shutdown)");
}

#[test]
fn connections_and_errors_are_logged_with_v() {
    let server = Server::start(&["-v"]);
    let client = server.connect();
    exchange(&client, "set a 0 0 1\r\nx\r\nget a\r\nfoo bar\r\nset b 0 0 2\r\nx\r\n\r\n", "bad data chunk\r\n")
        .unwrap();
    exchange(&client, "verbosity 2\r\nverbosity 0\r\n", "OK\r\nOK\r\n").unwrap();
    exchange(&client, "quit\r\n", "").unwrap();
    assert_eq!(exchange(&client, "", "never").unwrap(), "", "the server closes");
    exchange(&server.connect(), "verbosity 1\r\n", "OK\r\n").unwrap();
    let log = server.wait_for_log("<3 connection closed");
    let lines = without_stamps(&log);
    assert!(lines[0].starts_with("<2 new auto-negotiating client connection from tcp:127.0.0.1:"), "{log}");
    let expected = ["<2 foo bar", ">2 ERROR", "<2 set b 0 0 2", ">2 CLIENT_ERROR bad data chunk"];
    assert_eq!(lines[1..5], expected, "{log}");
    assert!(!log.contains("<2 connection closed"), "with verbosity 0, no line: {log}");
}

#[test]
fn replies_without_a_log_are_not_logged_later() {
    let server = Server::start(&["-vv", "-t", "1"]);
    let (client, other) = (server.connect(), server.connect());
    exchange(&other, "version\r\n", "\r\n").unwrap();
    exchange(&client, "verbosity 0\r\n", "OK\r\n").unwrap();
    // Plain commands, after the other connection has begun to record its replies.
    exchange(&other, "set silent 0 0 1\r\nx\r\nget silent\r\n", "END\r\n").unwrap();
    exchange(&client, "verbosity 2\r\n", "OK\r\n").unwrap();
    exchange(&other, "get loud\r\nquit\r\n", "END\r\n").unwrap();
    let log = server.wait_for_log("<3 connection closed");
    assert!(log.contains("<3 get loud") && !log.contains("silent") && !log.contains("STORED"), "{log}");
}

#[test]
fn passwords_are_not_logged() {
    let path = std::env::temp_dir().join(format!("lowwater-log-users-{}", std::process::id()));
    std::fs::write(&path, "shop:hunter2\n").unwrap();
    let server = Server::start(&["-vvv", "-Y", path.to_str().unwrap()]);
    let client = server.connect();
    exchange(&client, "get a\r\nset auth 0 0 12\r\nshop hunter3\r\n", "failure\r\n").unwrap();
    exchange(&client, "set auth 0 0 12\r\nshop hunter2\r\n", "STORED\r\n").unwrap();
    exchange(&client, "get a\r\n", "END\r\n").unwrap();
    let log = server.wait_for_log(">2 END");
    std::fs::remove_file(&path).unwrap();
    assert!(!log.contains("hunter"), "{log}");
    for part in [">2 CLIENT_ERROR unauthenticated", ">2 CLIENT_ERROR authentication failure", "<2 get a"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn a_long_line_is_cut_in_the_log() {
    let mut server = Server::start(&["-vv"]);
    let request = format!("get {}\r\n", "\x01 ".repeat(50_000));
    exchange(&server.connect(), &request, "END\r\n").unwrap();
    kill_process(server.process(), Signal::TERM).unwrap();
    server.wait();
    let log = server.wait_for_log(">2 END");
    let line = log.lines().find(|line| line.contains("<2 get ")).unwrap();
    // `SENT_BYTES_MAX` of `src/log.rs` is 512; each byte becomes up to four characters.
    assert!((512..4 * 512 + 100).contains(&line.len()), "{} bytes", line.len());
}
