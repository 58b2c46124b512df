// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load on a cache: commands in text, each for the numbers of one worker.
//!
//! | command | does |
//! |---|---|
//! | `fill N` | inserts the worker's first N numbers |
//! | `churn N` | N times: promotes, reads, removes or inserts a filled number, at random |
//! | `pairs N SPAN` | N times: removes one of the first SPAN entries, and adds it again |
//! | `empty` | removes all filled numbers of the worker |
//! | `count` | reports the number of listed entries |
//!
//! The text of a result must be the same on all lists: `../modules/guest.sh` and
//! `crates/shrinker/tests/one_cache.rs` read its numbers by their position. All code must be safe
//! Rust: `ci/rust-kernel.sh` checks that.

use super::cache::Cache;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The numbers of one worker: more than the 40,000 that a task of `guest.sh` fills.
pub(crate) const NUMBERS_PER_WORKER: usize = 1 << 18;
/// The number of workers: `guest.sh` has as many tasks.
pub(crate) const WORKERS: usize = 4;

/// A cache and its workers.
pub(crate) struct Load<C> {
    pub(crate) cache: C,
    filled: [AtomicUsize; WORKERS],
}

/// Why a command failed.
pub(crate) enum Failure {
    /// There is no such command, worker or number, or no room for the result.
    Unknown,
    /// There is no memory.
    NoMemory,
}

impl<C: core::ops::Deref<Target = Cache>> Load<C> {
    pub(crate) fn new(cache: C) -> Self {
        Self { cache, filled: [const { AtomicUsize::new(0) }; WORKERS] }
    }

    /// Runs a command of a worker, and writes its result.
    pub(crate) fn run(&self, worker: usize, command: &str, said: &mut dyn Write) -> Result<(), Failure> {
        let filled = self.filled.get(worker).ok_or(Failure::Unknown)?;
        let (cache, first) = (&*self.cache, worker * NUMBERS_PER_WORKER);
        let mut words = command.split_ascii_whitespace();
        let name = words.next().ok_or(Failure::Unknown)?;
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).ok_or(Failure::Unknown);
        let result: fmt::Result = match name {
            "fill" => {
                let n = number()?.min(NUMBERS_PER_WORKER);
                let mut added = 0;
                for at in 0..n {
                    let new = cache.insert(first + at, at as u64).map_err(|_| Failure::NoMemory)?;
                    added += usize::from(new);
                }
                filled.store(n, Relaxed);
                writeln!(said, "filled {added}")
            }
            "churn" => {
                let n = number()?;
                let numbers = filled.load(Relaxed).max(1);
                let (mut promoted, mut read, mut removed, mut made) = (0_usize, 0_usize, 0_usize, 0_usize);
                let mut random = first as u64 + 1;
                for _ in 0..n {
                    // xorshift64
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let at = first + (random >> 8) as usize % numbers;
                    match random & 3 {
                        0 if cache.remove(at) => removed += 1,
                        1 => read += usize::from(cache.get(at).is_some()),
                        2 if cache.promote(at) => promoted += 1,
                        // Without memory the number stays out, as it would in a cache.
                        _ => made += usize::from(cache.insert(at, random).unwrap_or(false)),
                    }
                }
                writeln!(said, "promoted {promoted} read {read} removed {removed} made {made}")
            }
            "pairs" => {
                let (n, span) = (number()?, number()?);
                if span == 0 || span > filled.load(Relaxed) {
                    return Err(Failure::Unknown);
                }
                let (pairs, ns) = cache.pairs(first, span, n).map_err(|_| Failure::NoMemory)?;
                writeln!(said, "pairs {pairs} ns {ns} ns_per_pair {}", ns / pairs.max(1) as u64)
            }
            "empty" => {
                let removed = (0..filled.load(Relaxed)).filter(|at| cache.remove(first + at)).count();
                writeln!(said, "removed {removed}")
            }
            "count" => writeln!(said, "listed {} alive {}", cache.listed(), Cache::alive()),
            _ => return Err(Failure::Unknown),
        };
        result.map_err(|_| Failure::Unknown)
    }
}
