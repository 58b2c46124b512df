//! What was counted, and how it is shown: memcached's own field names where it has one.
//!
//! Each connection counts in a [`Tally`] of its own and adds it to the [`Counters`] of all when it writes its replies out. So a
//! `get` touches no line that another core writes, and whoever reads a reply finds its command counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_utils::CachePadded;

use crate::reply::Output;
use crate::server::Server;

macro_rules! counters {
    ($($counter:ident $name:literal,)*) => {
        /// One thing that is counted.
        #[derive(Clone, Copy, Debug)]
        pub enum Counter {
            $($counter,)*
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    CmdGet "cmd_get",
    CmdSet "cmd_set",
    CmdFlush "cmd_flush",
    CmdTouch "cmd_touch",
    CmdMeta "cmd_meta",
    GetHits "get_hits",
    GetMisses "get_misses",
    DeleteMisses "delete_misses",
    DeleteHits "delete_hits",
    IncrMisses "incr_misses",
    IncrHits "incr_hits",
    DecrMisses "decr_misses",
    DecrHits "decr_hits",
    CasMisses "cas_misses",
    CasHits "cas_hits",
    CasBadval "cas_badval",
    TouchHits "touch_hits",
    TouchMisses "touch_misses",
    AuthCmds "auth_cmds",
    AuthErrors "auth_errors",
    StoreTooLarge "store_too_large",
    StoreNoMemory "store_no_memory",
    BytesRead "bytes_read",
    BytesWritten "bytes_written",
    TotalConnections "total_connections",
    RejectedConnections "rejected_connections",
}

/// Threads that count without a line that another writes; more of them share.
const STRIPES: usize = 16;

/// The server's counters, a part of them for each thread.
#[derive(Debug, Default)]
pub struct Counters([CachePadded<Stripe>; STRIPES]);

type Stripe = [AtomicU64; NAMES.len()];

/// Numbers the threads that count.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Relaxed: only that few threads have the same matters.
    static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// One connection's counts since it last wrote.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [u64; NAMES.len()],
    /// A bit for each that is not 0.
    counted: u32,
}

const _: () = assert!(NAMES.len() <= u32::BITS as usize);

impl Counters {
    /// Adds one.
    pub fn count(&self, counter: Counter) {
        // Relaxed: a tally; nothing is read by its light.
        self.stripe()[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what a connection has counted.
    pub fn add(&self, tally: &mut Tally) {
        let stripe = self.stripe();
        while tally.counted != 0 {
            let counter = tally.counted.trailing_zeros() as usize;
            tally.counted &= tally.counted - 1;
            // Relaxed: as in `count`.
            stripe[counter].fetch_add(std::mem::take(&mut tally.counts[counter]), Ordering::Relaxed);
        }
    }

    fn stripe(&self) -> &Stripe {
        &self.0[STRIPE.with(|stripe| *stripe)]
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.sum(counter as usize)
    }

    fn sum(&self, counter: usize) -> u64 {
        // Relaxed: as in `count`.
        self.0.iter().map(|stripe| stripe[counter].load(Ordering::Relaxed)).sum()
    }

    fn reset(&self) {
        for counter in self.0.iter().flat_map(|stripe| stripe.iter()) {
            // Relaxed: as in `count`.
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().enumerate().map(|(counter, name)| (*name, self.sum(counter)))
    }
}

impl Tally {
    /// Adds one.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter as usize] += amount;
        self.counted |= 1 << counter as usize;
    }
}

/// `stats`
pub fn general(server: &Server, out: &mut Output) {
    let totals = server.store.totals();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stat(out, "pid", std::process::id());
    stat(out, "uptime", server.started.elapsed().as_secs());
    stat(out, "time", unix.as_secs());
    stat(out, "version", crate::VERSION);
    stat(out, "pointer_size", usize::BITS);
    stat(out, "max_connections", server.settings.connections_max);
    stat(out, "curr_connections", server.connections());
    for (name, count) in server.counters.all() {
        stat(out, name, count);
    }
    stat(out, "get_expired", totals.expired);
    stat(out, "limit_maxbytes", server.store.budget().get());
    stat(out, "accepting_conns", 1);
    stat(out, "threads", server.settings.threads);
    stat(out, "bytes", totals.bytes);
    stat(out, "curr_items", totals.items);
    stat(out, "total_items", totals.total_items);
    stat(out, "evictions", totals.evictions);
    out.line("END");
}

/// `stats settings`
pub fn settings(server: &Server, out: &mut Output) {
    let settings = &server.settings;
    let addresses: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
    stat(out, "maxbytes", server.store.budget().get());
    stat(out, "maxconns", settings.connections_max);
    stat(out, "tcpport", server.addresses.first().map_or(0, |address| address.port()));
    stat(out, "udpport", 0);
    stat(out, "inter", addresses.join(","));
    stat(out, "verbosity", server.verbosity());
    stat(out, "evictions", if settings.evict { "on" } else { "off" });
    stat(out, "num_threads", settings.threads);
    stat(out, "stat_key_prefix", char::from(settings.delimiter));
    stat(out, "detail_enabled", if server.prefixes.is_on() { "yes" } else { "no" });
    stat(out, "cas_enabled", "yes");
    stat(out, "binding_protocol", "ascii");
    stat(out, "auth_enabled_sasl", "no");
    stat(out, "auth_enabled_ascii", if settings.users.is_some() { "yes" } else { "no" });
    stat(out, "item_size_max", settings.item_bytes_max);
    stat(out, "maxconns_fast", "yes");
    stat(out, "flush_enabled", "yes");
    stat(out, "dump_enabled", "no");
    out.line("END");
}

/// `stats shrinkers`: who can give memory back, how much of it there is, and what they did so far.
pub fn shrinkers(server: &Server, out: &mut Output) {
    let stats = server.store.runtime().registry().survey();
    for shrinker in &stats.shrinkers {
        let name = shrinker.full_name();
        let pairs = || stats.pairs.iter().filter(|pair| pair.shrinker == shrinker.id);
        for (field, value) in [
            ("objects", pairs().map(|pair| pair.count.unwrap_or(0)).sum()),
            ("live_pairs", pairs().count() as u64),
            ("callbacks", shrinker.callbacks),
            ("requested", shrinker.requested),
            ("scanned", shrinker.scanned),
            ("freed", shrinker.freed),
            ("deferred", shrinker.deferred),
            ("owed", pairs().map(|pair| pair.owed).sum()),
            ("panics", shrinker.panics),
            ("time_us", shrinker.time_ns / 1000),
        ] {
            stat(out, &format!("{name}:{field}"), value);
        }
        match shrinker.last_run_ns {
            Some(then) => stat(out, &format!("{name}:last_run_ms_ago"), stats.now_ns.saturating_sub(then) / 1_000_000),
            None => stat(out, &format!("{name}:last_run_ms_ago"), "never"),
        }
    }
    out.line("END");
}

/// `stats reclaim`: what the background did, and what it costs to know who holds something.
pub fn reclaim(server: &Server, out: &mut Output) {
    let stats = server.store.runtime().stats();
    stat(out, "bytes", stats.usage.get());
    stat(out, "limit_maxbytes", stats.budget.get());
    stat(out, "arriving_bytes", server.arrivals.bytes().get());
    stat(out, "groups", stats.groups);
    stat(out, "live_pairs", stats.registry.live_pairs);
    stat(out, "live_groups", stats.registry.live_groups);
    stat(out, "map_bytes", stats.registry.map_bytes.get());
    for node in &stats.reclaimers {
        for (field, value) in [
            ("wakeups", node.wakeups),
            ("steps", node.steps),
            ("freed", node.freed),
            ("exhausted", node.exhausted),
            ("pinned", u64::from(node.pinned)),
        ] {
            stat(out, &format!("node{}:{field}", node.node.index()), value);
        }
    }
    out.line("END");
}

/// `stats reset`: the counters, not what the cache holds.
pub fn reset(server: &Server, out: &mut Output) {
    server.counters.reset();
    out.line("RESET");
}

/// One line.
pub fn stat(out: &mut Output, name: &str, value: impl std::fmt::Display) {
    out.format(format_args!("STAT {name} {value}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_adds_up_once() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES + 3 {
                scope.spawn(|| {
                    let mut tally = Tally::default();
                    tally.count(Counter::CmdGet);
                    tally.add(Counter::RejectedConnections, 5);
                    counters.add(&mut tally);
                    counters.add(&mut tally);
                    tally.count(Counter::CmdGet);
                    counters.add(&mut tally);
                    counters.count(Counter::CmdSet);
                });
            }
        });
        let threads = STRIPES as u64 + 3;
        let counted: Vec<_> = counters.all().filter(|(_, count)| *count > 0).collect();
        let expected = [("cmd_get", 2 * threads), ("cmd_set", threads), ("rejected_connections", 5 * threads)];
        assert_eq!(counted, expected);
        assert_eq!(counters.get(Counter::CmdGet), 2 * threads);
        counters.reset();
        assert!(counters.all().all(|(_, count)| count == 0));
    }
}
