//! The open loop: requests are sent at random times, at a given rate, whether or not earlier ones
//! have been answered.
//!
//! The times of a connection are a Poisson process, the same for every server. A latency is counted
//! from the intended time of its request, so the wait behind a slow reply is part of it (without
//! that part, "coordinated omission"). A request whose intended time has come is sent although
//! replies are outstanding, up to [`outstanding_max`]; the connection answers in order.
//!
//! Each connection has a thread that waits in `ppoll` for a reply or the next intended time,
//! whichever is first. The delay from the intended to the actual send is part of the latency and is
//! printed, `send_delay_p50_us` and `send_delay_p99_us`. On Linux it is the wait for a processor
//! and some us for the timer ([`set_timer_slack`]): with 2 processors shared with other programs,
//! the median was 9 to 37 us. A median above 60 us shows that the loader has too little processor
//! time for the rate.
//!
//! With `--spin` one thread drives all connections and never sleeps, so that the loader adds almost
//! no delay: for a loader with a processor of its own, since it would take the server's.
//!
//! A change must ensure that every request with an intended time in the timed part adds one
//! latency, even if it was never sent: otherwise the worst are left out.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::{nanoseconds, Args, Client, Random, Seen, Sent, Workload, BATCH_BYTES_MAX};

/// The rate counts as held if at most this share of the requests is left at the end, in percent.
pub const BACKLOG_PERCENT_MAX: f64 = 1.0;

/// Sends requests on one connection at its share of `rate`, and records their latencies.
pub fn load(args: &Args, number: u64, rate: u64) -> io::Result<Seen> {
    set_timer_slack()?;
    let mut connection = Connection::new(args, number, rate, Instant::now())?;
    while connection.send_due()? {
        if wait_for_reply(&connection.client, connection.wake())? {
            connection.receive()?;
        }
    }
    connection.finish()
}

/// As [`load`], on all connections by this thread, which never sleeps.
pub fn load_all(args: &Args, rate: u64) -> io::Result<Vec<Seen>> {
    let start = Instant::now();
    let all = (0..args.connections).map(|number| Connection::new(args, number, rate, start));
    let mut connections = all.collect::<io::Result<Vec<_>>>()?;
    loop {
        let mut is_over = false;
        for connection in &mut connections {
            is_over |= !connection.send_due()?;
        }
        if is_over {
            return connections.into_iter().map(Connection::finish).collect();
        }
        let descriptors = connections.iter().map(|connection| connection.client.replies.get_ref());
        let mut polled: Vec<_> = descriptors.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        if poll_until(&mut polled, None)? {
            let ready: Vec<_> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
                connection.receive()?;
            }
        }
    }
}

/// A connection whose requests are sent at random times.
struct Connection<'a> {
    args: &'a Args,
    client: Client,
    workload: Workload<'a>,
    arrivals: Arrivals,
    /// The requests without a reply, and the intended time of each.
    outstanding: VecDeque<(Sent, Instant)>,
    seen: Seen,
    /// The intended time of the next request.
    due: Instant,
    /// The end of the timed part.
    end: Instant,
}

impl<'a> Connection<'a> {
    fn new(args: &'a Args, number: u64, rate: u64, start: Instant) -> io::Result<Self> {
        let mut arrivals = Arrivals::new(rate as f64 / args.connections as f64, number);
        Ok(Self {
            args,
            client: Client::new(args, number)?,
            workload: Workload::new(args, number),
            due: start + arrivals.gap(),
            arrivals,
            outstanding: VecDeque::new(),
            seen: Seen::default(),
            end: start + Duration::from_secs(args.seconds),
        })
    }

    /// Sends the requests that are due. Returns false if the timed part is over.
    fn send_due(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        while self.due <= now && self.due < self.end && !self.is_full() {
            self.outstanding.push_back((self.workload.add_next(&mut self.client)?, self.due));
            self.seen.send_delays.push(nanoseconds(now - self.due));
            self.due += self.arrivals.gap();
        }
        self.client.send()?;
        Ok(now < self.end)
    }

    /// Returns the time of the next request. Of a full connection, it waits for a reply.
    fn wake(&self) -> Instant {
        match self.is_full() {
            true => self.end,
            false => self.due.min(self.end),
        }
    }

    fn is_full(&self) -> bool {
        self.outstanding.len() >= outstanding_max(self.args)
    }

    /// Receives the replies that have arrived, of which there is at least one.
    fn receive(&mut self) -> io::Result<()> {
        loop {
            let sent = self.outstanding.pop_front().ok_or(io::ErrorKind::UnexpectedEof)?;
            self.receive_one(sent)?;
            if self.client.replies.buffer().is_empty() {
                return Ok(());
            }
        }
    }

    /// Receives a reply, and counts it as part of the backlog if the timed part is over: this
    /// thread may have waited for a processor since its last look at the time.
    fn receive_one(&mut self, (operation, due): (Sent, Instant)) -> io::Result<()> {
        self.workload.receive(operation, &mut self.client, &mut self.seen)?;
        let now = Instant::now();
        self.seen.times.push(nanoseconds(now - due));
        self.seen.backlog += u64::from(now >= self.end);
        Ok(())
    }

    /// Receives the outstanding replies, and counts the requests that were never sent as part of
    /// the backlog.
    fn finish(mut self) -> io::Result<Seen> {
        while let Some(sent) = self.outstanding.pop_front() {
            self.receive_one(sent)?;
        }
        // A full connection has left these requests unsent: their latency is at least this.
        while self.due < self.end {
            self.seen.backlog += 1;
            self.seen.times.push(nanoseconds(self.end - self.due));
            self.due += self.arrivals.gap();
        }
        Ok(self.seen)
    }
}

/// Returns the most requests of a connection without a reply. As with `--depth`, client and server
/// might otherwise each wait for the other to read.
pub fn outstanding_max(args: &Args) -> usize {
    (BATCH_BYTES_MAX / (args.value_bytes as u64).max(64)).max(1) as usize
}

/// Waits for a reply, at most until `wake`; returns whether there is one.
fn wait_for_reply(client: &Client, wake: Instant) -> io::Result<bool> {
    poll_until(&mut [PollFd::new(client.replies.get_ref(), PollFlags::IN)], Some(wake))
}

/// Waits until one of the descriptors is ready, at most until `wake`; returns whether one is. Does
/// not wait without a time.
fn poll_until(descriptors: &mut [PollFd<'_>], wake: Option<Instant>) -> io::Result<bool> {
    let left = wake.map_or(Duration::ZERO, |wake| wake.saturating_duration_since(Instant::now()));
    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(descriptors, Some(&timeout)) {
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
    fn seen_with(pause: fn(u64) -> Duration, spins: bool) -> Seen {
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
        let rate = args.rate.unwrap();
        let seen = match spins {
            true => load_all(&args, rate).unwrap().remove(0),
            false => load(&args, 0, rate).unwrap(),
        };
        server.join().unwrap();
        seen
    }

    #[test]
    fn a_pause_of_the_server_delays_all_requests_that_were_due_in_it() {
        for spins in [false, true] {
            let seen = seen_with(|n| Duration::from_millis(if n == 100 { 300 } else { 0 }), spins);
            assert_eq!(seen.times.len() as u64, seen.gets);
            // About 120 requests were due in the pause, 80 of them 100 ms before its end.
            let slow = seen.times.iter().filter(|time| **time >= 100_000_000).count();
            assert!(slow >= 40, "{slow} latencies of 100 ms, spins: {spins}");
        }
    }

    #[test]
    fn a_rate_above_the_servers_leaves_a_backlog() {
        for spins in [false, true] {
            let seen = seen_with(|_| Duration::from_millis(5), spins);
            // The server answers at most 200 of about 400 in the second.
            assert!(seen.backlog >= 100, "a backlog of {} requests, spins: {spins}", seen.backlog);
        }
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
