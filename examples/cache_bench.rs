//! A steady load for `lowwater-server` or any other memcached: gets and sets of one size over many
//! connections, and their latency.
//!
//! Every connection sends a request, or `--depth` requests together, waits for the replies, and
//! sends the next. So the operations per second follow from the latency, which is that of all
//! requests that were sent together. With `--rate`, requests are sent at that rate instead (see
//! [`open_loop`]), and a line on stderr reports a rate that was not held.
//!
//! Keys follow Zipf's law, the same ones in the same order for every server. A get that misses is
//! followed by a set of its key, as in a cache; these sets come on top of the share `--sets`.
//! Before the timed part every key is written once. Prints `name value` lines, which
//! `ci/against-memcached.sh` compares.
//!
//! A change must ensure that it speaks only the classic commands, so that any memcached can be
//! measured.

#![forbid(unsafe_code)]

#[path = "cache_bench/open_loop.rs"]
mod open_loop;
#[path = "progress/mod.rs"]
mod progress;

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

/// Loads a memcached steadily and prints the results
#[derive(Debug, Parser)]
struct Args {
    /// The server
    #[arg(default_value = "127.0.0.1:11211")]
    address: String,
    /// Connections, each with a thread here
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Keys in all
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Sets per hundred operations, not counting the set after each miss
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    sets: u64,
    /// Requests that a connection sends together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    depth: u64,
    /// Operations a second, of all connections, sent at random times (by default, each connection
    /// sends the next request after the reply)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000), conflicts_with = "depth")]
    rate: Option<u64>,
    /// Drives all connections by one thread that never sleeps, on a processor of its own
    #[arg(long, requires = "rate")]
    spin: bool,
    /// Seconds of the timed part
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=86_400))]
    seconds: u64,
}

#[cfg(test)]
#[test]
fn a_time_beyond_a_day_is_refused() {
    for (seconds, is_accepted) in [("86400", true), ("86401", false), ("18446744073709551615", false)] {
        assert_eq!(Args::try_parse_from(["cache_bench", "--seconds", seconds]).is_ok(), is_accepted, "{seconds}");
    }
}

/// The most bytes of values that a connection sends together: with more, client and server might
/// each wait for the other to read.
const BATCH_BYTES_MAX: u64 = 256 * 1024;

/// The results of one connection.
#[derive(Debug, Default)]
struct Seen {
    gets: u64,
    hits: u64,
    sets: u64,
    refused: u64,
    /// Latencies of requests that were sent together, in ns.
    times: Vec<u32>,
    /// Times from the intended to the actual send, in ns; of the open loop only.
    send_delays: Vec<u32>,
    /// Requests due but not answered at the end of the timed part; of the open loop only.
    backlog: u64,
}

/// An operation that was sent.
enum Sent {
    Get { key: u64 },
    Set,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    if args.depth > 1 && args.depth.saturating_mul(args.value_bytes as u64) > BATCH_BYTES_MAX {
        let why = format!(
            "--depth {} with --value-bytes {}: more than {BATCH_BYTES_MAX} bytes together",
            args.depth, args.value_bytes
        );
        return Err(io::Error::other(why));
    }
    let all = |work: &(dyn Fn(&Args, u64) -> io::Result<Seen> + Sync)| -> io::Result<Vec<Seen>> {
        let args = &args;
        thread::scope(|scope| {
            let running: Vec<_> = (0..args.connections).map(|number| scope.spawn(move || work(args, number))).collect();
            running.into_iter().map(|thread| thread.join().expect("a client's thread does not panic")).collect()
        })
    };
    let bar = progress::bar(2, false);
    bar.set_message("filling");
    all(&fill)?;
    bar.inc(1);
    bar.set_message(format!("measuring for {} s", args.seconds));
    let mut control = Client::new(&args, 0)?;
    let (busy, started) = (control.processor_seconds()?, Instant::now());
    let seen = match args.rate {
        Some(rate) if args.spin => open_loop::load_all(&args, rate)?,
        Some(rate) => all(&|args, number| open_loop::load(args, number, rate))?,
        None => all(&load)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let busy = control.processor_seconds()? - busy;
    bar.finish_and_clear();

    let sum = |figure: fn(&Seen) -> u64| seen.iter().map(figure).sum::<u64>();
    let operations = sum(|seen| seen.gets + seen.sets);
    println!("operations_per_second {:.0}", operations as f64 / seconds);
    println!("processor_us_per_operation {:.3}", busy * 1e6 / operations.max(1) as f64);
    let times = sorted(seen.iter().map(|seen| &seen.times));
    println!("p50_us {:.1}", quantile_us(&times, 0.5));
    println!("p99_us {:.1}", quantile_us(&times, 0.99));
    println!("p999_us {:.1}", quantile_us(&times, 0.999));
    println!("hit_percent {:.2}", 100.0 * sum(|seen| seen.hits) as f64 / sum(|seen| seen.gets).max(1) as f64);
    println!("sets {}", sum(|seen| seen.sets));
    println!("refused {}", sum(|seen| seen.refused));
    println!("items {}", control.stats()?.get("curr_items").map_or("NaN", String::as_str));
    if let Some(rate) = args.rate {
        let delays = sorted(seen.iter().map(|seen| &seen.send_delays));
        let backlog = 100.0 * sum(|seen| seen.backlog) as f64 / times.len().max(1) as f64;
        println!("rate {rate}");
        println!("send_delay_p50_us {:.1}", quantile_us(&delays, 0.5));
        println!("send_delay_p99_us {:.1}", quantile_us(&delays, 0.99));
        println!("backlog_percent {backlog:.2}");
        if backlog > open_loop::BACKLOG_PERCENT_MAX {
            eprintln!(
                "cache_bench: the rate of {rate} a second was not held: {backlog:.1} % of the requests had no reply \
                 at the end, {:.0} a second had one",
                operations as f64 / seconds
            );
        }
    }
    Ok(())
}

/// Merges the times of all connections, in ascending order.
fn sorted<'a>(times: impl Iterator<Item = &'a Vec<u32>>) -> Vec<u32> {
    let mut all: Vec<u32> = times.flatten().copied().collect();
    all.sort_unstable();
    all
}

/// Returns the quantile of sorted times in ns, in us; NaN if there are none.
fn quantile_us(times: &[u32], part: f64) -> f64 {
    let last = times.len().saturating_sub(1);
    times.get((last as f64 * part) as usize).map_or(f64::NAN, |ns| f64::from(*ns) / 1e3)
}

/// Writes a connection's share of the keys.
fn fill(args: &Args, number: u64) -> io::Result<Seen> {
    let mut client = Client::new(args, number)?;
    for key in (number..args.keys).step_by(args.connections as usize) {
        client.add_set(key)?;
        client.send()?;
        client.stored()?;
    }
    Ok(Seen::default())
}

/// Sends requests on one connection until the time is over, and records their latencies.
fn load(args: &Args, number: u64) -> io::Result<Seen> {
    let mut client = Client::new(args, number)?;
    let mut workload = Workload::new(args, number);
    let mut seen = Seen::default();
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut now = Instant::now();
    let mut sent = Vec::new();
    while now < end {
        for _ in 0..args.depth {
            sent.push(workload.add_next(&mut client)?);
        }
        client.send()?;
        for operation in sent.drain(..) {
            workload.receive(operation, &mut client, &mut seen)?;
        }
        let then = std::mem::replace(&mut now, Instant::now());
        seen.times.push(nanoseconds(now - then));
    }
    Ok(seen)
}

/// Returns the time in ns; 4.29 s, the largest value, stands for all longer times.
fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// The operations of one connection.
struct Workload<'a> {
    args: &'a Args,
    random: Random,
    /// Keys that a get has missed, and that are to be set.
    missed: VecDeque<u64>,
}

impl<'a> Workload<'a> {
    fn new(args: &'a Args, number: u64) -> Self {
        Self { args, random: Random(number + 1), missed: VecDeque::new() }
    }

    /// Adds the next operation to the requests that are sent next.
    fn add_next(&mut self, client: &mut Client) -> io::Result<Sent> {
        let Self { args, random, missed } = self;
        let set = missed.pop_front();
        let set = set.or_else(|| (random.next() % 100 < args.sets).then(|| random.popular(args.keys)));
        match set {
            Some(key) => client.add_set(key).map(|()| Sent::Set),
            None => {
                let key = random.popular(args.keys);
                client.add_get(key).map(|()| Sent::Get { key })
            }
        }
    }

    /// Reads the reply to the operation and counts it.
    fn receive(&mut self, operation: Sent, client: &mut Client, seen: &mut Seen) -> io::Result<()> {
        match operation {
            Sent::Set => {
                seen.sets += 1;
                seen.refused += u64::from(!client.stored()?);
            }
            Sent::Get { key } => {
                seen.gets += 1;
                match client.found()? {
                    true => seen.hits += 1,
                    false => self.missed.push_back(key),
                }
            }
        }
        Ok(())
    }
}

/// A connection.
struct Client {
    replies: BufReader<TcpStream>,
    request: Vec<u8>,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn new(args: &Args, number: u64) -> io::Result<Self> {
        let stream = TcpStream::connect(&args.address)?;
        stream.set_nodelay(true)?;
        let mut random = Random(number + 7);
        let value = (0..args.value_bytes).map(|_| b'a' + (random.next() % 26) as u8).collect();
        Ok(Self { replies: BufReader::new(stream), request: Vec::new(), line: Vec::new(), value })
    }

    /// Adds a set to the requests that are sent next.
    fn add_set(&mut self, key: u64) -> io::Result<()> {
        write!(self.request, "set key:{key} 0 0 {}\r\n", self.value.len())?;
        self.request.extend_from_slice(&self.value);
        self.request.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Reads the reply to a set; false if the server refused it.
    fn stored(&mut self) -> io::Result<bool> {
        match self.reply()? {
            b"STORED" => Ok(true),
            line if line.starts_with(b"SERVER_ERROR") => Ok(false),
            line => Err(unexpected(line)),
        }
    }

    /// Adds a get to the requests that are sent next.
    fn add_get(&mut self, key: u64) -> io::Result<()> {
        write!(self.request, "get key:{key}\r\n")
    }

    /// Reads the reply to a get; returns whether the key was found.
    fn found(&mut self) -> io::Result<bool> {
        match self.reply()? {
            b"END" => return Ok(false),
            line if line.starts_with(b"VALUE ") => {}
            line => return Err(unexpected(line)),
        }
        let mut rest = vec![0; self.value.len() + b"\r\nEND\r\n".len()];
        self.replies.read_exact(&mut rest)?;
        match rest.ends_with(b"\r\nEND\r\n") {
            true => Ok(true),
            false => Err(unexpected(&rest)),
        }
    }

    /// Returns the processor time of the server's process, in seconds; NaN if it does not report
    /// that.
    fn processor_seconds(&mut self) -> io::Result<f64> {
        let stats = self.stats()?;
        let seconds = |name| stats.get(name).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        Ok(seconds("rusage_user") + seconds("rusage_system"))
    }

    fn stats(&mut self) -> io::Result<HashMap<String, String>> {
        self.request.extend_from_slice(b"stats\r\n");
        self.send()?;
        let mut stats = HashMap::new();
        loop {
            let line = String::from_utf8_lossy(self.reply()?).into_owned();
            if line == "END" {
                return Ok(stats);
            }
            let stat = line.strip_prefix("STAT ").and_then(|stat| stat.split_once(' '));
            let (name, value) = stat.ok_or_else(|| unexpected(line.as_bytes()))?;
            stats.insert(name.to_owned(), value.to_owned());
        }
    }

    fn send(&mut self) -> io::Result<()> {
        self.replies.get_mut().write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    fn reply(&mut self) -> io::Result<&[u8]> {
        self.line.clear();
        self.replies.read_until(b'\n', &mut self.line)?;
        let line = self.line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(line)
    }
}

fn unexpected(line: &[u8]) -> io::Error {
    io::Error::other(format!("the server said {:?}", String::from_utf8_lossy(line)))
}

/// xorshift64*: good enough to choose keys, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Returns a number from 0 to below 1.
    fn uniform(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 48) as f64
    }

    /// A key by Zipf's law with an exponent of 1, by the inverse of its integral.
    fn popular(&mut self, keys: u64) -> u64 {
        (((keys + 1) as f64).powf(self.uniform()) as u64 - 1).min(keys - 1)
    }
}
