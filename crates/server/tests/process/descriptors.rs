//! A server without free file descriptors: every client gets an answer or a refusal.
//!
//! Without the spare descriptor (`src/net/descriptors.rs`) clients would wait without an answer.
//!
//! A change must keep the read timeout of each client, by which a missing answer is noticed.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::process::{prlimit, Resource, Rlimit};

use super::server::{exchange, until, Server};

#[test]
fn without_descriptors_every_client_is_answered_or_refused() {
    let server = Server::start(&["-c", "100", "-t", "2"]);
    let folder = format!("/proc/{}/fd", server.process().as_raw_nonzero());
    let limit = std::fs::read_dir(folder).unwrap().count() as u64 + 20;
    prlimit(Some(server.process()), Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    let clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    let mut served = 0;
    for client in &clients {
        match exchange(client, "version\r\n", "\r\n") {
            Ok(reply) if reply.starts_with("VERSION ") => served += 1,
            Ok(reply) => assert!(reply.is_empty() || reply.starts_with("ERROR "), "{reply:?}"),
            Err(why) => assert!(!matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "no answer"),
        }
    }
    // The limit is on the numbers of descriptors, which may have gaps.
    assert!((10..=30).contains(&served), "{served} clients are served");
    // When clients leave, others are served again.
    drop(clients);
    until("descriptors come back", || {
        exchange(&server.connect(), "version\r\n", "\r\n").is_ok_and(|reply| reply.starts_with("VERSION "))
    });
    let log = server.wait_for_log("Too many open files");
    assert!(log.lines().count() <= 3, "not a line for each client: {log:?}");
}

#[test]
fn a_low_limit_is_raised_or_refused_at_start() {
    let command = |flags: &str| {
        let program = env!("CARGO_BIN_EXE_lowwater-server");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -Sn 64 && exec {program} -p 0 -m 8 {flags}")]);
        command
    };
    // A soft limit is no reason to refuse: the hard one is far above it, or may be raised.
    let serves_all = |flags: &str, clients| {
        let server = Server::start_by(command(flags));
        let clients: Vec<_> = (0..clients).map(|_| server.connect()).collect();
        for client in &clients {
            assert!(exchange(client, "version\r\n", "\r\n").unwrap().starts_with("VERSION "));
        }
    };
    serves_all("-c 500", 200);
    // Each listener has descriptors of its own.
    let listeners: String = (0..60).map(|n| format!(" -l tag_t{n}_:127.0.0.1:0")).collect();
    serves_all(&format!("-t 1 -c 100{listeners}"), 100);
    // More than any system allows.
    let refused = command("-c 9000000000000000000").output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("-c: 9000000000000000000 connections need"), "{refused:?}");
}

/// The addresses of `-l` have no effect beside a socket of the service manager.
#[test]
fn the_limit_counts_the_listeners_that_are_open() {
    const CONNECTIONS: u64 = 1000;
    /// Of one thread, of one listener, and of all else.
    const OTHERS: u64 = 4 + 2 + 64;
    let socket = || Stdio::from(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()));
    for (inherited, addresses, wanted) in [
        ("", 1, CONNECTIONS + OTHERS),
        ("", 3, CONNECTIONS + OTHERS + 4),
        // The manager's descriptor stays open.
        ("env LISTEN_PID=$$ LISTEN_FDS=1 ", 3, CONNECTIONS + OTHERS + 1),
    ] {
        let program = env!("CARGO_BIN_EXE_lowwater-server");
        let listen = " -l 127.0.0.1:0".repeat(addresses);
        let start =
            format!("ulimit -Sn 64 && exec {inherited}{program} -m 8 -t 1 -c {CONNECTIONS}{listen} 3<&0 </dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &start]).stdin(socket());
        let server = Server::start_by(command);
        assert_eq!(soft_limit(&server), wanted, "{inherited:?}, {addresses} addresses");
    }
}

/// Returns the limit of descriptors that is in force for the server.
fn soft_limit(server: &Server) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process().as_raw_nonzero())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}
