//! Connections: their bound, and their end with the server.
//!
//! A client that has left must make room for another, and a client that sends nothing, or reads
//! nothing, must not delay the end of the server.

use super::*;

#[test]
fn connections_are_bounded() {
    let server = TestServer::start(|settings| settings.connections_max = 1);
    let mut first = server.connect();
    first.exchange("get k\r\n", "END\r\n");
    let mut second = server.connect();
    second.expect("ERROR Too many open connections\r\n");
    assert_eq!(first.stat("stats", "rejected_connections"), "1");
    assert_eq!(first.stat("stats", "total_connections"), "1", "as in memcached, without the refused one");
    drop(first);
    let freed = Instant::now();
    while freed.elapsed() < Duration::from_secs(60) {
        let mut third = server.connect();
        // The connection may have been refused and closed.
        let _ = third.0.write_all(b"get k\r\n");
        let mut answer = [0; 5];
        read_up_to(&mut third.0, &mut answer);
        if &answer == b"END\r\n" {
            return;
        }
    }
    panic!("no client was admitted after another had disconnected");
}

#[test]
fn a_server_closes_within_two_seconds_with_any_clients() {
    let enough = Duration::from_secs(2);
    let took = shortest(enough, || {
        let mut server = TestServer::start(|_| {});
        let mut idle = server.connect();
        idle.exchange("get k\r\n", "END\r\n");
        let mut half = server.connect();
        half.0.write_all(b"set k 0 0 100\r\nhalf a val").unwrap();
        let mut deaf = server.connect();
        let value = "x".repeat(1_000_000);
        deaf.store_with_patience(&format!("set k 0 0 1000000\r\n{value}\r\n"));
        deaf.0.write_all(&b"get k\r\n".repeat(100)).unwrap();
        let started = Instant::now();
        server.stop();
        let took = started.elapsed();
        assert_eq!(idle.0.read(&mut [0]).unwrap_or(0), 0, "connections are closed");
        assert!(TcpStream::connect(server.address).is_err(), "no further client is accepted");
        took
    });
    // The server waits for clients, then for threads, then for blocking tasks: each time at most
    // `CLOSE_TIME_MAX`, half a second.
    assert!(took < enough, "it took {took:?}");
}

/// A worker that was stuck when its time was over, and goes on during the save.
#[test]
fn no_command_is_run_or_answered_after_the_end() {
    let server = TestServer::start(|_| {});
    let set = "set k 0 0 1\r\nx\r\n";
    // A plain command, another one, the rest of a value, one of the binary protocol, and one that
    // follows a command that still runs.
    let requests = [
        &b"set k 0 0 1\r\ny\r\n"[..],
        b"delete k\r\n",
        b"y\r\n",
        b"\x80\x04\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0k",
        b"",
    ];
    let mut clients: Vec<_> = requests.iter().map(|_| server.connect()).collect();
    clients[0].exchange(set, "STORED\r\n");
    for n in [1, 2, 4] {
        clients[n].exchange("mn\r\n", "MN\r\n");
    }
    clients[2].0.write_all(b"set k 0 0 1\r\n").unwrap();
    clients[2].wait_until_received();
    let crawl_lock = server.server.crawl_lock.blocking_lock();
    clients[4].0.write_all(b"lru_crawler crawl all\r\nset k 0 0 1\r\ny\r\n").unwrap();
    clients[4].wait_until_received();
    server.server.end();
    drop(crawl_lock);
    for (client, request) in clients.iter_mut().zip(requests) {
        client.0.write_all(request).unwrap();
        assert_eq!(client.0.read(&mut [0]).unwrap_or(0), 0, "{}", request.escape_ascii());
    }
    let value: Vec<u8> = server.server.store.peek(b"k").unwrap().pieces().flatten().copied().collect();
    assert_eq!(value, b"x");
}
