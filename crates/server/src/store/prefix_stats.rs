//! `stats detail`: counts by prefix, while they are enabled. A key's prefix is the part before its
//! first delimiter.
//!
//! The command exists for tools that read memcached's `stats detail`; `stats tenants` always has
//! hits and misses, but no stores and deletes. Reads, stores and deletes are counted, those of meta
//! commands, too; memcached counts the classic commands only.
//!
//! A change must ensure that the number of prefixes stays bounded, since clients choose them.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dashmap::DashMap;
use parking_lot::Mutex;

/// Statistics by prefix.
#[doc(alias = "PREFIX_STATS")]
#[derive(Debug)]
pub struct PrefixStats {
    on: AtomicBool,
    delimiter: u8,
    prefixes_max: usize,
    counts: DashMap<Box<[u8]>, Counts>,
    /// The number of prefixes. The lock is held while one is added, so that threads do not exceed
    /// the maximum together.
    prefixes: Mutex<usize>,
}

/// Counts of one prefix.
#[derive(Debug, Default)]
struct Counts {
    gets: AtomicU64,
    hits: AtomicU64,
    sets: AtomicU64,
    deletes: AtomicU64,
}

/// The outcome of a command for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Hit,
    Miss,
    Set,
    Delete,
}

impl PrefixStats {
    /// Returns statistics that count `prefixes_max` prefixes at most.
    pub fn new(delimiter: u8, prefixes_max: usize) -> Self {
        let (on, counts, prefixes) = (AtomicBool::new(false), DashMap::new(), Mutex::new(0));
        Self { on, delimiter, prefixes_max, counts, prefixes }
    }

    /// Enables or disables counting; existing counts are kept.
    pub fn switch(&self, on: bool) {
        // Relaxed: a command that runs at the same time may be counted or not.
        self.on.store(on, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        // Relaxed: a command that runs at the same time may be counted or not.
        self.on.load(Ordering::Relaxed)
    }

    /// Counts a command for `key`, if counting is enabled and the key has a prefix: one of the
    /// first prefixes up to the maximum.
    #[inline]
    pub fn count(&self, key: &[u8], outcome: Outcome) {
        if self.is_on() {
            self.count_prefix(key, outcome);
        }
    }

    #[cold]
    fn count_prefix(&self, key: &[u8], outcome: Outcome) {
        let Some(length) = key.iter().position(|&b| b == self.delimiter) else { return };
        let prefix = &key[..length];
        if !self.counts.contains_key(prefix) {
            let mut prefixes = self.prefixes.lock();
            if *prefixes >= self.prefixes_max {
                return;
            }
            self.counts.entry(prefix.into()).or_insert_with(|| {
                *prefixes += 1;
                Counts::default()
            });
        }
        let Some(counts) = self.counts.get(prefix) else { return };
        // Relaxed: statistics that guard no other memory.
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Outcome::Hit => add(&counts.gets) + add(&counts.hits),
            Outcome::Miss => add(&counts.gets),
            Outcome::Set => add(&counts.sets),
            Outcome::Delete => add(&counts.deletes),
        };
    }

    /// Removes all counts.
    pub fn clear(&self) {
        let mut prefixes = self.prefixes.lock();
        self.counts.clear();
        *prefixes = 0;
    }

    /// Returns the first `count` lines of `stats detail dump` whose prefix is above `last`, sorted
    /// by prefix, each with its prefix; fewer if there are no more. O(all prefixes).
    ///
    /// In pages, so that a client that does not read its dump keeps no lines in memory. A prefix
    /// that exists throughout is in exactly one page.
    pub fn lines_after(&self, last: Option<&[u8]>, count: usize) -> Vec<(Box<[u8]>, String)> {
        // Relaxed: statistics that guard no other memory.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The lowest prefixes so far, the highest of them on top.
        let mut lowest: BinaryHeap<(Box<[u8]>, [u64; 4])> = BinaryHeap::new();
        for entry in self.counts.iter() {
            let prefix = entry.key();
            let is_above = last.is_none_or(|last| **prefix > *last);
            let has_room = lowest.len() < count;
            if is_above && (has_room || lowest.peek().is_some_and(|(highest, _)| prefix < highest)) {
                let Counts { gets, hits, sets, deletes } = entry.value();
                if !has_room {
                    lowest.pop();
                }
                lowest.push((prefix.clone(), [gets, hits, sets, deletes].map(read)));
            }
        }
        let line = |(prefix, [gets, hits, sets, deletes]): (Box<[u8]>, [u64; 4])| {
            let shown = prefix.escape_ascii();
            let line = format!("PREFIX {shown} get {gets} hit {hits} set {sets} del {deletes}");
            (prefix, line)
        };
        lowest.into_sorted_vec().into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIXES_MAX: usize = 2_000;

    fn lines(prefixes: &PrefixStats) -> Vec<String> {
        prefixes.lines_after(None, PREFIXES_MAX).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn threads_do_not_exceed_the_bound_together() {
        const THREADS: usize = 4;
        for round in 0..1_000 {
            let prefixes = PrefixStats::new(b':', PREFIXES_MAX);
            prefixes.switch(true);
            *prefixes.prefixes.lock() = PREFIXES_MAX - 1;
            let barrier = std::sync::Barrier::new(THREADS);
            std::thread::scope(|s| {
                for thread in 0..THREADS {
                    let (prefixes, barrier) = (&prefixes, &barrier);
                    s.spawn(move || {
                        barrier.wait();
                        prefixes.count(format!("{thread}:k").as_bytes(), Outcome::Set);
                    });
                }
            });
            assert_eq!(lines(&prefixes).len(), 1, "round {round}: only the first one fits");
        }
    }

    #[test]
    fn prefixes_count_while_it_is_on() {
        let prefixes = PrefixStats::new(b':', PREFIXES_MAX);
        prefixes.count(b"a:x", Outcome::Set);
        prefixes.switch(true);
        for (key, outcome) in
            [(&b"a:x"[..], Outcome::Hit), (b"a:y", Outcome::Miss), (b"b:", Outcome::Delete), (b"plain", Outcome::Set)]
        {
            prefixes.count(key, outcome);
        }
        prefixes.switch(false);
        prefixes.count(b"a:x", Outcome::Hit);
        assert_eq!(lines(&prefixes), ["PREFIX a get 2 hit 1 set 0 del 0", "PREFIX b get 0 hit 0 set 0 del 1"]);
    }

    #[test]
    fn pages_are_sorted_and_complete() {
        let prefixes = PrefixStats::new(b':', PREFIXES_MAX);
        prefixes.switch(true);
        let mut expected: Vec<Vec<u8>> = (0..1_000u32).map(|n| (n * 7 % 1_000).to_string().into_bytes()).collect();
        expected.extend([Vec::new(), b"\xff".to_vec(), b"\xff\xff".to_vec()]);
        for prefix in &expected {
            prefixes.count(&[prefix, &b":k"[..]].concat(), Outcome::Set);
        }
        expected.sort();
        for count in [1, 10, 17, 1_002, 1_003, 1_004] {
            let (mut found, mut last): (Vec<Vec<u8>>, Option<Box<[u8]>>) = (Vec::new(), None);
            loop {
                let page = prefixes.lines_after(last.as_deref(), count);
                assert_eq!(page.len(), count.min(expected.len() - found.len()), "pages of {count}");
                let Some((highest, _)) = page.last() else { break };
                last = Some(highest.clone());
                found.extend(page.into_iter().map(|(prefix, _)| prefix.into_vec()));
            }
            assert_eq!(found, expected, "pages of {count}");
        }
    }
}
