//! Tests of a whole server in this process, over TCP:
//!
//! - each command answers as memcached's protocol specifies (the differential test in `ci/`
//!   compares the replies with those of memcached);
//! - the meta commands: [`meta`]; administration: [`control`]; tenants by listener and by login:
//!   [`access`];
//! - pipelined, split and silent commands are answered in order;
//! - a client's errors affect no other client, and its next command is decoded correctly;
//! - the server bounds its connections and shuts down cleanly.

mod access;
mod control;
mod meta;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use lowwater::ByteSize;
use tokio::sync::oneshot;

use crate::acceptor;
use crate::server::{Server, CLOSE_TIME_MAX};
use crate::settings::limits::Limits;
use crate::settings::listen_address::ListenAddress;
use crate::settings::{Files, Settings};
use crate::workers::Workers;

struct TestServer {
    server: Arc<Server>,
    address: SocketAddr,
    http: Option<SocketAddr>,
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Returns the settings of a small server on any free port of this machine.
fn settings() -> Settings {
    Settings {
        listen: vec![ListenAddress::parse("127.0.0.1", 0, b':').unwrap()],
        http: None,
        users: None,
        evict: true,
        pressure: false,
        budget: ByteSize::mib(8),
        threads: 2,
        connections_max: 100,
        verbosity: 0,
        item_bytes_max: 1 << 20,
        delimiter: b':',
        limits: Vec::new(),
        files: Files::default(),
        flush: true,
        idle_timeout: None,
        background: false,
        user: None,
        pid_file: None,
        without_effect: Vec::new(),
    }
}

impl TestServer {
    fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let (stop, stopped) = oneshot::channel();
        let (opened_sender, opened) = mpsc::channel();
        let thread = thread::spawn(move || {
            let workers = Workers::start(settings.threads).unwrap();
            let round_robin = workers.round_robin();
            workers.run(async {
                let (server, listeners) = acceptor::open(settings).await.unwrap();
                opened_sender.send(Arc::clone(&server)).unwrap();
                let stopped = async {
                    let _ = stopped.await;
                };
                acceptor::run(&server, listeners, round_robin, stopped).await;
            });
            workers.end(CLOSE_TIME_MAX);
        });
        let server = opened.recv().unwrap();
        let (addresses, http) = (server.addresses.clone(), server.http);
        Self { server, address: addresses[0], addresses, http, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> Client {
        self.connect_to(self.address)
    }

    fn connect_to(&self, address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client(stream)
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Client(TcpStream);

impl Client {
    /// Sends `text`, and checks that the reply is exactly `expected`; the reply to a marker command
    /// proves that nothing more is sent.
    fn exchange(&mut self, text: &str, expected: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
        self.0.write_all(b"delete the-marker\r\n").unwrap();
        self.expect(expected);
        self.expect("NOT_FOUND\r\n");
    }

    /// Waits until the server's socket has received all sent bytes: on a busy system, the kernel
    /// delivers them after the call that sends them.
    fn wait_until_received(&self) {
        let port = format!(":{:04X}", self.0.local_addr().unwrap().port());
        let is_on_its_way = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1].ends_with(&port) && !fields[4].starts_with("00000000:")
        };
        let end = Instant::now() + Duration::from_secs(20);
        // Only Linux has `/proc/net/tcp`; other systems do not wait.
        while std::fs::read_to_string("/proc/net/tcp").is_ok_and(|sockets| sockets.lines().any(is_on_its_way)) {
            assert!(Instant::now() < end, "the sent bytes do not arrive");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the next line, including its end.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    fn expect(&mut self, expected: &str) {
        let mut got = vec![0; expected.len()];
        let count = read_up_to(&mut self.0, &mut got);
        assert_eq!(String::from_utf8_lossy(&got[..count]), expected);
    }

    fn stat(&mut self, command: &str, name: &str) -> String {
        self.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        while !text.ends_with("END\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }
}

fn read_up_to(stream: &mut TcpStream, bytes: &mut [u8]) -> usize {
    let mut count = 0;
    while count < bytes.len() {
        match stream.read(&mut bytes[count..]) {
            Ok(0) | Err(_) => break,
            Ok(read) => count += read,
        }
    }
    count
}

#[test]
fn every_command_answers_as_memcached_does() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for (text, expected) in [
        ("get k\r\n", "END\r\n"),
        ("set k 5 0 5\r\nhello\r\n", "STORED\r\n"),
        ("get k\r\n", "VALUE k 5 5\r\nhello\r\nEND\r\n"),
        ("gets k other\r\n", "VALUE k 5 5 1\r\nhello\r\nEND\r\n"),
        ("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add new 0 0 0\r\n\r\n", "STORED\r\n"),
        ("get k new\r\n", "VALUE k 5 5\r\nhello\r\nVALUE new 0 0\r\n\r\nEND\r\n"),
        ("replace none 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace new 0 0 1\r\n5\r\n", "STORED\r\n"),
        ("append k 9 0 1\r\n!\r\n", "STORED\r\n"),
        ("prepend k 9 0 2\r\n> \r\n", "STORED\r\n"),
        ("append none 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("get k\r\n", "VALUE k 5 8\r\n> hello!\r\nEND\r\n"),
        ("cas k 0 0 1 1\r\nx\r\n", "EXISTS\r\n"),
        ("cas none 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("incr new 6\r\n", "11\r\n"),
        ("decr new 2\r\n", "9\r\n"),
        ("get new\r\n", "VALUE new 0 2\r\n9 \r\nEND\r\n"),
        ("decr new 10\r\n", "0\r\n"),
        ("incr new 18446744073709551615\r\n", "18446744073709551615\r\n"),
        ("incr new 1\r\n", "0\r\n"),
        ("incr none 1\r\n", "NOT_FOUND\r\n"),
        ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("touch none 100\r\n", "NOT_FOUND\r\n"),
        ("gat 0 k none\r\n", "VALUE k 5 8\r\n> hello!\r\nEND\r\n"),
        ("touch k -1\r\n", "TOUCHED\r\n"),
        ("get k\r\n", "END\r\n"),
        ("set k 0 -1 1\r\nx\r\n", "STORED\r\n"),
        ("get k\r\n", "END\r\n"),
        ("delete new 0\r\n", "DELETED\r\n"),
        ("delete new\r\n", "NOT_FOUND\r\n"),
        ("verbosity 0\r\n", "OK\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("stats slabs\r\n", "END\r\n"),
        ("stats nonsense\r\n", "ERROR\r\n"),
    ] {
        client.exchange(text, expected);
    }
    client.0.write_all(b"version\r\nquit\r\nget k\r\n").unwrap();
    client.expect(&format!("VERSION {}\r\n", crate::version::VERSION));
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "quit closes");
}

#[test]
fn silent_pipelined_and_split_commands_answer_in_order() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange(
        "set a 0 0 1 noreply\r\n1\r\nincr a 4 noreply\r\nget a\r\nadd a 0 0 1 noreply\r\nx\r\nappend a 0 0 1\r\n0\r\n\
         delete b noreply\r\ntouch a 0 noreply\r\nflush_all 1000 noreply\r\nverbosity 0 noreply\r\nget a\r\n",
        "VALUE a 0 1\r\n5\r\nEND\r\nSTORED\r\nVALUE a 0 2\r\n50\r\nEND\r\n",
    );
    for byte in b"set a 0 0 3\r\nabc\r\nget a\r\n" {
        client.0.write_all(&[*byte]).unwrap();
    }
    client.expect("STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
}

#[test]
fn a_clients_errors_leave_it_in_step() {
    let server = TestServer::start(|settings| settings.item_bytes_max = 1024);
    let mut client = server.connect();
    client.exchange("set k 0 0 3\r\nabc\r\n", "STORED\r\n");
    client.exchange("set k 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n");
    client.exchange("get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n");
    let large = "x".repeat(5000);
    client.exchange(&format!("add k 0 0 5000\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n");
    client.exchange("get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n");
    client.exchange(&format!("set k 0 0 5000\r\n{large}\r\n"), "SERVER_ERROR object too large for cache\r\n");
    client.exchange("get k\r\n", "END\r\n");
    let almost = "x".repeat(900);
    client.exchange(&format!("set k 0 0 900\r\n{almost}\r\n"), "STORED\r\n");
    client.exchange(&format!("append k 0 0 900\r\n{almost}\r\n"), "NOT_STORED\r\n");

    let mut other = server.connect();
    other.0.write_all(&vec![b'x'; 3000]).unwrap();
    other.expect("CLIENT_ERROR line too long\r\n");
    assert_eq!(other.0.read(&mut [0]).unwrap_or(0), 0, "the connection is closed after a line too long");
    client.exchange("get none\r\n", "END\r\n");
}

#[test]
fn a_key_may_have_control_characters() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    for key in ["\t", "a\x01b", "\x1f", "\x7f", "a\rb"] {
        client.exchange(&format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.exchange(&format!("get {key}\r\n"), &format!("VALUE {key} 0 1\r\nx\r\nEND\r\n"));
        client.exchange(&format!("mg {key} v k\r\n"), &format!("VA 1 k{key}\r\nx\r\n"));
    }
    // Listings show such keys encoded, so each key stays on its line.
    client.0.write_all(b"lru_crawler metadump all\r\n").unwrap();
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| line != "END\r\n") {
        lines.push(client.line());
    }
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("key=a%0Db ")), "{lines:?}");
    client.exchange("set a\0b 0 0 1\r\nx\r\n", "CLIENT_ERROR bad command line format\r\n");
}

#[test]
fn a_client_of_the_binary_protocol_is_refused_and_closed() {
    let server = TestServer::start(|_| {});
    // A `set` with extras, a key and a value; a `noop`, in two parts; and a client that needs no
    // login to be refused.
    let mut set = vec![0; 24];
    (set[0], set[1], set[3], set[4], set[11]) = (0x80, 0x01, 1, 8, 8 + 1 + 5);
    set[12..16].copy_from_slice(b"1234");
    set.extend(b"\0\0\0\0\0\0\0\0khello");
    let mut noop = vec![0; 24];
    (noop[0], noop[1]) = (0x80, 0x0a);
    for (request, split) in [(&set, 24), (&set, 38), (&noop, 1), (&noop, 23)] {
        let mut client = server.connect();
        client.0.write_all(&request[..split]).unwrap();
        client.wait_until_received();
        client.0.write_all(&request[split..]).unwrap();
        let mut response = Vec::new();
        client.0.read_to_end(&mut response).unwrap();
        assert_eq!((response[0], response[1], response[6..8].to_vec()), (0x81, request[1], vec![0, 0x81]));
        assert_eq!((&response[12..16], &response[24..]), (&request[12..16], &b"Unknown command"[..]));
    }
    let mut client = server.connect();
    client.exchange("get k\r\n", "END\r\n");
    // Later in a stream, the byte is a part of an unknown command.
    client.0.write_all(b"\x80\r\n").unwrap();
    client.expect("ERROR\r\n");
}

#[test]
fn many_large_values_come_back_whole() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let value = |n: usize| format!("{n:06}").repeat(10_000 + n * 1000);
    let mut all = String::new();
    for n in 0..20 {
        let value = value(n);
        client.exchange(&format!("set big{n} 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
        all += &format!("VALUE big{n} 0 {}\r\n{value}\r\n", value.len());
    }
    let keys: Vec<String> = (0..20).map(|n| format!("big{n}")).collect();
    client.exchange(&format!("get {}\r\n", keys.join(" ")), &format!("{all}END\r\n"));
}

#[test]
fn values_that_never_arrive_are_bounded_and_given_back() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set half 0 0 3\r\nold\r\nset other 0 0 3\r\nold\r\n", "STORED\r\nSTORED\r\n");
    // Half of 8 MiB is room for four values, and a fifth one is exempt.
    let mut held = Vec::new();
    for n in 1..=5 {
        let mut half = server.connect();
        half.0.write_all(format!("set held{n} 0 0 1000000\r\n{}", "x".repeat(999_000)).as_bytes()).unwrap();
        let sent = Instant::now();
        while server.server.receive_budget.bytes() < ByteSize::new(n * (999_000 - (4 << 10))) {
            assert!(sent.elapsed() < Duration::from_secs(10), "{n}: {}", server.server.receive_budget.bytes());
            thread::sleep(Duration::from_millis(5));
        }
        held.push(half);
    }
    let used = client.stat("stats", "bytes").parse::<u64>().unwrap();
    assert!(used > 4_900_000, "{used} bytes: received bytes are charged");

    let no_room = "SERVER_ERROR out of memory storing object\r\n";
    let large = "x".repeat(1_000_000);
    client.exchange(&format!("set half 0 0 1000000\r\n{large}\r\n"), no_room);
    client.exchange(&format!("ms half 1000000\r\n{large}\r\n"), no_room);
    client.exchange(&format!("add other 0 0 1000000\r\n{large}\r\n"), no_room);
    client.exchange("get half other\r\n", "VALUE other 0 3\r\nold\r\nEND\r\n");
    assert_eq!(client.stat("stats", "store_no_memory"), "3");
    client.exchange("set small 0 0 3\r\nnew\r\n", "STORED\r\n");
    drop(held);
    let left = Instant::now();
    while server.server.receive_budget.bytes() > ByteSize::ZERO {
        assert!(
            left.elapsed() < Duration::from_secs(10),
            "{} bytes are still reserved",
            server.server.receive_budget.bytes()
        );
        thread::sleep(Duration::from_millis(5));
    }
    client.exchange(&format!("set half 0 0 1000000\r\n{large}\r\n"), "STORED\r\n");
    client.exchange("flush_all\r\n", "OK\r\n");
    server.server.store.runtime().tree().drain_stock();
    assert_eq!(client.stat("stats", "bytes"), "0");
}

#[test]
fn a_large_value_waits_for_others_that_arrive() {
    let server = TestServer::start(|_| {});
    let large = "x".repeat(1_000_000);
    thread::scope(|scope| {
        for n in 0..12 {
            let mut client = server.connect();
            let text = format!("set k{n} 0 0 1000000\r\n{large}\r\n");
            scope.spawn(move || (0..5).for_each(|_| client.exchange(&text, "STORED\r\n")));
        }
    });
    assert_eq!(server.server.receive_budget.bytes(), ByteSize::ZERO);
}

#[test]
fn values_expire() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 1 1\r\nx\r\n", "STORED\r\n");
    client.exchange("append k 0 0 1\r\ny\r\n", "STORED\r\n");
    client.exchange("set kept 0 1 1\r\nx\r\n", "STORED\r\n");
    client.exchange("touch kept 0\r\n", "TOUCHED\r\n");
    client.exchange("get k kept\r\n", "VALUE k 0 2\r\nxy\r\nVALUE kept 0 1\r\nx\r\nEND\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn the_last_flush_counts() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    let set = "set k 0 0 1\r\nx\r\n";
    let got = "VALUE k 0 1\r\nx\r\nEND\r\n";
    // A thousand delayed flushes count as one.
    client.exchange(&"flush_all 1\r\n".repeat(1000), &"OK\r\n".repeat(1000));
    client.exchange("flush_all 1000\r\n", "OK\r\n");
    client.exchange(set, "STORED\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", got);
    client.exchange("flush_all 1 noreply\r\n", "");
    client.exchange("flush_all noreply\r\n", "");
    client.exchange("get k\r\n", "END\r\n");
    client.exchange(set, "STORED\r\n");
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", got);
    client.exchange("flush_all 1\r\n", "OK\r\n");
    client.exchange("get k\r\n", got);
    thread::sleep(Duration::from_millis(1200));
    client.exchange("get k\r\n", "END\r\n");
    assert_eq!(client.stat("stats", "curr_items"), "0");
}

#[test]
fn a_flush_takes_effect_before_memory_comes_back_and_nobody_else_waits() {
    let server = TestServer::start(|_| {});
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    // Holds the crawl lock, like a crawl over very many values.
    let crawl_lock = server.server.crawl_lock.blocking_lock();
    // More clients than the server has threads.
    let mut others: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for other in &mut others {
        other.0.write_all(b"flush_all\r\nlru_crawler crawl all\r\n").unwrap();
    }
    let sent = Instant::now();
    while server.server.store.peek(b"k").is_some() {
        assert!(sent.elapsed() < Duration::from_secs(10), "the flush has no effect");
    }
    client.exchange("mn\r\nget k\r\nset new 0 0 1\r\nx\r\n", "MN\r\nEND\r\nSTORED\r\n");
    assert_eq!(client.stat("stats", "curr_items"), "2");
    drop(crawl_lock);
    for other in &mut others {
        other.expect("OK\r\nOK\r\n");
    }
    assert!(server.server.store.totals().items < 2, "flushed values are removed");
}

#[test]
fn tenants_are_told_apart() {
    let low = Limits { low: ByteSize::mib(1), ..Limits::default() };
    let server = TestServer::start(|settings| settings.limits = vec![("shop".into(), low)]);
    let mut client = server.connect();
    client.exchange(
        "set shop:a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nget shop:a shop:b b\r\n",
        "STORED\r\nSTORED\r\nVALUE shop:a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
    );
    for (name, value) in [
        ("shop:items", "1"),
        ("shop:hits", "1"),
        ("shop:misses", "1"),
        ("shop:evictions", "0"),
        ("shop:low", "1048576"),
        ("shop:max", "max"),
        ("default:items", "1"),
        ("default:hits", "1"),
    ] {
        assert_eq!(client.stat("stats tenants", name), value, "{name}");
    }
    assert_eq!(client.stat("stats", "curr_items"), "2");
    assert_eq!(client.stat("stats", "limit_maxbytes"), (8 << 20).to_string());
    assert_eq!(client.stat("stats settings", "item_size_max"), (1 << 20).to_string());
}

#[test]
fn connections_are_bounded() {
    let server = TestServer::start(|settings| settings.connections_max = 1);
    let mut first = server.connect();
    first.exchange("get k\r\n", "END\r\n");
    let mut second = server.connect();
    second.expect("ERROR Too many open connections\r\n");
    assert_eq!(first.stat("stats", "rejected_connections"), "1");
    drop(first);
    let freed = Instant::now();
    while freed.elapsed() < Duration::from_secs(5) {
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
fn a_server_closes_within_a_second_whatever_its_clients_do() {
    let mut server = TestServer::start(|_| {});
    let mut idle = server.connect();
    idle.exchange("get k\r\n", "END\r\n");
    let mut half = server.connect();
    half.0.write_all(b"set k 0 0 100\r\nhalf a val").unwrap();
    let mut deaf = server.connect();
    let value = "x".repeat(1_000_000);
    deaf.exchange(&format!("set k 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    deaf.0.write_all(&b"get k\r\n".repeat(100)).unwrap();
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(2), "it took {:?}", started.elapsed());
    assert_eq!(idle.0.read(&mut [0]).unwrap_or(0), 0, "connections are closed");
    assert!(TcpStream::connect(server.address).is_err(), "no further client is accepted");
}

/// Sends one request, and returns the complete response.
fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn http_shows_numbers_and_no_key_or_value() {
    let server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    let address = server.http.unwrap();
    let mut client = server.connect();
    client.exchange(
        "set shop:secret-key 0 0 12\r\nsecret-value\r\nget shop:secret-key\r\n",
        "STORED\r\nVALUE shop:secret-key 0 12\r\nsecret-value\r\nEND\r\n",
    );
    let get = |path: &str| http(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{metrics}");
    for line in [
        "lowwater_items 1",
        "lowwater_server_get_hits_total 1",
        "lowwater_shrinker_freed_total{shrinker=\"values-0\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    assert!(get("/debug/shrinker").ends_with("\r\n\r\nvalues-0\n"));
    // Group ids: the root is 0, the default tenant 1, `shop` 2.
    assert!(get("/debug/shrinker/values-0/count").contains("\r\n\r\n2 1"), "{}", get("/debug/shrinker/values-0/count"));
    for path in ["/metrics", "/debug/shrinker", "/debug/shrinker/values-0/count", "/", "/page.js", "/shop:secret-key"] {
        let answer = get(path);
        assert!(!answer.contains("secret") && !answer.contains("shop"), "{path}: {answer}");
    }
    let state = get("/state.json");
    assert!(
        state.contains(r#""name":"shop""#) && !state.contains("secret"),
        "the state has a tenant's name, but no key or value: {state}"
    );
    for (request, status) in [
        ("GET /debug/shrinker/values-1/count HTTP/1.1\r\n\r\n", "404"),
        ("GET /debug/shrinker/values-0/scan HTTP/1.1\r\n\r\n", "404"),
        ("GET /debug/shrinker/../../metrics HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /state.json HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: scraped.example\r\n\r\n", "200"),
        ("flush_all\r\n", "400"),
        (&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000)), "431"),
    ] {
        let answer = http(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let head = http(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "the response to HEAD has no body");
    assert_eq!(client.stat("stats", "curr_connections"), "1", "HTTP clients take no permit");
}

#[test]
fn the_page_is_answered_to_its_own_site_alone() {
    let server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    for path in ["/", "/page.css", "/page.js", "/state.json"] {
        let answer =
            http(server.http.unwrap(), &format!("GET {path} HTTP/1.1\r\nOrigin: https://other.example\r\n\r\n"));
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        assert!(!head.contains("Access-Control"), "{path}: no CORS header may allow other sites: {head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    }
}

#[test]
fn state_tells_of_the_largest_tenants_and_of_the_rest_in_one() {
    let server = TestServer::start(|settings| {
        settings.http = Some("127.0.0.1:0".into());
        settings.pressure = true;
        settings.limits = vec![("t7".into(), Limits { low: ByteSize::kib(64), ..Limits::default() })];
    });
    let mut client = server.connect();
    for n in 0..100 {
        let value = "x".repeat(100 * (n + 1));
        client.exchange(&format!("set t{n}:k 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    }
    client.exchange("get t99:k\r\n", &format!("VALUE t99:k 0 10000\r\n{}\r\nEND\r\n", "x".repeat(10_000)));
    let answer = http(server.http.unwrap(), "GET /state.json HTTP/1.1\r\n\r\n");
    let state: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let tenants = state["tenants"].as_array().unwrap();
    assert_eq!(state["tenant_count"], 101, "including the default tenant");
    assert_eq!(tenants.len(), 20);
    assert_eq!((&tenants[0]["name"], &tenants[0]["items"], &tenants[0]["hits"]), (&"t99".into(), &1.into(), &1.into()));
    assert!(tenants[0]["max"].is_null(), "no limit");
    assert_eq!(state["others"]["items"], 80);
    assert_eq!(state["items"], 100);
    assert_eq!(state["pressure"]["level"], "calm");
    assert!(state["reclaimers"].as_array().is_some_and(|nodes| !nodes.is_empty()));
}

#[test]
fn silent_http_clients_do_not_keep_the_cache_from_serving_or_closing() {
    let mut server = TestServer::start(|settings| settings.http = Some("127.0.0.1:0".into()));
    let address = server.http.unwrap();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    drop(silent);
    assert!(http(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    let started = Instant::now();
    let _silent = TcpStream::connect(address).unwrap();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(2), "it took {:?}", started.elapsed());
}

#[test]
fn stats_tell_of_the_shrinker_and_of_reclaim() {
    let server = TestServer::start(|settings| settings.budget = ByteSize::mib(1));
    let mut client = server.connect();
    assert_eq!(client.stat("stats shrinkers", "values-0:last_run_ms_ago"), "never");
    let value = "x".repeat(10_000);
    for n in 0..200 {
        client.exchange(&format!("set t:{n} 0 0 10000\r\n{value}\r\n"), "STORED\r\n");
    }
    let number = |client: &mut Client, topic: &str, name: &str| client.stat(topic, name).parse::<u64>().unwrap();
    let evictions = number(&mut client, "stats", "evictions");
    assert!(evictions >= 95, "2 MB were stored in 1 MB, with only {evictions} evictions");
    let objects = number(&mut client, "stats shrinkers", "values-0:objects");
    assert!((50..=200 - 95).contains(&objects), "{objects} values are there");
    assert_eq!(number(&mut client, "stats shrinkers", "values-0:live_pairs"), 1);
    // The stores evicted synchronously so far. A limit that is lowered at once leaves work for the
    // reclaimer.
    client.exchange("tenant set t max=200K\r\n", "OK\r\n");
    let deadline = Instant::now() + Duration::from_secs(10);
    while number(&mut client, "stats shrinkers", "values-0:freed") < objects - 20 {
        assert!(Instant::now() < deadline, "the reclaimer never woke");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(number(&mut client, "stats reclaim", "node0:wakeups") > 0);
    assert_eq!(number(&mut client, "stats reclaim", "limit_maxbytes"), 1 << 20);
}
