//! Tests of a whole server in this process, over TCP.
//!
//! ```text
//!   binary         the binary protocol
//!   commands       the classic commands: exact replies, order, errors
//!   meta           the meta commands
//!   values         large and incomplete values, expiry, flushes
//!   connections    their bound, and the end of the server
//!   access         tenants by listener and by login
//!   control        administration while clients are served
//!   statistics     `stats` and its topics
//!   tls            encrypted connections, with the feature `tls`
//!   traffic        limits of requests, bytes, connections and commands
//!   http           metrics and the page
//!   compatibility  what memcached's clients and tools depend on
//!   refusals       the bound on repeated stores, which tests of the store use, too
//! ```
//!
//! The server runs on a free port; a client is a plain socket, and `exchange` compares exact bytes.
//! `ci/memcached.sh` compares the replies with those of memcached.
//!
//! A change must ensure that replies are compared byte by byte, and that `exchange` shows by its
//! marker that nothing more is sent.

mod access;
mod binary;
mod commands;
mod compatibility;
mod connections;
mod control;
mod http;
mod meta;
pub(crate) mod refusals;
mod statistics;
#[cfg(feature = "tls")]
mod tls;
mod traffic;
mod values;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use lowwater::ByteSize;
use tokio::sync::oneshot;

use crate::acceptor;
use crate::receive_budget::ReceiveCharge;
use crate::server::{Server, CLOSE_TIME_MAX};
use crate::settings::limits::Limits;
use crate::settings::listen_address::ListenAddress;
use crate::settings::protocol::Protocol;
use crate::settings::traffic_limits::TrafficLimits;
use crate::settings::{Files, Settings};
use crate::store::namespace::Namespace;
use crate::store::update::{ROOM_PAUSE, ROOM_PAUSES_MAX};
use crate::workers::Workers;
use refusals::Refusals;

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
        metrics_tenants: 0,
        protocol: Protocol::Auto,
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
        shutdown: false,
        dump: true,
        watch: true,
        tls: None,
        idle_timeout: None,
        background: false,
        user: None,
        pid_file: None,
        save_file: None,
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

    /// Starts a server that requires a login of its users `shop` and `default`, by the name of the
    /// test's file of users.
    fn start_with_users(name: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let path = std::env::temp_dir().join(format!("lowwater-server_{name}_{}", std::process::id()));
        std::fs::write(&path, "shop:secret\ndefault:root\n").unwrap();
        let users = crate::settings::users::Users::read(&path, b':').unwrap();
        std::fs::remove_file(&path).unwrap();
        Self::start(|settings| {
            settings.users = Some(users);
            change(settings);
        })
    }

    fn connect(&self) -> Client {
        self.connect_to(self.address)
    }

    fn connect_to(&self, address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(stream, Refusals::default())
    }

    /// Returns clients that have each sent a part of a value, as many as the receive budget of the
    /// default tenant has room for.
    fn stall_in_values(&self) -> Vec<Client> {
        // A quarter of 8 MiB is room for two values of a tenant, and a third one is exempt
        // (`receive_budget.rs`). The first 4 KiB of each value are not charged.
        let hold = |n: u64| {
            let mut client = self.connect();
            client.0.write_all(format!("set held{n} 0 0 1000000\r\n{}", "x".repeat(999_000)).as_bytes()).unwrap();
            let sent = Instant::now();
            while self.server.receive_budget.bytes() < ByteSize::new(n * (999_000 - (4 << 10))) {
                assert!(sent.elapsed() < Duration::from_secs(60), "{n}: {}", self.server.receive_budget.bytes());
                thread::sleep(Duration::from_millis(5));
            }
            client
        };
        (1..=3).map(hold).collect()
    }

    /// Charges a tenant as values of these lengths do while they are received, as far as there is
    /// room.
    fn charge_received(&self, tenant: &str, lengths: &[usize]) -> Vec<ReceiveCharge> {
        let permit = self.server.store.admit_connection(&Namespace::of_tenant(tenant, b':')).unwrap();
        let receive_budget = permit.traffic().receive_budget(&self.server.receive_budget);
        let charge = |length: &usize| {
            let mut charge = ReceiveCharge::new(Some(receive_budget), *length);
            charge.charge_up_to(*length).then_some(charge)
        };
        lengths.iter().filter_map(charge).collect()
    }

    /// Charges a tenant as values do whose clients keep sending: until the charges are dropped, its
    /// connections can receive no other value of more than 4 KiB.
    fn fill_receive_budget(&self, tenant: &str) -> Vec<ReceiveCharge> {
        let held = self.charge_received(tenant, &[999_000; 3]);
        assert_eq!(held.len(), 3, "as in `stall_in_values`");
        held
    }

    /// Returns the time that all bytes charged to the tenant since `begun` take at its limit, or
    /// longer if they are paid for. Without the burst, a tenth of a second.
    fn time_charged(&self, tenant: &str, begun: Instant) -> Duration {
        let namespace = Namespace::of_tenant(tenant, b':');
        let permit = self.server.store.admit_connection(&namespace).unwrap();
        permit.traffic().bytes_wait() + begun.elapsed()
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// As [`stop`](Self::stop). Returns false if clients may have been cut off, because the server
    /// has waited for them for [`CLOSE_TIME_MAX`].
    fn stop_in_time(&mut self) -> bool {
        let begun = Instant::now();
        self.stop();
        begun.elapsed() < CLOSE_TIME_MAX
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Client(TcpStream, Refusals);

impl Client {
    /// Sends `text`, and checks that the reply is exactly `expected`; the reply to a marker command
    /// proves that nothing more is sent.
    fn exchange(&mut self, text: &str, expected: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
        self.0.write_all(b"delete the-marker\r\n").unwrap();
        self.expect(expected);
        self.expect("NOT_FOUND\r\n");
    }

    /// As [`exchange`](Self::exchange), with all requests in one write: ages and remaining times,
    /// in whole seconds, must not change between them.
    fn exchange_all(&mut self, pairs: &[(&str, &str)]) {
        let requests: String = pairs.iter().map(|pair| pair.0).collect();
        let replies: String = pairs.iter().map(|pair| pair.1).collect();
        self.exchange(&requests, &replies);
    }

    /// Sends a `set` with its value until it is stored. On a busy machine it may find no room in
    /// half a second: for that long, the thread that frees memory may wait for a processor, the
    /// value of another client may arrive, or readers of any test of this process may keep the
    /// memory of evicted values.
    fn store_with_patience(&mut self, text: &str) {
        assert_eq!(self.reply_to_store(text), "STORED\r\n");
    }

    /// Sends a `set` again while it is refused after all its pauses, for up to a minute. Returns
    /// the last reply. [`Refusals`] bounds the number of refused stores.
    fn reply_to_store(&mut self, text: &str) -> String {
        self.1.count_store();
        let (begun, mut was_refused) = (Instant::now(), false);
        loop {
            let sent = Instant::now();
            self.0.write_all(text.as_bytes()).unwrap();
            let reply = self.line();
            let is_refused = reply == "SERVER_ERROR out of memory storing object\r\n";
            let has_paused = sent.elapsed() >= ROOM_PAUSE * ROOM_PAUSES_MAX;
            if !is_refused || !has_paused || begun.elapsed() > Duration::from_secs(60) {
                return reply;
            }
            if !was_refused {
                self.1.count_refused();
                was_refused = true;
            }
        }
    }

    /// Waits until the server's socket has received all sent bytes: on a busy system, the kernel
    /// delivers them after the call that sends them.
    fn wait_until_received(&self) {
        let port = format!(":{:04X}", self.0.local_addr().unwrap().port());
        // A line of `/proc/net/tcp`: field 1 is the local address, field 4 begins with the number
        // of bytes that the other end has not acknowledged.
        let is_on_its_way = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1].ends_with(&port) && !fields[4].starts_with("00000000:")
        };
        let end = Instant::now() + Duration::from_secs(60);
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

/// Returns whether IPv6 is on. If it was turned off by sysctl, `::` can be bound, and no address of
/// IPv6 can be reached.
fn has_ipv6() -> bool {
    let bound = std::net::TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, 0));
    if let Err(why) = &bound {
        eprintln!("skipped: there is no IPv6: {why}");
    }
    bound.is_ok()
}

/// Calls `once` until it returns the true of [`TestServer::stop_in_time`].
fn until_ended_in_time(mut once: impl FnMut() -> bool) {
    assert!((0..20).any(|_| once()), "no server ended in time");
}

/// Returns the shortest of up to ten durations, or the first below `enough`: a busy machine makes
/// single ones longer.
fn shortest(enough: Duration, mut once: impl FnMut() -> Duration) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..10 {
        least = least.min(once());
        if least < enough {
            break;
        }
    }
    least
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
