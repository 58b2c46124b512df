//! The server under a service manager: readiness, and sockets that the manager has opened.
//!
//! The tests play the manager: they set the environment variables of systemd's protocols and read
//! what the server reports.
//!
//! A change must ensure that the sockets are passed as systemd passes them, by number and
//! environment.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{kill_process, Signal};

use super::server::{exchange, Server, PATIENCE};

/// An address that no machine has; `-l` has no effect for sockets of the manager.
const UNUSED: &str = "192.0.2.1";

fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lowwater-managed-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Returns the command that starts a server with this socket as its descriptor 3, as systemd would.
/// `-p 1` and `-l address` must have no effect then.
fn with_socket(socket: OwnedFd, address: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_lowwater-server");
    let mut command = Command::new("sh");
    let start = format!("exec env LISTEN_PID=$$ LISTEN_FDS=1 {program} -p 1 -l {address} -m 8 3<&0 </dev/null");
    command.args(["-c", &start]).stdin(Stdio::from(socket));
    command
}

#[test]
fn the_manager_learns_when_the_server_is_ready_and_when_it_stops() {
    let address = path("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let receive = || {
        let mut text = [0; 200];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
    command.args(["-p", "0", "-m", "8"]).env("NOTIFY_SOCKET", &address);
    let mut server = Server::start_by(command);
    assert_eq!(receive(), format!("READY=1\nMAINPID={}\n", server.process().as_raw_nonzero()));
    assert_eq!(exchange(&server.connect(), "get a\r\n", "END\r\n").unwrap(), "END\r\n");
    kill_process(server.process(), Signal::TERM).unwrap();
    assert_eq!(receive(), "STOPPING=1\n");
    assert!(server.wait().success());
    std::fs::remove_file(&address).unwrap();
}

#[test]
fn the_manager_waits_while_values_are_saved_and_loaded() {
    let (address, file) = (path("busy"), path("busy-values"));
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let receive = || {
        let mut text = [0; 200];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).lines().next().unwrap_or_default().to_owned()
    };
    for is_first in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
        command.args(["-p", "0", "-m", "8", "--save-file"]).arg(&file).env("NOTIFY_SOCKET", &address);
        let mut server = Server::start_by(command);
        if !is_first {
            assert_eq!(receive(), "EXTEND_TIMEOUT_USEC=60000000", "at the begin of the load");
        }
        assert_eq!(receive(), "READY=1");
        assert_eq!(exchange(&server.connect(), "set a 0 0 1\r\nb\r\n", "STORED\r\n").unwrap(), "STORED\r\n");
        kill_process(server.process(), Signal::TERM).unwrap();
        let received = [receive(), receive(), receive()];
        let expected = ["STOPPING=1", "EXTEND_TIMEOUT_USEC=60000000", "EXTEND_TIMEOUT_USEC=600000000"];
        assert_eq!(received, expected, "the save, and the sync of its file");
        assert!(server.wait().success());
    }
    std::fs::remove_file(&address).unwrap();
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_managers_sockets_are_served_and_stay_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    };
    for _ in 0..2 {
        // A client that connects before the server starts.
        let early = connect();
        let mut server = Server::start_by(with_socket(listener.try_clone().unwrap().into(), UNUSED));
        assert!(server.banner.contains(&address.to_string()), "{}", server.banner);
        for client in [early, connect()] {
            assert_eq!(exchange(&client, "get a\r\n", "END\r\n").unwrap(), "END\r\n");
        }
        kill_process(server.process(), Signal::TERM).unwrap();
        assert!(server.wait().success());
    }

    let path = path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = Server::start_by(with_socket(listener.into(), UNUSED));
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    std::io::Write::write_all(&mut client, b"mn\r\n").unwrap();
    let mut reply = [0; 4];
    std::io::Read::read_exact(&mut client, &mut reply).unwrap();
    assert_eq!(&reply, b"MN\r\n");
    kill_process(server.process(), Signal::TERM).unwrap();
    assert!(server.wait().success());
    assert!(path.exists(), "the manager's file is not removed");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sockets_that_cannot_be_served_as_wanted_are_refused() {
    let refusal = |socket: OwnedFd, address: &str| {
        let refused = with_socket(socket, address).output().unwrap();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let path = path("datagram");
    for socket in
        [connected.into(), UdpSocket::bind("127.0.0.1:0").unwrap().into(), UnixDatagram::bind(&path).unwrap().into()]
    {
        let why = refusal(socket, UNUSED);
        assert!(why.contains("LISTEN_FDS: a given socket is no listening stream socket"), "{why}");
    }
    std::fs::remove_file(&path).unwrap();
    // The manager's sockets have no tenants: the restriction must not be lost.
    let why = refusal(listener.into(), "tag_shop_:127.0.0.1");
    assert!(why.contains("-l: cannot restrict clients to the tenant shop"), "{why}");
}

#[test]
fn variables_of_another_process_have_no_effect() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
    command.args(["-p", "0", "-m", "8"]).env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let server = Server::start_by(command);
    assert_eq!(exchange(&server.connect(), "mn\r\n", "MN\r\n").unwrap(), "MN\r\n");
}
