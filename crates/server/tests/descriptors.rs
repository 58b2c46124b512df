//! A server without free file descriptors: every client gets an answer or a refusal.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{prlimit, Pid, Resource, Rlimit};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a free port; returns it with its address.
fn start(flags: &[&str]) -> (Server, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
    command.args(["-p", "0", "-m", "8"]).args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let mut banner = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut banner).unwrap();
    let address = banner.split_whitespace().last().unwrap().to_owned();
    (server, address)
}

/// Returns the number of open descriptors of a process.
fn open_descriptors(server: &Server) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).unwrap().count() as u64
}

#[test]
fn without_descriptors_every_client_is_answered_or_refused() {
    let (mut server, address) = start(&["-c", "100", "-t", "2"]);
    let limit = open_descriptors(&server) + 20;
    let pid = Pid::from_raw(server.0.id().cast_signed());
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    let clients: Vec<_> = (0..60).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut served = 0;
    for mut client in &clients {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // An error means that the client was refused already.
        let _ = client.write_all(b"version\r\n");
        let mut reply = [0; 6];
        let got = client.read(&mut reply);
        match &got {
            Ok(_) if reply.starts_with(b"VERSIO") => served += 1,
            Ok(0) => {}
            Ok(_) => assert!(reply.starts_with(b"ERROR "), "{reply:?}"),
            Err(why) => assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset, "a client waits for ever"),
        }
    }
    assert!((10..=30).contains(&served), "{served} clients are served");
    // When clients leave, others are served again.
    drop(clients);
    let mut client = TcpStream::connect(&address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for attempt in 0.. {
        let (mut reply, _) = ([0; 6], client.write_all(b"version\r\n"));
        if client.read(&mut reply).is_ok() && reply.starts_with(b"VERSIO") {
            break;
        }
        assert!(attempt < 100, "descriptors come back");
        std::thread::sleep(Duration::from_millis(50));
        client = TcpStream::connect(&address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let _ = server.0.kill();
    let mut log = String::new();
    server.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("Too many open files"), "one line without -v: {log:?}");
    assert!(log.lines().count() <= 3, "not a line for each client: {log:?}");
}

#[test]
fn a_low_limit_is_raised_or_refused_at_start() {
    let shell = |limit: u64, program: &str| {
        Command::new("sh").arg("-c").arg(format!("ulimit -Sn {limit} && {program}")).output().unwrap()
    };
    let server = env!("CARGO_BIN_EXE_lowwater-server");
    // A soft limit is no reason to refuse: the hard one is far above it, or may be raised.
    let raised = shell(64, &format!("timeout 3 {server} -p 0 -m 8 -c 500"));
    assert!(String::from_utf8_lossy(&raised.stdout).contains("500 connections"), "{raised:?}");
    // More than any system allows.
    let refused = shell(64, &format!("timeout 30 {server} -p 0 -m 8 -c 9000000000000000000"));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("-c: 9000000000000000000 connections need"), "{refused:?}");
}
