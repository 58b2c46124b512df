//! A server as a process of its own, on a free port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The time after which a client that gets no answer makes a test fail.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a server of 8 MiB with these flags.
    pub fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
        command.args(["-p", "0", "-m", "8"]).args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server's program runs");
        let mut banner = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut banner).expect("the server prints its address");
        let address = banner.split_whitespace().last().expect("the server has started").to_owned();
        Self { child, address }
    }

    pub fn process(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.child.id().cast_signed()).expect("a process id")
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(&self.address).expect("a listening server");
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        client
    }

    /// Waits for the process to end by itself.
    #[allow(dead_code, reason = "not all tests let it end")]
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child process")
    }

    /// Ends the process, and returns what it wrote to stderr.
    pub fn log(mut self) -> String {
        let _ended = self.child.kill();
        let mut log = String::new();
        self.child.stderr.take().expect("stderr is a pipe").read_to_string(&mut log).expect("text");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Sends `request`, and reads until the reply ends with `end`. Returns what was read, also if the
/// server closes the connection before.
pub fn exchange(mut client: &TcpStream, request: &str, end: &str) -> std::io::Result<String> {
    client.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    while !reply.ends_with(end.as_bytes()) {
        let mut byte = [0];
        if client.read(&mut byte)? == 0 {
            break;
        }
        reply.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
