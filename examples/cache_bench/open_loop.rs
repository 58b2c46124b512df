//! The open loop: requests are sent at random times, at a given rate, whether or not earlier ones
//! have been answered.
//!
//! The times of a connection are a Poisson process, the same for every server. A latency is counted
//! from the intended time of its request, so the wait behind a slow reply is part of it (without
//! that part, "coordinated omission"). A request whose intended time has come is sent although
//! replies are outstanding, up to [`outstanding_max`]; the connection answers in order.
//!
//! No thread spins, for a spinning thread would take the server's processors. Each waits in
//! `ppoll` for a reply or the next intended time, whichever is first. The delay from the intended
//! to the actual send is part of the latency and is printed, `send_delay_p50_us` and
//! `send_delay_p99_us`. On Linux it is the wait for a processor and some us for the timer
//! ([`set_timer_slack`]): with 2 processors shared with other programs, the median was 9 to 37 us.
//! A median above 60 us shows that the loader has too little processor time for the rate.
//!
//! A change must ensure that every request with an intended time in the timed part adds one
//! latency, even if it was never sent: otherwise the worst are left out.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::{nanoseconds, Args, Client, Random, Seen, Workload, BATCH_BYTES_MAX};

/// The rate counts as held if at most this share of the requests is left at the end, in percent.
pub const BACKLOG_PERCENT_MAX: f64 = 1.0;

/// Sends requests on one connection at its share of `rate`, and records their latencies.
pub fn load(args: &Args, number: u64, rate: u64) -> io::Result<Seen> {
    set_timer_slack()?;
    let mut client = Client::new(args, number)?;
    let mut workload = Workload::new(args, number);
    let mut arrivals = Arrivals::new(rate as f64 / args.connections as f64, number);
    let mut outstanding = VecDeque::new();
    let mut seen = Seen::default();
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds);
    let mut due = start + arrivals.gap();
    loop {
        let now = Instant::now();
        while due <= now && due < end && outstanding.len() < outstanding_max(args) {
            outstanding.push_back((workload.add_next(&mut client)?, due));
            seen.send_delays.push(nanoseconds(now - due));
            due += arrivals.gap();
        }
        client.send()?;
        if now >= end {
            break;
        }
        // Of a full connection, the next request waits for a reply.
        let wake = if outstanding.len() < outstanding_max(args) { due.min(end) } else { end };
        if !wait_for_reply(&client, wake)? {
            continue;
        }
        loop {
            let (operation, due) = outstanding.pop_front().ok_or(io::ErrorKind::UnexpectedEof)?;
            workload.receive(operation, &mut client, &mut seen)?;
            seen.times.push(nanoseconds(due.elapsed()));
            if client.replies.buffer().is_empty() {
                break;
            }
        }
    }
    seen.backlog = outstanding.len() as u64;
    for (operation, due) in outstanding {
        workload.receive(operation, &mut client, &mut seen)?;
        seen.times.push(nanoseconds(due.elapsed()));
    }
    // A full connection has left these requests unsent: their latency is at least this.
    while due < end {
        seen.backlog += 1;
        seen.times.push(nanoseconds(end - due));
        due += arrivals.gap();
    }
    Ok(seen)
}

/// Returns the most requests of a connection without a reply. As with `--depth`, client and server
/// might otherwise each wait for the other to read.
fn outstanding_max(args: &Args) -> usize {
    (BATCH_BYTES_MAX / (args.value_bytes as u64).max(64)).max(1) as usize
}

/// Waits for a reply, at most until `wake`; returns whether there is one.
fn wait_for_reply(client: &Client, wake: Instant) -> io::Result<bool> {
    let timeout = Timespec::try_from(wake.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(client.replies.get_ref(), PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(why) => Err(why.into()),
    }
}

/// Makes the timers of this thread exact: by default Linux may delay each by 50 us.
fn set_timer_slack() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    Ok(())
}

/// A Poisson process: the times between the requests of one connection.
struct Arrivals {
    random: Random,
    mean: f64,
}

impl Arrivals {
    fn new(per_second: f64, number: u64) -> Self {
        // Multiplied: the first numbers of seeds that are close to each other are so as well.
        Self { random: Random((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)), mean: 1.0 / per_second }
    }

    fn gap(&mut self) -> Duration {
        Duration::from_secs_f64(-self.mean * (1.0 - self.random.uniform()).ln())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use clap::Parser;

    use super::*;

    /// Runs the load for a second, at 400 requests a second, on one connection to a server that
    /// waits for `pause(n)` before its reply to request `n`.
    fn seen_with(pause: fn(u64) -> Duration) -> Seen {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let flags = ["--rate", "400", "--connections", "1", "--seconds", "1", "--sets", "0", "--value-bytes", "5"];
        let args = Args::parse_from(["cache_bench", &address].into_iter().chain(flags));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (n, line) in (0..).zip(BufReader::new(stream.try_clone().unwrap()).lines()) {
                let key = line.unwrap().replace("get ", "");
                thread::sleep(pause(n));
                write!(stream, "VALUE {key} 0 5\r\nvalue\r\nEND\r\n").unwrap();
            }
        });
        let seen = load(&args, 0, args.rate.unwrap()).unwrap();
        server.join().unwrap();
        seen
    }

    #[test]
    fn a_pause_of_the_server_delays_all_requests_that_were_due_in_it() {
        let seen = seen_with(|n| Duration::from_millis(if n == 100 { 300 } else { 0 }));
        assert_eq!(seen.times.len() as u64, seen.gets);
        // About 120 requests were due in the pause, 80 of them 100 ms before its end.
        let slow = seen.times.iter().filter(|time| **time >= 100_000_000).count();
        assert!(slow >= 40, "{slow} latencies of 100 ms");
    }

    #[test]
    fn a_rate_above_the_servers_leaves_a_backlog() {
        let seen = seen_with(|_| Duration::from_millis(5));
        // The server answers at most 200 of about 400 in the second.
        assert!(seen.backlog >= 100, "a backlog of {} requests", seen.backlog);
    }

    #[test]
    fn gaps_have_the_mean_of_the_rate() {
        for number in 0..16 {
            let mut arrivals = Arrivals::new(1000.0, number);
            let seconds: f64 = (0..100_000).map(|_| arrivals.gap().as_secs_f64()).sum();
            // The standard deviation of the sum is 0.32 s.
            assert!((seconds - 100.0).abs() < 2.0, "{seconds} s for 100 s of requests");
        }
    }

    #[test]
    fn a_bad_rate_is_refused() {
        let error_of = |flags: &[&str]| {
            let flags = ["cache_bench"].iter().chain(flags);
            Args::try_parse_from(flags).unwrap_err().to_string()
        };
        assert!(error_of(&["--rate", "0"]).contains("0 is not in 1..=10000000"));
        assert!(error_of(&["--rate", "fast"]).contains("invalid digit"));
        assert!(error_of(&["--rate", "5", "--depth", "2"]).contains("cannot be used with"));
    }
}
