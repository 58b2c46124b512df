//! Counters of `stats`, with memcached's own field names where it has one.
//!
//! Each connection counts in a [`PendingCounts`] of its own and adds it to the [`Counters`] of all
//! when it writes its replies out. So a `get` touches no line that another core writes, and whoever
//! reads a reply finds its command counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use lowwater_base::thread_slot;

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
#[doc(alias = "thread_stats")]
#[derive(Debug, Default)]
pub struct Counters([CachePadded<Stripe>; STRIPES]);

type Stripe = [AtomicU64; NAMES.len()];

/// Counts of one connection that are not yet added to the [`Counters`].
#[derive(Debug, Default)]
pub struct PendingCounts {
    counts: [u64; NAMES.len()],
    /// A bit for each that is not 0.
    counted: u32,
}

const _: () = assert!(NAMES.len() <= u32::BITS as usize);

impl Counters {
    /// Adds one.
    pub fn count(&self, counter: Counter) {
        // Relaxed: a statistic; nothing is read by its light.
        self.stripe()[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a connection's pending counts, which are 0 afterwards.
    pub fn add(&self, counts: &mut PendingCounts) {
        let stripe = self.stripe();
        while counts.counted != 0 {
            let counter = counts.counted.trailing_zeros() as usize;
            counts.counted &= counts.counted - 1;
            // Relaxed: as in `count`.
            stripe[counter].fetch_add(std::mem::take(&mut counts.counts[counter]), Ordering::Relaxed);
        }
    }

    fn stripe(&self) -> &Stripe {
        &self.0[thread_slot::spread() % STRIPES]
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.sum(counter as usize)
    }

    fn sum(&self, counter: usize) -> u64 {
        // Relaxed: as in `count`.
        self.0.iter().map(|stripe| stripe[counter].load(Ordering::Relaxed)).sum()
    }

    /// Sets all of them to 0.
    pub fn reset(&self) {
        for counter in self.0.iter().flat_map(|stripe| stripe.iter()) {
            // Relaxed: as in `count`.
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().enumerate().map(|(counter, name)| (*name, self.sum(counter)))
    }
}

impl PendingCounts {
    /// Adds one.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    pub fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter as usize] += amount;
        self.counted |= 1 << counter as usize;
    }
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
        let threads = STRIPES as u64 + 3;
        let counted: Vec<_> = counters.all().filter(|(_, count)| *count > 0).collect();
        let expected = [("cmd_get", 2 * threads), ("cmd_set", threads), ("rejected_connections", 5 * threads)];
        assert_eq!(counted, expected);
        assert_eq!(counters.get(Counter::CmdGet), 2 * threads);
        counters.reset();
        assert!(counters.all().all(|(_, count)| count == 0));
    }
}
