//! Each eviction order that is a published algorithm follows a plain model of it, for one tenant in
//! a full cache: the same accesses lead to the same hits. The adaptive order has no model; two
//! tests check which of its entries stay.
//!
//! The models are written for clarity. Differences that the cache has on purpose (batches,
//! approximate ghosts) are bounded by the test.
//!
//! A new order that is a published algorithm needs its plain model here.

use std::collections::{HashMap, VecDeque};

use super::{entry_bytes_of, median_of_seeds, on_one_processor, without_reclaimer, Seeded};
use crate::cache::Eviction;
use crate::{ByteSize, Cache, Runtime};

/// The number of entries that fit.
const ROOM: usize = 50;

/// A model of a cache. `ask` returns whether the key is present, and inserts it if it is not.
trait Model {
    fn ask(&mut self, key: u64) -> bool;
}

#[derive(Default)]
struct Lru(VecDeque<u64>);

impl Model for Lru {
    fn ask(&mut self, key: u64) -> bool {
        let at = self.0.iter().position(|&there| there == key);
        if let Some(at) = at {
            self.0.remove(at);
        } else if self.0.len() == ROOM {
            self.0.pop_front();
        }
        self.0.push_back(key);
        at.is_some()
    }
}

#[derive(Default)]
struct Clock(VecDeque<(u64, bool)>);

impl Model for Clock {
    fn ask(&mut self, key: u64) -> bool {
        if let Some((_, used)) = self.0.iter_mut().find(|(there, _)| *there == key) {
            *used = true;
            return true;
        }
        while self.0.len() == ROOM {
            match self.0.pop_front() {
                Some((old, true)) => self.0.push_back((old, false)),
                _ => break,
            }
        }
        self.0.push_back((key, false));
        false
    }
}

/// One queue, the oldest first, and the hand of the algorithm.
#[derive(Default)]
struct Sieve {
    queue: Vec<(u64, bool)>,
    hand: usize,
}

impl Model for Sieve {
    fn ask(&mut self, key: u64) -> bool {
        if let Some((_, used)) = self.queue.iter_mut().find(|(there, _)| *there == key) {
            *used = true;
            return true;
        }
        while self.queue.len() == ROOM {
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
            if std::mem::take(&mut self.queue[self.hand].1) {
                self.hand += 1;
            } else {
                self.queue.remove(self.hand);
            }
        }
        self.queue.push((key, false));
        false
    }
}

#[derive(Default)]
struct S3Fifo {
    uses: HashMap<u64, u8>,
    probation: VecDeque<u64>,
    main: VecDeque<u64>,
    /// For each key that was evicted from probation, the clock at its eviction.
    left: HashMap<u64, usize>,
    /// The number of evictions from both queues.
    clock: usize,
}

impl Model for S3Fifo {
    fn ask(&mut self, key: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.uses.len() == ROOM {
            if self.probation.len() > (ROOM / 10).max(1) || self.main.is_empty() {
                let old = self.probation.pop_front().unwrap();
                if self.uses[&old] >= 2 {
                    self.uses.insert(old, 0);
                    self.main.push_back(old);
                } else {
                    self.uses.remove(&old);
                    self.left.insert(old, self.clock);
                    self.clock += 1;
                }
            } else {
                let old = self.main.pop_front().unwrap();
                match self.uses[&old] {
                    0 => {
                        self.uses.remove(&old);
                        self.clock += 1;
                    }
                    uses => {
                        self.uses.insert(old, uses - 1);
                        self.main.push_back(old);
                    }
                }
            }
        }
        // A ghost counts until as many entries were evicted as the cache has.
        let is_ghost_hit = self.left.remove(&key).is_some_and(|then| self.clock - then < ROOM);
        self.uses.insert(key, 0);
        if is_ghost_hit { &mut self.main } else { &mut self.probation }.push_back(key);
        false
    }
}

/// Returns the hits of the model, the hits of the cache, and the requests at which they differ.
fn differ(order: Eviction, model: &mut dyn Model, seed: u64) -> (u32, u32, u32) {
    let cache = cache_at_its_limit(order, ROOM as u64, seed);
    let (mut random, mut ours, mut theirs, mut differ) = (88_172_645_463_325_252_u64, 0, 0, 0);
    for _ in 0..20_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // A product modulo 500: multiples of 2 and of 5 are more frequent.
        let key = (random % 500) * (random >> 32) % 500;
        let (hit, expected) = (cache.get(&key).is_some(), model.ask(key));
        if !hit {
            cache.insert(key, key).expect("each insert evicts one entry");
        }
        ours += u32::from(hit);
        theirs += u32::from(expected);
        differ += u32::from(hit != expected);
    }
    assert_eq!(cache.len(), ROOM);
    (differ, theirs, ours)
}

/// Returns a cache that holds exactly this many entries when it is full.
fn cache_at_its_limit(order: Eviction, entries: u64, seed: u64) -> Cache<u64, u64, Seeded> {
    // An insert that runs out of time, as its thread was preempted, would have others evict more.
    let runtime = without_reclaimer(ByteSize::new(entries * entry_bytes_of::<u64, u64>()))
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .build()
        .unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).eviction(order).hasher(Seeded(seed));
    cache.weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

/// The cache identifies ghosts by a part of their hash, forgets some early on bucket collisions,
/// and counts their age in ticks. So some requests may differ from the model; the median of five
/// seeds decides.
fn assert_follows<M: Model + Default>(order: Eviction) {
    let (differ, theirs, ours) = median_of_seeds(|seed| differ(order, &mut M::default(), seed));
    assert!((1_000..15_000).contains(&theirs), "{order:?}: {theirs}");
    assert!(
        differ < 20_000 / 50,
        "{order:?}: {theirs} hits of the model, {ours} of the cache, {differ} requests differ"
    );
}

#[test]
fn lru_evicts_the_least_recently_used() {
    assert_follows::<Lru>(Eviction::Lru);
}

#[test]
fn second_chance_is_clock() {
    assert_follows::<Clock>(Eviction::SecondChance);
}

#[test]
fn sieve_keeps_used_entries_in_place() {
    assert_follows::<Sieve>(Eviction::Sieve);
}

#[test]
fn s3_fifo_has_a_tenth_of_the_entries_on_probation() {
    assert_follows::<S3Fifo>(Eviction::S3Fifo);
}

#[test]
fn an_overwrite_keeps_the_uses_of_its_key() {
    for order in [Eviction::Adaptive, Eviction::S3Fifo] {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime).eviction(order).hasher(Seeded(1));
        let cache = cache.weigher(|_, _| ByteSize::new(100)).build().unwrap();
        let mut next = 1_000_000;
        let mut scan = |entries: u64| {
            (0..entries).for_each(|_| {
                next += 1;
                cache.insert(next, 0).unwrap();
            });
        };
        let hot = 0..200_u64;
        hot.clone().for_each(|key| assert!(cache.insert(key, 0).unwrap().is_none()));
        for _ in 0..30 {
            hot.clone().for_each(|key| assert!(cache.get(&key).is_some()));
            scan(300);
        }
        let there = |value| hot.clone().filter(|key| cache.peek(key) == Some(value)).count();
        assert!(there(0) > 190, "{order:?}: {} of those that are read are kept", there(0));
        hot.clone().for_each(|key| assert!(cache.insert(key, 1).is_ok()));
        scan(4_000);
        assert!(there(1) > 190, "{order:?}: {} of those with a new value are kept", there(1));
    }
}

/// Returns whether a new key that is read `reads` times stays while new keys are inserted, half as
/// many as the cache has entries.
fn stays(entries: u64, reads: u32) -> bool {
    on_one_processor(|| {
        let cache = cache_at_its_limit(Eviction::Adaptive, entries, 1);
        let fill = |keys: std::ops::Range<u64>| {
            for key in keys {
                cache.insert(key, key).expect("each insert evicts one entry");
            }
        };
        fill(0..3 * entries);
        cache.insert(u64::MAX, 0).unwrap();
        (0..reads).for_each(|_| assert!(cache.get(&u64::MAX).is_some()));
        fill(10 * entries..10 * entries + entries / 2);
        cache.peek(&u64::MAX).is_some()
    })
}

#[test]
fn in_a_small_cache_one_use_on_probation_promotes() {
    // The limit of probation is a tenth of the entries: 10 is at most `FEW` (16), and 100 is not.
    let stay = |entries| [0, 1, 2].map(|reads| stays(entries, reads));
    assert_eq!(stay(100), [false, true, true]);
    assert_eq!(stay(1_000), [false, false, true]);
}
