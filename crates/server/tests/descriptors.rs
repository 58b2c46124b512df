//! A server without free file descriptors: every client gets an answer or a refusal.

#![cfg(target_os = "linux")]

mod server;

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use rustix::process::{prlimit, Resource, Rlimit};
use server::{exchange, Server};

#[test]
fn without_descriptors_every_client_is_answered_or_refused() {
    let server = Server::start(&["-c", "100", "-t", "2"]);
    let folder = format!("/proc/{}/fd", server.process().as_raw_nonzero());
    let limit = std::fs::read_dir(folder).unwrap().count() as u64 + 20;
    prlimit(Some(server.process()), Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    let clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    let replies = clients.iter().map(|client| exchange(client, "version\r\n", "\r\n"));
    let mut served = 0;
    for reply in replies {
        match reply {
            Ok(reply) if reply.starts_with("VERSION ") => served += 1,
            Ok(reply) => assert!(reply.is_empty() || reply.starts_with("ERROR "), "{reply:?}"),
            Err(why) => assert!(!matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "no answer"),
        }
    }
    // The limit is on the numbers of descriptors, which may have gaps.
    assert!((10..=30).contains(&served), "{served} clients are served");
    // When clients leave, others are served again.
    drop(clients);
    let is_served =
        || exchange(&server.connect(), "version\r\n", "\r\n").is_ok_and(|reply| reply.starts_with("VERSION "));
    let served_again = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        is_served()
    });
    assert!(served_again, "descriptors come back");
    let log = server.log();
    assert!(log.contains("Too many open files"), "one line without -v: {log:?}");
    assert!(log.lines().count() <= 3, "not a line for each client: {log:?}");
}

#[test]
fn a_low_limit_is_raised_or_refused_at_start() {
    let start = |flags: &str| {
        let program = env!("CARGO_BIN_EXE_lowwater-server");
        let line = format!("ulimit -Sn 64 && timeout -s INT 3 {program} -p 0 -m 8 {flags}");
        Command::new("sh").args(["-c", &line]).output().unwrap()
    };
    // A soft limit is no reason to refuse: the hard one is far above it, or may be raised.
    let raised = start("-c 500");
    assert!(String::from_utf8_lossy(&raised.stdout).contains("500 connections"), "{raised:?}");
    // More than any system allows.
    let refused = start("-c 9000000000000000000");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("-c: 9000000000000000000 connections need"), "{refused:?}");
}
