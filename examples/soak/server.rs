//! A lowwater-server in a process of its own, and clients that load it.
//!
//! As a process of its own, the server has a resident size that can be judged alone.
//!
//! A change must ensure that the server does not outlive the soak, also if a check fails or panics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::pace::Random;
use crate::Step;

const MEGABYTES: u64 = 16;
/// Steps of each warm-up client, before the soak begins. The server is full after a small part of
/// them; the rest replace values of mixed sizes until the server's memory no longer grows by
/// fragmentation.
const WARM_UP: u64 = 300_000;
/// The longest time for a reply, and for the server's exit, on any machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The server refuses a `set` at once, or after 500 pauses of 1 ms without room
/// (`crates/server/src/store/update.rs`): the thread that frees memory may wait for a processor.
const REFUSAL_TIME_MIN: Duration = Duration::from_millis(500);
/// The refused sets that a busy machine explains: this many, or one for so many sets.
const REFUSED_MAX: u64 = 5;
const SETS_PER_REFUSED: u64 = 200;

pub struct Served {
    server: Server,
    port: u16,
    /// The connection over which `check` reads the statistics.
    control: Mutex<Client>,
    refusals: Refusals,
}

/// The number of all clients' sets, and of those that were refused and sent again.
#[derive(Default)]
struct Refusals {
    sets: AtomicU64,
    refused: AtomicU64,
}

/// The process, which is killed at the end in every case; it may have ended already.
struct Server(Child);

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Served {
    pub fn start(path: &Path) -> Result<Self, String> {
        let mut command = Command::new(path);
        command.args(["-p", "0", "-t", "2", "-m", &MEGABYTES.to_string()]).stdout(Stdio::piped());
        let mut server = Server(command.spawn().map_err(|why| format!("{}: {why}", path.display()))?);
        let mut line = String::new();
        let mut out = BufReader::new(server.0.stdout.take().expect("the output is piped"));
        let _ = out.read_line(&mut line);
        let port = line.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let Some(port) = port else {
            return Err(format!("{} does not say where it listens, but {line:?}", path.display()));
        };
        let control = Client::connect(port)?;
        let served = Self { server, port, control: Mutex::new(control), refusals: Refusals::default() };
        served.warm_up()?;
        Ok(served)
    }

    /// Lets two clients work until the server's memory no longer grows: later growth is a leak. A
    /// number of steps and not a time, so that it suffices on a slow machine, too.
    fn warm_up(&self) -> Result<(), String> {
        std::thread::scope(|s| {
            for seed in [9, 10] {
                let mut step = self.client(seed)?;
                s.spawn(move || (0..WARM_UP).for_each(|_| step()));
            }
            Ok(())
        })
    }

    pub fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Returns the steps of a client: sets, gets and deletes of 8 tenants' keys, and changes of the
    /// tenants' limits. The client reconnects after about 1,000 steps.
    pub fn client(&self, seed: u64) -> Result<Step<'_>, String> {
        let mut random = Random::new(seed);
        let mut client = Client::connect(self.port)?;
        let mut left = 1_000;
        Ok(Box::new(move || {
            left -= 1;
            if left == 0 {
                left = 200 + random.of(2_000);
                client = Client::connect(self.port).expect("the server has room for two clients");
            }
            let key = format!("t{}:{}", random.of(8), random.of(20_000));
            let len = random.of(2_000) as usize;
            let told = match random.of(200) {
                0 => client.ask(&format!("tenant set t{} low=64k max={}k\r\n", random.of(8), 512 + random.of(8_192))),
                1 => client.ask(&format!("delete {key}\r\n")),
                2..=100 => {
                    let text = format!("set {key} 0 {} {len}\r\n{}\r\n", random.of(30), "x".repeat(len));
                    client.set(&text, &self.refusals)
                }
                _ => client.get(&key),
            };
            assert!(!told.is_empty() && !told.contains("ERROR"), "the server answered {told:?}");
        }))
    }

    /// Checks that the server answers, and holds no more than its limit.
    pub fn check(&self) -> Result<(), String> {
        let mut control = self.control.lock().map_err(|_| "a check panicked")?;
        let bytes = control.stat("bytes")?;
        if bytes > MEGABYTES << 20 {
            return Err(format!("the server holds {bytes} bytes, with -m {MEGABYTES}"));
        }
        Ok(())
    }

    /// Sends SIGTERM: the server must exit with 0 within [`PATIENCE`].
    pub fn stop(mut self) -> Result<(), String> {
        let told = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        told.map_err(|why| format!("kill: {why}"))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.server.0.try_wait().map_err(|why| why.to_string())? {
                return if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the server does not end".into())
    }
}

impl Refusals {
    /// Counts a refused set; its further refusals have the same cause.
    ///
    /// # Panics
    ///
    /// If more sets were refused than a busy machine explains.
    fn count_refused(&self) {
        // Relaxed: the numbers order nothing.
        let (refused, sets) = (self.refused.fetch_add(1, Relaxed) + 1, self.sets.load(Relaxed));
        println!("{refused} of {sets} sets were refused and are repeated");
        assert!(refused <= REFUSED_MAX.max(sets / SETS_PER_REFUSED), "the server refuses too many sets");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Client {
    fn connect(port: u16) -> Result<Self, String> {
        let connect = || {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok::<_, std::io::Error>(Self { replies: BufReader::new(stream.try_clone()?), stream })
        };
        connect().map_err(|why| format!("a client of port {port}: {why}"))
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the server reads the request");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).expect("the server answers");
        line
    }

    fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// Sends a `set` again while it is refused after [`REFUSAL_TIME_MIN`], up to [`PATIENCE`].
    fn set(&mut self, text: &str, refusals: &Refusals) -> String {
        // Relaxed: the numbers order nothing.
        refusals.sets.fetch_add(1, Relaxed);
        let (begun, mut was_refused) = (Instant::now(), false);
        loop {
            let sent = Instant::now();
            let told = self.ask(text);
            let is_refused = told == "SERVER_ERROR out of memory storing object\r\n";
            if !is_refused || sent.elapsed() < REFUSAL_TIME_MIN || begun.elapsed() > PATIENCE {
                return told;
            }
            if !was_refused {
                refusals.count_refused();
                was_refused = true;
            }
        }
    }

    fn get(&mut self, key: &str) -> String {
        let head = self.ask(&format!("get {key}\r\n"));
        if head == "END\r\n" {
            return head;
        }
        let len: u64 = head.trim().rsplit(' ').next().and_then(|len| len.parse().ok()).expect("VALUE key flags bytes");
        let mut value = Vec::new();
        (&mut self.replies).take(len + 2).read_to_end(&mut value).expect("the server answers");
        assert!(value[..len as usize].iter().all(|byte| *byte == b'x'), "the value differs from the one that was set");
        self.line()
    }

    fn stat(&mut self, name: &str) -> Result<u64, String> {
        self.send("stats\r\n");
        let mut found = None;
        loop {
            let line = self.line();
            match line.trim().split(' ').collect::<Vec<_>>()[..] {
                ["STAT", stat, value] if stat == name => found = value.parse().ok(),
                ["END"] => return found.ok_or(format!("stats do not tell {name}")),
                ["STAT", ..] => {}
                _ => return Err(format!("stats say {line:?}")),
            }
        }
    }
}
