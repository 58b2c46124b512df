//! The side of the comparison that is under test: builds the caches and groups that a stream
//! describes, in a runtime, and sends the stream's requests to them. `oracle.rs` is the other side.
//!
//! A pair is a cache and a group; the pair's number is part of each key, so one cache can serve
//! several pairs. Hashes have no random seed, there is one node, and one test runs at a time, on
//! one processor: two runs of a stream differ only by the times at which background threads run
//! (`two_of_three`).
//!
//! A change must ensure that no request is sent twice and none left out.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowwater::cache::Eviction;
use lowwater::{topology, ByteSize, Cache, Memcg, Runtime, Watermarks};

use super::one_processor::stay_on_one_processor;
use super::stream::{PairSpec, Stream, ROOT};

/// A hasher without a random seed, so that each run has the same hashes.
pub type Hasher = BuildHasherDefault<DefaultHasher>;
type Keyed = Cache<u64, (), Hasher>;

/// The number of the pair is in the bits of a key from this one on.
const PAIR_SHIFT: u32 = 48;

/// Held by the test that runs.
pub type Alone = MutexGuard<'static, ()>;

/// Waits until no other test runs, and keeps this thread on one processor. A reader of another test
/// that is not scheduled would hold back removed entries, and each processor has a stock, so that
/// shares would depend on the load of the machine.
fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    stay_on_one_processor();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a runtime that reclaims nothing below the limit, as the oracle, once no other test runs.
pub fn runtime(budget: ByteSize) -> (Alone, Runtime) {
    let alone = alone();
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    let builder = Runtime::builder().budget(budget).watermarks(at_the_limit);
    let builder = builder.topology(Arc::new(topology::Fixed::new(1)));
    // Threads of the runtime may not be scheduled, and hold back removed entries.
    (alone, builder.direct_time_max(Duration::from_secs(10)).build().unwrap())
}

/// The caches and groups under test.
pub struct Real {
    runtime: Runtime,
    groups: Vec<Memcg>,
    caches: Vec<Keyed>,
    pairs: Vec<PairSpec>,
    /// The last field: another test begins when all of this is dropped.
    _alone: Alone,
}

impl Real {
    pub fn new(stream: &Stream) -> Self {
        Self::with(stream, |_| ())
    }

    /// As [`new`](Self::new); `first` runs before the groups and caches are created.
    pub fn with(stream: &Stream, first: impl FnOnce(&Runtime)) -> Self {
        let (alone, runtime) = runtime(ByteSize::new(stream.groups[ROOT].max));
        first(&runtime);
        let groups: Vec<Memcg> = (0..stream.groups.len())
            .map(|n| if n == ROOT { runtime.root().clone() } else { runtime.group(&n.to_string()).unwrap() })
            .collect();
        for (group, spec) in groups.iter().zip(&stream.groups) {
            group.set_max(ByteSize::new(spec.max));
            group.set_low(ByteSize::new(spec.low));
        }
        let caches = stream.pairs.iter().map(|pair| pair.cache + 1).max().unwrap_or(0);
        let caches = (0..caches).map(|n| cache(&runtime, n, &stream.pairs)).collect();
        Self { runtime, groups, caches, pairs: stream.pairs.clone(), _alone: alone }
    }

    /// As [`Oracle::ask`](super::oracle::Oracle::ask).
    pub fn ask(&mut self, at: usize, key: u64) -> bool {
        let (cache, key) = (&self.caches[self.pairs[at].cache], (at as u64) << PAIR_SHIFT | key);
        let is_hit = cache.get(&key).is_some();
        if !is_hit {
            cache.entry(key).group(self.group(at)).insert(()).unwrap();
        }
        is_hit
    }

    /// Returns the hash of a key of a pair.
    pub fn hash(at: usize, key: u64) -> u64 {
        Hasher::default().hash_one((at as u64) << PAIR_SHIFT | key)
    }

    pub fn len(&self, at: usize) -> u64 {
        self.caches[self.pairs[at].cache].len_of(self.group(at))
    }

    pub fn group(&self, at: usize) -> &Memcg {
        &self.groups[self.pairs[at].group]
    }

    pub fn groups(&self) -> &[Memcg] {
        &self.groups
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// Creates the cache with this number, in which the order of entries is exact.
fn cache(runtime: &Runtime, n: usize, pairs: &[PairSpec]) -> Keyed {
    let cost = pairs.iter().find(|pair| pair.cache == n).map_or(1, |pair| pair.cost);
    let pairs = pairs.to_vec();
    let weight = move |key: &u64, _: &()| {
        let size = pairs[(*key >> PAIR_SHIFT) as usize].size(key & ((1 << PAIR_SHIFT) - 1));
        ByteSize::new(size).saturating_sub(Cache::<u64, ()>::ENTRY_BYTES)
    };
    let builder = Cache::builder(runtime).name(n.to_string()).eviction(Eviction::Lru).weigher(weight);
    builder.recreation_cost(move |_, _| cost).hasher(Hasher::default()).build().unwrap()
}
