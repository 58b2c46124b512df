//! Memory of the process that no budget counts.
//!
//! A test compares the resident memory before and after, and needs a wide margin between success
//! and failure: the allocator keeps some freed memory.

use std::io::Write;
use std::net::TcpStream;

use super::server::{exchange, until, Server};

/// Returns the resident memory of the server, in KiB.
fn resident_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.process().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Stores a value for each of `count` prefixes, which begin with `prefix`.
fn fill(mut client: &TcpStream, count: usize, prefix: &[u8]) {
    // In parts with a reply each: on a busy machine all sets may take longer than a reply may.
    for first in (0..count).step_by(5_000) {
        let mut requests = Vec::new();
        for n in first..count.min(first + 5_000) {
            requests.extend_from_slice(b"set ");
            requests.extend_from_slice(prefix);
            requests.extend_from_slice(format!("{n:05}:k 0 0 1 noreply\r\nx\r\n").as_bytes());
        }
        client.write_all(&requests).unwrap();
        assert_eq!(exchange(client, "delete the-marker\r\n", "\r\n").unwrap(), "NOT_FOUND\r\n");
    }
}

/// A `stat` request of the binary protocol.
fn binary_stat(topic: &str) -> Vec<u8> {
    let length = topic.len() as u8;
    let mut request = vec![0; 24];
    (request[0], request[1], request[3], request[11]) = (0x80, 0x10, length, length);
    request.extend_from_slice(topic.as_bytes());
    request
}

/// Returns the growth of the resident memory, in KiB for each of 8 clients that have sent
/// `request` and do not read the replies.
fn grown_kib(request: &[u8]) -> u64 {
    const PREFIXES: usize = 3_000;
    let server = Server::start(&["-t", "2", "-m", "256"]);
    let client = server.connect();
    assert_eq!(exchange(&client, "stats detail on\r\n", "\r\n").unwrap(), "OK\r\n");
    fill(&client, PREFIXES, &[0xff; 230]);
    fill(&client, PREFIXES, &[b't'; 230]);
    grown_kib_of(&server, request)
}

/// As [`grown_kib`], for a server that has its tenants.
fn grown_kib_of(server: &Server, request: &[u8]) -> u64 {
    const CLIENTS: usize = 8;
    let client = server.connect();
    let before = resident_kib(server);
    let connect = |_| {
        let mut client = server.connect();
        // More replies than the sockets' buffers hold.
        client.write_all(&request.repeat(20)).unwrap();
        client
    };
    let _unread: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
    until("the server waits for all clients", || {
        let states = exchange(&client, "stats conns\r\n", "END\r\n").unwrap();
        states.matches(":state conn_mwrite").count() == CLIENTS
    });
    resident_kib(server).saturating_sub(before) / CLIENTS as u64
}

#[test]
fn a_listing_that_is_not_read_is_not_held_in_memory() {
    // The lines of all prefixes are 4 MB, and the statistics of all tenants 1 MB; a full output is
    // 128 KiB.
    const KIB_MAX: u64 = 900;
    let grown = [
        ("stats detail dump", grown_kib(b"stats detail dump\r\n")),
        ("stats tenants", grown_kib(b"stats tenants\r\n")),
        ("tenant list", grown_kib(b"tenant list\r\n")),
        ("detail dump of the binary protocol", grown_kib(&binary_stat("detail dump"))),
        ("tenants of the binary protocol", grown_kib(&binary_stat("tenants"))),
    ];
    println!("KiB for each connection: {grown:?}");
    assert!(grown.iter().all(|(_, kib)| *kib < KIB_MAX), "KiB for each connection: {grown:?}");
}

#[test]
fn a_listing_that_is_not_read_keeps_no_pointers_to_all_tenants() {
    // The buffer of a full output is up to 255 KiB, and the pointers would be 480 KB.
    const KIB_MAX: u64 = 450;
    // A server each, as a second measurement would find memory that the first one has freed.
    let grown = [b"stats tenants\r\n", &b"tenant list\r\n"[..]].map(|request| {
        let server = Server::start(&["-t", "2", "-m", "2048"]);
        fill(&server.connect(), 60_000, b"t");
        grown_kib_of(&server, request)
    });
    println!("KiB for each connection: {grown:?}");
    assert!(grown.iter().all(|kib| *kib < KIB_MAX), "KiB for each connection: {grown:?}");
}
