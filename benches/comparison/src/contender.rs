//! The trait of a measured cache, and the list of its implementations.
//!
//! Fairness is the aim: one key and value type, one hash, the settings that each library
//! recommends, and its own operation for a shrink. A new contender is a file in `contenders/`, and
//! its name in `contenders.rs`, in `runs!`, in `CONTENDERS` of `report/record.rs`, and in
//! `ci/comparison.sh`.
//!
//! A change of the trait must leave each contender its own fastest call.

use crate::report::progress;

/// A cache of `u64` to `u64`, built as its own documentation recommends, with the hash that all
/// share.
pub trait Contender: Sized + Send + Sync + 'static {
    /// The name in tables, and for `--only`.
    const NAME: &'static str;
    /// The bound that it supports.
    const KIND: Kind = Kind::Cache;
    /// Its own operation for shrinking during use, if it has one.
    const SHRINK: Option<&'static str> = None;

    /// Creates a cache that holds at most about `entries`.
    fn new(entries: usize) -> Self;

    /// As [`new`](Self::new), but holds as many entries as allowed at any time: for hit ratios.
    fn exact(entries: usize) -> Self {
        Self::new(entries)
    }

    /// Creates a cache into which `entries` fit without eviction: for loads that do not evict.
    fn roomy(entries: usize) -> Self {
        Self::new(entries)
    }

    /// Creates `count` caches of one size.
    fn several(count: usize, entries: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new(entries)).collect()
    }

    fn get(&self, key: u64) -> Option<u64>;

    fn insert(&self, key: u64, value: u64);

    /// Gets a key, and inserts it if it is missing; returns whether it was there.
    fn get_or_insert(&self, key: u64) -> bool {
        let is_there = self.get(key).is_some();
        if !is_there {
            self.insert(key, key);
        }
        is_there
    }

    /// Returns the number of entries held.
    fn len(&self) -> usize;

    /// Runs deferred maintenance. The name is moka's.
    fn run_pending_tasks(&self) {}

    /// Shrinks by [`SHRINK`](Self::SHRINK). May continue in the background after it returned.
    fn shrink(&self, _entries: usize) {}

    /// Returns the number of values that were refused for lack of room.
    fn refused(&self) -> u64 {
        0
    }
}

/// The bound of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of entries, or their weight.
    Cache,
    /// Nothing: a map, shown as the ceiling where everything fits.
    Map,
}

/// The contenders to measure, and the amount of measurement.
#[derive(Debug)]
pub struct Plan {
    pub only: Vec<String>,
    pub threads: Vec<usize>,
    pub rounds: usize,
    pub entries: usize,
    pub quick: bool,
}

/// A measurement of one contender.
#[derive(Debug)]
pub struct Run<F> {
    pub name: &'static str,
    pub kind: Kind,
    pub shrink: Option<&'static str>,
    pub call: F,
}

/// The [`Run`]s of a generic function, one for each contender.
macro_rules! runs {
    ($call:ident as $signature:ty) => {
        $crate::contender::runs!($call as $signature;
            Lowwater, Moka, MiniMoka, QuickCache, Foyer, Lru, Scc, DashMap, Papaya)
    };
    ($call:ident as $signature:ty; $($contender:ident),*) => {
        vec![$({
            use $crate::contender::Contender;
            type P = $crate::contenders::$contender;
            $crate::contender::Run { name: P::NAME, kind: P::KIND, shrink: P::SHRINK, call: $call::<P> as $signature }
        }),*]
    };
}
pub(crate) use runs;

fn nothing<P: Contender>() {}

impl Plan {
    /// Returns an error if `--only` names an unknown contender, or `--threads` has a 0.
    pub fn check(&self) -> Result<(), String> {
        let names: Vec<_> = runs!(nothing as fn()).iter().map(|run| run.name).collect();
        match self.only.iter().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(format!("--only: there is no contender {name:?}, but {}", names.join(", "))),
            None if self.threads.contains(&0) => Err("--threads: at least 1".into()),
            None => Ok(()),
        }
    }

    /// Returns the runs that `--only` names, or all of them without it.
    pub fn chosen<F>(&self, mut runs: Vec<Run<F>>) -> Vec<Run<F>> {
        runs.retain(|run| self.only.is_empty() || self.only.iter().any(|name| name == run.name));
        runs
    }

    /// Calls `each` for every run once a round; each round starts with a different run.
    pub fn interleaved<F>(&self, runs: &[Run<F>], mut each: impl FnMut(usize, &Run<F>)) {
        for round in 0..self.rounds {
            for turn in 0..runs.len() {
                let which = (turn + round) % runs.len();
                progress(&format!("round {} of {}: {}", round + 1, self.rounds, runs[which].name));
                each(which, &runs[which]);
            }
        }
        progress("");
    }
}

/// Returns the hash that all contenders use.
pub fn hasher() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

/// The type of [`hasher`].
pub type Hash = ahash::RandomState;
