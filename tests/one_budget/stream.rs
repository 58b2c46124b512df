//! Streams of requests, and their caches and groups.
//!
//! Plain data that the oracle and the real caches read. A key belongs to the pair of its request:
//! equal keys of two pairs are different entries.
//!
//! A change must ensure that a stream is the same in each run.

use super::random::Random;

/// The parent of all other groups; its limit is the budget.
pub const ROOT: usize = 0;
/// Bytes of an ordinary entry.
pub const ENTRY: u64 = 1 << 10;
/// The budget of all streams that set no other.
pub const BUDGET: u64 = 4_000 * ENTRY;

/// The requests of one test, and the pairs and groups that they use.
pub struct Stream {
    pub groups: Vec<GroupSpec>,
    pub pairs: Vec<PairSpec>,
    /// The index of the pair in `pairs`, and the key.
    pub requests: Vec<(usize, u64)>,
}

/// A group: its limit and its protection, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct GroupSpec {
    pub max: u64,
    pub low: u64,
}

/// A cache and a group.
#[derive(Clone, Copy, Debug)]
pub struct PairSpec {
    pub cache: usize,
    pub group: usize,
    /// Bytes of the smallest entry.
    pub size: u64,
    /// An entry is `size` times a number from 1 to this, by its key.
    pub sizes: u64,
    /// The recreation cost of an entry.
    pub cost: u64,
}

/// The requested keys of one pair.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// This many keys, each with the same probability.
    Uniform(u64),
    /// This many keys, the lower ones more often: approximately Zipf with exponent 1.
    Zipf(u64),
    /// This many keys, in order, repeatedly.
    Loop(u64),
    /// New keys, each once.
    Scan,
    /// No keys.
    Idle,
}

impl PairSpec {
    /// A cache of its own, in the root.
    pub fn of_cache(cache: usize) -> Self {
        Self { cache, group: ROOT, size: ENTRY, sizes: 1, cost: 1 }
    }

    /// Returns the bytes of the entry of a key.
    pub fn size(&self, key: u64) -> u64 {
        self.size * (1 + key % self.sizes)
    }

    /// Returns the mean bytes of an entry.
    pub fn mean_size(&self) -> u64 {
        self.size * (1 + self.sizes) / 2
    }
}

impl Stream {
    /// Creates caches in the root, and no requests yet.
    pub fn new(caches: usize) -> Self {
        let root = GroupSpec { max: BUDGET, low: 0 };
        Self { groups: vec![root], pairs: (0..caches).map(PairSpec::of_cache).collect(), requests: Vec::new() }
    }

    /// Adds a group below the root.
    pub fn group(&mut self, max: u64, low: u64) -> usize {
        self.groups.push(GroupSpec { max, low });
        self.groups.len() - 1
    }

    /// Adds a phase of requests: in each round, each pair makes as many as its rate.
    pub fn ask(mut self, seed: u64, rounds: u64, patterns: &[(Pattern, u64)]) -> Self {
        let mut random = Random(seed);
        let begin = self.requests.len() as u64;
        for round in 0..rounds {
            for (pair, (pattern, rate)) in patterns.iter().enumerate() {
                for n in round * rate..(round + 1) * rate {
                    let key = match *pattern {
                        Pattern::Uniform(keys) => random.below(keys),
                        Pattern::Zipf(keys) => random.zipf(keys),
                        Pattern::Loop(keys) => n % keys,
                        Pattern::Scan => 1 << 32 | (begin + n),
                        Pattern::Idle => continue,
                    };
                    self.requests.push((pair, key));
                }
            }
        }
        self
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let requests = format_args!("{} requests", self.requests.len());
        f.debug_tuple("Stream").field(&self.groups).field(&self.pairs).field(&requests).finish()
    }
}
