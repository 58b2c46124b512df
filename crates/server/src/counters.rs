//! Counters of `stats`, with memcached's field names where it has one.
//!
//! Each connection counts in [`PendingCounts`] of its own, and adds them to the shared [`Counters`]
//! before it writes its replies. So commands that arrive together write the shared counters once,
//! and a client that has read a reply finds its command counted.
//!
//! A new counter is a line of `counters!`, which `stats` and `/metrics` then show, and of
//! `NOT_ALWAYS` if memcached has no such field; else `src/tests/compatibility/names.rs` has its
//! row. `PendingCounts::counted` needs a bit for each.

use lowwater_base::striped_counters::StripedCounters;
use lowwater_base::thread_slot;

macro_rules! counters {
    ($($counter:ident $name:literal,)*) => {
        /// A counter; its number is the index of its name in `NAMES`.
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
    IdleKicks "idle_kicks",
    ConnYields "conn_yields",
    RefusedRequests "refused_requests",
    DeniedCommands "denied_commands",
    SslHandshakeErrors "ssl_handshake_errors",
    SslNewSessions "ssl_new_sessions",
}

/// The names that memcached does not have, and those that it shows only with TLS. `/metrics` has
/// all of them; `stats`, whose lines tools parse, has those of TLS if TLS is on.
const NOT_ALWAYS: [&str; 4] = ["refused_requests", "denied_commands", "ssl_handshake_errors", "ssl_new_sessions"];

/// The server's counters, striped over threads.
#[doc(alias = "thread_stats")]
#[derive(Debug, Default)]
pub struct Counters(StripedCounters<{ NAMES.len() }>);

/// Counts of a connection that are not added to the [`Counters`] yet.
#[derive(Debug, Default)]
pub struct PendingCounts {
    counts: [u64; NAMES.len()],
    /// A bit for each count that is not 0.
    counted: u32,
}

const _: () = assert!(NAMES.len() <= u32::BITS as usize);

impl Counters {
    /// Adds one to `counter`, for an event that belongs to no [`PendingCounts`].
    pub fn count(&self, counter: Counter) {
        self.0.add(thread_slot::spread(), counter as usize, 1);
    }

    /// Adds a connection's pending counts, and sets them to 0.
    pub fn add(&self, counts: &mut PendingCounts) {
        let thread = thread_slot::spread();
        while counts.counted != 0 {
            let counter = counts.counted.trailing_zeros() as usize;
            counts.counted &= counts.counted - 1;
            self.0.add(thread, counter, std::mem::take(&mut counts.counts[counter]) as i64);
        }
    }

    /// Returns the value of `counter`.
    pub fn get(&self, counter: Counter) -> u64 {
        self.sum(counter as usize)
    }

    fn sum(&self, counter: usize) -> u64 {
        self.0.sum(counter) as u64
    }

    /// Sets all counters to 0.
    pub fn reset(&self) {
        self.0.reset();
    }

    /// Returns name and value of all counters that memcached has as well, without those of TLS.
    pub fn memcacheds(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.all().filter(|(name, _)| !NOT_ALWAYS.contains(name))
    }

    /// Returns name and value of all counters.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().enumerate().map(|(counter, name)| (*name, self.sum(counter)))
    }
}

impl PendingCounts {
    /// Adds one to `counter`.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `amount` to `counter`.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter as usize] += amount;
        self.counted |= 1 << counter as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            // More threads than the 16 stripes, so that some share one.
            for _ in 0..19 {
                scope.spawn(|| {
                    let mut counts = PendingCounts::default();
                    counts.count(Counter::CmdGet);
                    counts.add(Counter::RejectedConnections, 5);
                    counters.add(&mut counts);
                    counters.add(&mut counts);
                    counts.count(Counter::CmdGet);
                    counters.add(&mut counts);
                    counters.count(Counter::CmdSet);
                });
            }
        });
        let threads = 19_u64;
        let counted: Vec<_> = counters.all().filter(|(_, count)| *count > 0).collect();
        let expected = [("cmd_get", 2 * threads), ("cmd_set", threads), ("rejected_connections", 5 * threads)];
        assert_eq!(counted, expected);
        assert_eq!(counters.get(Counter::CmdGet), 2 * threads);
        counters.reset();
        assert!(counters.all().all(|(_, count)| count == 0));
    }
}
