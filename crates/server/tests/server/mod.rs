//! A server as a process of its own, on a free port.
//!
//! Included by the tests of the process; a test waits for output or a reply, never for a duration.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest wait. It only ends a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    /// The first line that the server prints.
    pub banner: String,
    /// The lines that the server has written to stderr.
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts a server of 8 MiB with these flags.
    pub fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowwater-server"));
        command.args(["-p", "0", "-m", "8"]).args(flags);
        Self::start_by(command)
    }

    /// Starts a server by `command`, and waits until it accepts clients.
    pub fn start_by(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let (log, stderr) = (Arc::<Mutex<String>>::default(), child.stderr.take().expect("stderr is a pipe"));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut lines = lines.lock().expect("no holder panics");
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        let mut banner = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut banner).expect("the server prints its address");
        Self { child, banner, log }
    }

    pub fn process(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process id")
    }

    pub fn connect(&self) -> TcpStream {
        let address = self.banner.split_whitespace().last().expect("the server has started");
        let client = TcpStream::connect(address).expect("a listening server");
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        client
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("a child process")
    }

    /// Waits until the log contains `part`, and returns the log.
    pub fn wait_for_log(&self, part: &str) -> String {
        let log = || self.log.lock().expect("no holder panics").clone();
        until(&format!("the log has {part:?}"), || log().contains(part));
        log()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Waits until `is_done` returns true.
///
/// # Panics
///
/// After [`PATIENCE`]; the message contains `what`.
pub fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < PATIENCE, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(10));
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
