//! S3-FIFO, after its paper: a small queue with a tenth of the capacity for new entries, a main
//! queue with second chances, and a ghost queue of keys evicted from the small queue, as long as
//! the main queue.
//!
//! Do not optimize it: its value is that it can be compared with the paper.

use std::collections::{HashMap, VecDeque};

/// The divisor of the capacity for that of the small queue.
const SMALL_PARTS: usize = 10;
/// The maximum of an entry's count of uses, which has two bits.
const USES_MAX: u8 = 3;
/// Uses in the small queue with which an entry moves to the main queue.
const KEEP_USES: u8 = 2;

#[derive(Default)]
struct Queues {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    /// How often each key is in the ghost queue.
    remembered: HashMap<u64, u32>,
    uses: HashMap<u64, u8>,
}

/// Returns the hits of S3-FIFO.
pub fn s3fifo(keys: &[u64], entries: usize) -> usize {
    let small_max = (entries / SMALL_PARTS).max(1);
    let mut queues = Queues::default();
    let mut hits = 0;
    for &key in keys {
        if let Some(uses) = queues.uses.get_mut(&key) {
            *uses = (*uses + 1).min(USES_MAX);
            hits += 1;
            continue;
        }
        while queues.uses.len() >= entries {
            queues.evict(small_max, entries - small_max);
        }
        let queue = if queues.remembered.contains_key(&key) { &mut queues.main } else { &mut queues.small };
        queue.push_front(key);
        queues.uses.insert(key, 0);
    }
    hits
}

impl Queues {
    /// Evicts one entry, or moves one from the small to the main queue.
    fn evict(&mut self, small_max: usize, ghosts_max: usize) {
        if self.small.len() >= small_max || self.main.is_empty() {
            let Some(key) = self.small.pop_back() else { return };
            if self.uses[&key] >= KEEP_USES {
                self.uses.insert(key, 0);
                self.main.push_front(key);
            } else {
                self.uses.remove(&key);
                self.remember(key, ghosts_max);
            }
            return;
        }
        while let Some(key) = self.main.pop_back() {
            match self.uses.get_mut(&key) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.main.push_front(key);
                }
                _ => {
                    self.uses.remove(&key);
                    return;
                }
            }
        }
    }

    fn remember(&mut self, key: u64, ghosts_max: usize) {
        self.ghosts.push_front(key);
        *self.remembered.entry(key).or_default() += 1;
        while self.ghosts.len() > ghosts_max {
            let Some(old) = self.ghosts.pop_back() else { return };
            if let Some(times) = self.remembered.get_mut(&old) {
                *times -= 1;
                if *times == 0 {
                    self.remembered.remove(&old);
                }
            }
        }
    }
}
