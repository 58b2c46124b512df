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
//! Before the timed part every key is written once, in an order that has nothing to do with the
//! requests; then `--warm-up` requests for each key fill the server with what it would hold in
//! steady use. Prints `name value` lines, which `ci/against-memcached.sh` compares.
//!
//! A change must ensure that it speaks only the classic commands, so that any memcached can be
//! measured; and that what a server holds after the fill does not decide the hits.

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
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
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
    /// Requests for each key before the timed part, with the same shares of gets and sets
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(..=1000))]
    warm_up: u64,
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

/// The most requests that a connection sends together in the warm-up, which is not timed.
const WARM_UP_DEPTH_MAX: u64 = 16;

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
    let bar = progress::bar(3, false);
    bar.set_message("filling");
    all(&fill)?;
    bar.inc(1);
    bar.set_message("warming up");
    all(&warm_up)?;
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

/// Sends a connection's share of the requests of the warm-up, none of which is measured.
fn warm_up(args: &Args, number: u64) -> io::Result<Seen> {
    let share = (args.keys * args.warm_up).div_ceil(args.connections);
    let depth = (open_loop::outstanding_max(args) as u64).min(WARM_UP_DEPTH_MAX);
    // Not the seed of a timed part: its requests would all be known to the server.
    let workload = Workload::new(args, args.connections + number);
    closed_loop(args, number, workload, depth, |_, seen| seen.gets + seen.sets < share)
}

/// Sends requests on one connection until the time is over, and records their latencies.
fn load(args: &Args, number: u64) -> io::Result<Seen> {
    let end = Instant::now() + Duration::from_secs(args.seconds);
    closed_loop(args, number, Workload::new(args, number), args.depth, |now, _| now < end)
}

/// Sends the next `depth` requests after the replies to the last ones, while `goes_on` returns true
/// for the time and the results so far.
fn closed_loop(
    args: &Args,
    number: u64,
    mut workload: Workload<'_>,
    depth: u64,
    goes_on: impl Fn(Instant, &Seen) -> bool,
) -> io::Result<Seen> {
    let mut client = Client::new(args, number)?;
    let mut seen = Seen::default();
    let mut now = Instant::now();
    let mut sent = Vec::new();
    while goes_on(now, &seen) {
        for _ in 0..depth {
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
    /// Each `seed` gives a sequence of its own.
    fn new(args: &'a Args, seed: u64) -> Self {
        Self { args, random: Random(seed + 1), missed: VecDeque::new() }
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
        let rank = (((keys + 1) as f64).powf(self.uniform()) as u64 - 1).min(keys - 1);
        key_of_rank(rank, keys)
    }
}

/// Returns the key that only `rank` other keys exceed in popularity: a permutation of the numbers
/// below `keys`, in which the popular keys are spread over all numbers. Keys are written in
/// ascending order; if the popular ones came first, a server would begin with the most popular keys
/// or with the least popular ones, as it evicts the newest entries first or the oldest.
fn key_of_rank(rank: u64, keys: u64) -> u64 {
    /// A prime above all numbers of keys, so that no two ranks have the same key.
    const SPREAD: u64 = 0x9E37_79B1_85EB_CA87;
    (u128::from(rank) * u128::from(SPREAD) % u128::from(keys)) as u64
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn half_of_the_requests_are_for_the_half_of_the_keys_that_is_written_first() {
        // Those of `ci/against-memcached.sh` with `-m 64`, the default, and two more.
        for keys in [32_736, 671_088, 1_000_000, 1_000, 1 << 20] {
            let mut random = Random(1);
            let first = (0..100_000).filter(|_| random.popular(keys) < keys / 2).count();
            assert!((30_000..70_000).contains(&first), "{first} of 100,000 requests, {keys} keys");
        }
    }

    #[test]
    fn each_rank_has_a_key_of_its_own() {
        for keys in [1, 2, 97, 1_000, 32_736, 1 << 16] {
            let mut ranked: Vec<u64> = (0..keys).map(|rank| key_of_rank(rank, keys)).collect();
            ranked.sort_unstable();
            assert!(ranked.into_iter().eq(0..keys), "{keys} keys");
        }
    }

    /// Runs `work` on a connection to a server that has no key. Returns its results, and the keys
    /// of its gets.
    fn gets_of(flags: &[&str], work: fn(&Args, u64) -> io::Result<Seen>) -> (Seen, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let args = Args::parse_from(["cache_bench", &address].into_iter().chain(flags.iter().copied()));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut keys = Vec::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(line) = lines.next() {
                let line = line.unwrap();
                match line.strip_prefix("get ") {
                    Some(key) => {
                        keys.push(key.to_owned());
                        stream.write_all(b"END\r\n").unwrap();
                    }
                    None => {
                        lines.next().unwrap().unwrap();
                        stream.write_all(b"STORED\r\n").unwrap();
                    }
                }
            }
            keys
        });
        let seen = work(&args, 0).unwrap();
        (seen, server.join().unwrap())
    }

    #[test]
    fn the_warm_up_has_its_share_of_requests_and_not_those_of_the_timed_part() {
        let flags = ["--keys", "1000", "--connections", "4", "--warm-up", "8", "--seconds", "1"];
        let (seen, before) = gets_of(&flags, warm_up);
        assert_eq!(seen.gets + seen.sets, 2_000);
        let (_, timed) = gets_of(&flags, load);
        let length = before.len().min(timed.len()).min(100);
        assert_ne!(before[..length], timed[..length]);
    }
}
