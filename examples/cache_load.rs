//! A load for `lowwater-server` (or any memcached): many tenants flood it while others read.
//!
//! ```text
//!   alone    the quiet tenants read their working sets, and write on a miss; there is no other load
//!   flood    writers write --bytes in all, keys of --tenants tenants, sizes from 100 B to 100 kB;
//!            readers request recently written keys and check every byte; the quiet tenants continue
//!   after    the last written values are read back
//! ```
//!
//! The two quiet tenants, `quiet` and `poor`, have the same load. In the server's config of
//! `ci/budget.sh` only `quiet` has a `low`, so the difference of their hit ratios is the effect of
//! `low`. Value number `n` has the same key, size and bytes in each run; which values are read, and
//! when, depends on the threads. Prints `name value` lines, which `ci/budget.sh` checks. Fails if
//! the server cannot be reached, breaks the protocol or returns wrong bytes; a low hit ratio is no
//! failure here.
//!
//! A change must ensure that key, size and bytes follow from the value's number alone: a reader
//! checks bytes that another thread wrote, and the figures of two runs are compared.

#![forbid(unsafe_code)]

#[path = "at_end/mod.rs"]
mod at_end;
#[path = "progress/mod.rs"]
mod progress;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use at_end::AtEnd;
use clap::{value_parser, Parser};
use indicatif::ProgressBar;

/// Values in a batch: sent at once, their replies read afterwards.
const BATCH: u64 = 16;

/// The number of last values that are read back after the flood.
const READ_BACK: u64 = 512;

/// The size of the quiet tenants' values.
const QUIET_VALUE_BYTES: usize = 4000;

/// The interval between two reads of the server's charged bytes.
const SAMPLE_PAUSE: Duration = Duration::from_millis(10);

/// Floods a memcached with many tenants' values and prints the results
#[derive(Debug, Parser)]
struct Args {
    /// The server
    #[arg(default_value = "127.0.0.1:11211")]
    address: String,
    /// Value bytes to write in all
    #[arg(long, default_value_t = 2_000_000_000)]
    bytes: u64,
    /// The smallest value
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    value_bytes_min: u32,
    /// The largest value
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u32).range(1..))]
    value_bytes_max: u32,
    /// Tenants the flood is spread over
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..))]
    tenants: u64,
    /// Connections that write
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=1024))]
    writers: u64,
    /// Connections that read what was just written
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(..=1024))]
    readers: u64,
    /// Keys in a quiet tenant's working set (4,000 bytes each)
    #[arg(long, default_value_t = 2000, value_parser = value_parser!(u64).range(1..))]
    quiet_keys: u64,
    /// Reads a second of each quiet tenant
    #[arg(long, default_value_t = 4000, value_parser = value_parser!(u32).range(1..))]
    quiet_rate: u32,
    /// Seconds the quiet tenants are measured alone
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(..=86_400))]
    alone_seconds: u64,
}

/// State shared by the threads; the figures are printed at the end of the run.
#[derive(Debug, Default)]
struct Shared {
    /// Batches assigned to writers.
    batches: AtomicU64,
    /// By writer: the last acknowledged batch, counted from 1; 0 for none.
    acknowledged: Vec<AtomicU64>,
    flood_over: AtomicBool,
    bytes_written: AtomicU64,
    server_errors: AtomicU64,
    recent_hits: AtomicU64,
    recent_misses: AtomicU64,
    charged_max: AtomicU64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let shared = Shared { acknowledged: (0..args.writers).map(|_| AtomicU64::new(0)).collect(), ..Shared::default() };

    let bar = progress::bar(args.bytes, false);
    bar.set_message("the quiet tenants alone");
    // First a warm-up, then measured.
    for quiet in ["quiet", "poor"] {
        Quiet::new(&args, quiet)?.read(&mut (0..args.quiet_keys), Pace::none())?;
    }
    let over = Instant::now() + Duration::from_secs(args.alone_seconds);
    let alone = thread::scope(|scope| -> io::Result<Vec<f64>> {
        let measure = |name| Quiet::new(&args, name)?.read_until(&args, &|| Instant::now() >= over);
        ["quiet", "poor"].map(|name| scope.spawn(move || measure(name))).into_iter().map(joined).collect()
    })?;

    bar.set_message("the flood");
    let start = Instant::now();
    let flooded = thread::scope(|scope| -> io::Result<Vec<f64>> {
        let (args, shared, bar) = (&args, &shared, &bar);
        // Relaxed: a stop flag; no data is passed with it.
        let end = AtEnd(|| shared.flood_over.store(true, Relaxed));
        let over = || shared.flood_over.load(Relaxed);
        let quiet: Vec<_> =
            ["quiet", "poor"].map(|name| scope.spawn(move || Quiet::new(args, name)?.read_until(args, &over))).into();
        let writers: Vec<_> = (0..args.writers).map(|w| scope.spawn(move || write(args, shared, w))).collect();
        let readers: Vec<_> = (0..args.readers).map(|r| scope.spawn(move || read_recent(args, shared, r))).collect();
        let sampler = scope.spawn(move || sample(args, shared, bar));
        let written: io::Result<Vec<()>> = writers.into_iter().map(joined).collect();
        // Also after a writer's error, or the other threads would not end.
        drop(end);
        readers.into_iter().try_for_each(joined)?;
        joined(sampler)?;
        let ratios = quiet.into_iter().map(joined).collect();
        written.and(ratios)
    })?;
    let seconds = start.elapsed().as_secs_f64();

    bar.set_message("reading back");
    let read_back = read_back(&args, &shared)?;
    bar.finish_and_clear();
    let megabytes = shared.bytes_written.load(Relaxed) as f64 / 1e6;
    let (hits, misses) = (shared.recent_hits.load(Relaxed), shared.recent_misses.load(Relaxed));
    let stats = Client::new(&args.address)?.stats()?;
    let stat = |name: &str| stats.iter().find(|(other, _)| other == name).map_or("-", |(_, value)| value);
    println!("flood_seconds {seconds:.1}");
    println!("flood_megabytes {megabytes:.0}");
    println!("flood_megabytes_per_second {:.0}", megabytes / seconds);
    println!("values_written {}", shared.batches.load(Relaxed) * BATCH);
    println!("evictions {}", stat("evictions"));
    println!("charged_bytes_max {}", shared.charged_max.load(Relaxed));
    println!("server_errors {}", shared.server_errors.load(Relaxed));
    println!("recent_reads {}", hits + misses);
    println!("recent_hit_percent {:.2}", percent(hits, misses));
    println!("read_back_percent {read_back:.2}");
    println!("quiet_alone_percent {:.2}", alone[0]);
    println!("quiet_flooded_percent {:.2}", flooded[0]);
    println!("poor_alone_percent {:.2}", alone[1]);
    println!("poor_flooded_percent {:.2}", flooded[1]);
    Ok(())
}

// === the flood ===

/// The key of value number `n`.
fn key(args: &Args, n: u64) -> String {
    format!("t{}:value-{n}", mix(n) % args.tenants)
}

/// A size between the least and the most bytes, each magnitude with the same probability.
fn length(args: &Args, n: u64) -> usize {
    let (min, max) = (f64::from(args.value_bytes_min), f64::from(args.value_bytes_max));
    let unit = (mix(n ^ 0xA5A5) >> 11) as f64 / (1u64 << 53) as f64;
    (min * (max / min).powf(unit)) as usize
}

fn fill(n: u64, length: usize, bytes: &mut Vec<u8>) {
    let end = bytes.len() + length;
    let mut word = n;
    while bytes.len() < end {
        word = mix(word);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(end);
}

/// Writes batches of values until all are written, and counts the refused ones.
fn write(args: &Args, shared: &Shared, writer: u64) -> io::Result<()> {
    let mut client = Client::new(&args.address)?;
    let mut sets = Vec::new();
    while shared.bytes_written.load(Relaxed) < args.bytes {
        let batch = shared.batches.fetch_add(1, Relaxed);
        sets.clear();
        for n in values_of(batch) {
            write!(sets, "set {} 0 0 {}\r\n", key(args, n), length(args, n))?;
            fill(n, length(args, n), &mut sets);
            sets.extend_from_slice(b"\r\n");
        }
        client.stream.write_all(&sets)?;
        for _ in 0..BATCH {
            match client.line()? {
                "STORED" => {}
                error if error.starts_with("SERVER_ERROR") => drop(shared.server_errors.fetch_add(1, Relaxed)),
                other => return Err(broken(format!("a set was answered with {other:?}"))),
            }
        }
        let bytes: usize = values_of(batch).map(|n| length(args, n)).sum();
        shared.bytes_written.fetch_add(bytes as u64, Relaxed);
        shared.acknowledged[writer as usize].store(batch + 1, Relaxed);
    }
    Ok(())
}

fn values_of(batch: u64) -> std::ops::Range<u64> {
    batch * BATCH..(batch + 1) * BATCH
}

fn read_recent(args: &Args, shared: &Shared, reader: u64) -> io::Result<()> {
    let mut client = Client::new(&args.address)?;
    let mut random = mix(reader + 1);
    while !shared.flood_over.load(Relaxed) {
        random = mix(random);
        let writer = random % args.writers;
        let Some(batch) = shared.acknowledged[writer as usize].load(Relaxed).checked_sub(1) else {
            thread::yield_now();
            continue;
        };
        let hit = client.get_and_check(args, batch * BATCH + (random >> 32) % BATCH)?;
        let counter = if hit { &shared.recent_hits } else { &shared.recent_misses };
        counter.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Reads the last values of the flood and returns the found ones, in per cent.
fn read_back(args: &Args, shared: &Shared) -> io::Result<f64> {
    let mut client = Client::new(&args.address)?;
    let (mut hits, mut misses) = (0, 0);
    let end = shared.batches.load(Relaxed) * BATCH;
    for n in end.saturating_sub(READ_BACK)..end {
        let hit = client.get_and_check(args, n)?;
        *(if hit { &mut hits } else { &mut misses }) += 1;
    }
    Ok(percent(hits, misses))
}

fn sample(args: &Args, shared: &Shared, bar: &ProgressBar) -> io::Result<()> {
    let mut client = Client::new(&args.address)?;
    while !shared.flood_over.load(Relaxed) {
        let stats = client.stats()?;
        let charged = stats.iter().find(|(name, _)| name == "bytes").and_then(|(_, value)| value.parse().ok());
        shared.charged_max.fetch_max(charged.ok_or_else(|| broken("stats without bytes".into()))?, Relaxed);
        bar.set_position(shared.bytes_written.load(Relaxed));
        thread::sleep(SAMPLE_PAUSE);
    }
    Ok(())
}

// === the quiet tenants ===

struct Quiet {
    client: Client,
    name: &'static str,
    hits: u64,
    misses: u64,
}

impl Quiet {
    fn new(args: &Args, name: &'static str) -> io::Result<Self> {
        Ok(Self { client: Client::new(&args.address)?, name, hits: 0, misses: 0 })
    }

    /// Reads keys in random order until `over`; returns the found ones, in per cent.
    fn read_until(mut self, args: &Args, over: &dyn Fn() -> bool) -> io::Result<f64> {
        let mut random = mix(self.name.len() as u64);
        let mut keys = std::iter::from_fn(|| {
            random = mix(random);
            (!over()).then_some(random % args.quiet_keys)
        });
        self.read(&mut keys, Pace::new(args.quiet_rate))?;
        Ok(percent(self.hits, self.misses))
    }

    fn read(&mut self, keys: &mut dyn Iterator<Item = u64>, mut pace: Pace) -> io::Result<()> {
        for n in keys {
            let key = format!("{}:{n}", self.name);
            if self.client.get(&key)?.is_some() {
                self.hits += 1;
            } else {
                self.misses += 1;
                let mut set = format!("set {key} 0 0 {QUIET_VALUE_BYTES}\r\n").into_bytes();
                fill(n, QUIET_VALUE_BYTES, &mut set);
                set.extend_from_slice(b"\r\n");
                self.client.stream.write_all(&set)?;
                self.client.line()?;
            }
            pace.wait();
        }
        Ok(())
    }
}

/// A limit of steps per second; a late step is not made up for.
struct Pace {
    step: Duration,
    next: Instant,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self { step: Duration::from_secs(1) / per_second, next: Instant::now() }
    }

    fn none() -> Self {
        Self { step: Duration::ZERO, next: Instant::now() }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        self.next = (self.next + self.step).max(now);
        // A sleep takes longer than asked for, so there is one for several steps.
        if self.next - now > Duration::from_millis(2) {
            thread::sleep(self.next - now);
        }
    }
}

// === the client ===

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    line: String,
    value: Vec<u8>,
    expected: Vec<u8>,
}

impl Client {
    fn new(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let replies = BufReader::with_capacity(64 * 1024, stream.try_clone()?);
        Ok(Self { stream, replies, line: String::new(), value: Vec::new(), expected: Vec::new() })
    }

    fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        if self.replies.read_line(&mut self.line)? == 0 {
            return Err(broken("the server closed the connection".into()));
        }
        Ok(self.line.trim_end())
    }

    fn get(&mut self, key: &str) -> io::Result<Option<&[u8]>> {
        self.stream.write_all(format!("get {key}\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let length = line.strip_prefix("VALUE ").and_then(|line| line.split(' ').nth(2)?.parse::<usize>().ok());
        let length = length.ok_or_else(|| broken(format!("a get was answered with {line:?}")))?;
        self.value.resize(length + b"\r\nEND\r\n".len(), 0);
        self.replies.read_exact(&mut self.value)?;
        if !self.value.ends_with(b"\r\nEND\r\n") {
            return Err(broken(format!("the value of {key} does not end where it should")));
        }
        Ok(Some(&self.value[..length]))
    }

    fn get_and_check(&mut self, args: &Args, n: u64) -> io::Result<bool> {
        let mut expected = std::mem::take(&mut self.expected);
        expected.clear();
        fill(n, length(args, n), &mut expected);
        let key = key(args, n);
        let hit = match self.get(&key)? {
            Some(value) if value != expected => {
                return Err(broken(format!("the value of {key} is not the written one")))
            }
            value => value.is_some(),
        };
        self.expected = expected;
        Ok(hit)
    }

    fn stats(&mut self) -> io::Result<Vec<(String, String)>> {
        self.stream.write_all(b"stats\r\n")?;
        let mut stats = Vec::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(stats);
            }
            let mut words = line.split(' ').skip(1).map(str::to_owned);
            stats.extend(words.next().zip(words.next()));
        }
    }
}

// === small ===

/// One step of splitmix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

fn percent(hits: u64, misses: u64) -> f64 {
    100.0 * hits as f64 / (hits + misses).max(1) as f64
}

fn broken(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(broken("a thread panicked".into())))
}
