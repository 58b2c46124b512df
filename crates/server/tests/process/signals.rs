//! Signals: SIGHUP reads the files again, SIGUSR1 ends the server as SIGTERM does.
//!
//! A reload takes effect as a whole or not at all, and loses neither values nor clients.
//!
//! Each file that SIGHUP reads needs a test; that of the certificate is in `src/tests/tls.rs`.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rustix::process::{kill_process, Signal};

use super::server::{exchange, until, Server};

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lowwater-signals-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Replaces a file of the folder by a rename, so that no reader finds a part of it. Returns the
    /// path.
    fn write(&self, name: &str, text: &str) -> String {
        let path: &Path = &self.0.join(name);
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tenants(client: &TcpStream) -> String {
    exchange(client, "tenant list\r\n", "END\r\n").unwrap()
}

/// Sends SIGHUP, and waits until `tenant list` contains `expected`.
fn reload(server: &Server, client: &TcpStream, expected: &str) {
    kill_process(server.process(), Signal::HUP).unwrap();
    until(&format!("there is {expected:?}"), || tenants(client).contains(expected));
}

#[test]
fn a_hangup_reads_the_limits_again_and_keeps_the_values() {
    let folder = Folder::new("limits");
    let file = folder.write("tenants", "shop low=1M\nblog max=2M\n");
    let server = Server::start(&["--config", &file]);
    let client = server.connect();
    assert_eq!(exchange(&client, "set shop:a 0 0 1\r\nx\r\n", "\r\n").unwrap(), "STORED\r\n");
    assert_eq!(exchange(&client, "tenant set own low=3M\r\n", "\r\n").unwrap(), "OK\r\n");
    folder.write("tenants", "shop low=2M max=4M\nnew min=1M\n");
    reload(&server, &client, "TENANT shop min=0 low=2097152 high=max max=4194304 ");
    reload(&server, &client, "TENANT new min=1048576 ");
    reload(&server, &client, "TENANT blog min=0 low=0 high=max max=max ");
    reload(&server, &client, "TENANT own min=0 low=3145728 ");
    server.wait_for_log("SIGHUP: read limits of 2 tenants");
    // A file with an error, and one whose limits cannot hold, change nothing, the first line
    // included.
    for (text, why) in [
        ("shop low=7K\nnew min=1Q\n", format!("{file}:2: `min=1Q`")),
        ("shop low=7K\nnew min=8M\n", "the min limits of all tenants add up to 8388608 bytes".to_owned()),
    ] {
        folder.write("tenants", text);
        kill_process(server.process(), Signal::HUP).unwrap();
        server.wait_for_log(&format!("SIGHUP: nothing is changed: {why}"));
        assert!(tenants(&client).contains("TENANT shop min=0 low=2097152 "), "{}", tenants(&client));
    }
    assert_eq!(exchange(&client, "get shop:a\r\n", "END\r\n").unwrap(), "VALUE shop:a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn limits_of_traffic_that_reach_no_connection_are_logged() {
    let folder = Folder::new("traffic");
    let limits = folder.write("tenants", "shop low=1M\nsearch requests=5\n");
    let users = folder.write("users", "search:secret\ndefault:root\n");
    let server = Server::start(&["--config", &limits, "-Y", &users]);
    folder.write("tenants", "shop requests=5\nnew requests=5\n");
    folder.write("users", "new:secret\ndefault:root\n");
    kill_process(server.process(), Signal::HUP).unwrap();
    let log = server.wait_for_log("have no effect");
    assert!(log.contains("have no effect for shop: no user (-Y) "), "{log}");
    let client = server.connect();
    let request = "set a 0 0 12\r\ndefault root\r\ntenant set blog requests=5\r\n";
    assert!(exchange(&client, request, "OK\r\n").unwrap().ends_with("STORED\r\nOK\r\n"));
    server.wait_for_log("have no effect for blog: no user (-Y) ");
}

#[test]
fn a_hangup_reads_the_users_again_and_none_is_logged_out() {
    let folder = Folder::new("users");
    let file = folder.write("users", "shop:old\n");
    let server = Server::start(&["-Y", &file]);
    let log_in = |password: &str| {
        let (client, words) = (server.connect(), format!("shop {password}"));
        let reply = exchange(&client, &format!("set a 0 0 {}\r\n{words}\r\n", words.len()), "\r\n").unwrap();
        (client, reply)
    };
    let (first, reply) = log_in("old");
    assert_eq!(reply, "STORED\r\n");
    folder.write("users", "shop:new\n");
    kill_process(server.process(), Signal::HUP).unwrap();
    until("the new password is accepted", || log_in("new").1 == "STORED\r\n");
    assert_eq!(log_in("old").1, "CLIENT_ERROR authentication failure\r\n");
    let reply = exchange(&first, "get k\r\n", "END\r\n").unwrap();
    assert_eq!(reply, "END\r\n", "a login lasts as long as its connection");
}

#[test]
fn a_hangup_without_files_changes_nothing_and_usr1_ends_the_server() {
    let mut server = Server::start(&[]);
    let client = server.connect();
    assert_eq!(exchange(&client, "set a 0 0 1\r\nx\r\n", "\r\n").unwrap(), "STORED\r\n");
    for _ in 0..3 {
        kill_process(server.process(), Signal::HUP).unwrap();
        assert_eq!(exchange(&client, "get a\r\n", "END\r\n").unwrap(), "VALUE a 0 1\r\nx\r\nEND\r\n");
    }
    server.wait_for_log("no file to read again");
    kill_process(server.process(), Signal::USR1).unwrap();
    assert!(server.wait().success(), "a graceful end");
}
