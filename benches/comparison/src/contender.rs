//! What a cache must answer to be measured, and the list of those that do.

use crate::report::progress;

/// A cache of `u64` under `u64`, as its users would make it: what its own documentation recommends, with the hash of all.
pub trait Contender: Sized + Send + Sync + 'static {
    /// Its name in tables, and for `--only`.
    const NAME: &'static str;
    /// What it can bound.
    const KIND: Kind = Kind::Cache;
    /// Its own way of getting smaller while it is used, if it has one.
    const SHRINK: Option<&'static str> = None;

    /// One that holds at most about so many entries.
    fn new(entries: usize) -> Self;

    /// As [`new`](Self::new), but as many as it may at any time: for hit ratios and sizes.
    fn exact(entries: usize) -> Self {
        Self::new(entries)
    }

    /// One into which so many fit for certain, at least without a limit met: for what does not evict.
    fn roomy(entries: usize) -> Self {
        Self::new(entries)
    }

    /// Many of one size.
    fn several(count: usize, entries: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new(entries)).collect()
    }

    fn get(&self, key: u64) -> Option<u64>;

    fn insert(&self, key: u64, value: u64);

    /// Entries that are there now.
    fn len(&self) -> usize;

    /// Runs deferred maintenance (as moka calls it).
    fn run_pending_tasks(&self) {}

    /// Gets smaller by [`SHRINK`](Self::SHRINK); may go on after it returned.
    fn shrink(&self, _entries: usize) {}

    /// Values for which it found no room.
    fn refused(&self) -> u64 {
        0
    }
}

/// What a contender bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number of entries, or their weight.
    Cache,
    /// Nothing: a map, shown as the ceiling where everything fits.
    Map,
}

/// How much is measured, and of whom.
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
    /// Are all those that were named there?
    pub fn check(&self) -> Result<(), String> {
        let names: Vec<_> = runs!(nothing as fn()).iter().map(|run| run.name).collect();
        match self.only.iter().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(format!("--only: there is no contender {name:?}, but {}", names.join(", "))),
            None if self.threads.contains(&0) => Err("--threads: at least 1".into()),
            None => Ok(()),
        }
    }

    /// Those that were named, if any were.
    pub fn chosen<F>(&self, mut runs: Vec<Run<F>>) -> Vec<Run<F>> {
        runs.retain(|run| self.only.is_empty() || self.only.iter().any(|name| name == run.name));
        runs
    }

    /// Calls `each` for every run once a round; each round begins with another.
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

/// The one hash: all of them let it be chosen.
pub fn hasher() -> ahash::RandomState {
    ahash::RandomState::with_seeds(1, 2, 3, 4)
}

/// The hash as a type.
pub type Hash = ahash::RandomState;
