//! `stats detail`: counts by prefix, while they are switched on.
//!
//! memcached's own, for tools that read them; `stats tenants` tells the same and more, always.
//! Commands of every kind count here, there the classic ones only.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dashmap::DashMap;

use super::tenant::TENANTS_MAX;

/// Statistics by prefix.
#[doc(alias = "PREFIX_STATS")]
#[derive(Debug)]
pub struct PrefixStats {
    on: AtomicBool,
    delimiter: u8,
    counts: DashMap<Box<[u8]>, Counts>,
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
    pub fn new(delimiter: u8) -> Self {
        Self { on: AtomicBool::new(false), delimiter, counts: DashMap::new() }
    }

    /// Counts from now on, or no more; what was counted stays.
    pub fn switch(&self, on: bool) {
        // Relaxed: commands that run now may or may not count.
        self.on.store(on, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        // Relaxed: as above.
        self.on.load(Ordering::Relaxed)
    }

    /// Counts, if that is on and the key has a prefix. There are at most so many prefixes as
    /// tenants.
    pub fn count(&self, key: &[u8], outcome: Outcome) {
        if !self.is_on() {
            return;
        }
        let Some(length) = key.iter().position(|&b| b == self.delimiter) else { return };
        let prefix = &key[..length];
        if !self.counts.contains_key(prefix) {
            if self.counts.len() >= TENANTS_MAX {
                return;
            }
            self.counts.entry(prefix.into()).or_default();
        }
        let Some(counts) = self.counts.get(prefix) else { return };
        // Relaxed: tallies for people.
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Outcome::Hit => add(&counts.gets) + add(&counts.hits),
            Outcome::Miss => add(&counts.gets),
            Outcome::Set => add(&counts.sets),
            Outcome::Delete => add(&counts.deletes),
        };
    }

    /// The lines, by prefix.
    pub fn lines(&self) -> Vec<String> {
        // Relaxed: as in `count`.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let line = |prefix: &[u8], counts: &Counts| {
            let Counts { gets, hits, sets, deletes } = counts;
            let shown = prefix.escape_ascii();
            format!("PREFIX {shown} get {} hit {} set {} del {}", read(gets), read(hits), read(sets), read(deletes))
        };
        let mut lines: Vec<_> = self.counts.iter().map(|entry| line(entry.key(), entry.value())).collect();
        lines.sort();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_count_while_it_is_on() {
        let prefixes = PrefixStats::new(b':');
        prefixes.count(b"a:x", Outcome::Set);
        prefixes.switch(true);
        for (key, outcome) in
            [(&b"a:x"[..], Outcome::Hit), (b"a:y", Outcome::Miss), (b"b:", Outcome::Delete), (b"plain", Outcome::Set)]
        {
            prefixes.count(key, outcome);
        }
        prefixes.switch(false);
        prefixes.count(b"a:x", Outcome::Hit);
        assert_eq!(prefixes.lines(), ["PREFIX a get 2 hit 1 set 0 del 0", "PREFIX b get 0 hit 0 set 0 del 1"]);
    }
}
