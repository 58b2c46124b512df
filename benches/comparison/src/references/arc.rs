//! ARC, after its paper: one list of entries that were requested once and one of those requested
//! again, each with a ghost list of its evicted keys. Ghost hits adapt the share of the two lists.
//!
//! Do not optimize it: its value is that it can be compared with the paper line by line. Names of
//! the paper are in brackets.

use lru::LruCache;

/// A queue of keys, from which any key can be removed.
type Queue = LruCache<u64, ()>;

struct Arc {
    entries: usize,
    /// The target length of `once` (p).
    once_wanted: usize,
    /// Entries requested once (T1).
    once: Queue,
    /// Entries requested again (T2).
    again: Queue,
    /// Keys evicted from `once` (B1).
    once_ghosts: Queue,
    /// Keys evicted from `again` (B2).
    again_ghosts: Queue,
}

/// Returns the hits of ARC.
pub fn arc(keys: &[u64], entries: usize) -> usize {
    let queue = LruCache::unbounded;
    let mut arc =
        Arc { entries, once_wanted: 0, once: queue(), again: queue(), once_ghosts: queue(), again_ghosts: queue() };
    keys.iter().filter(|&&key| arc.ask(key)).count()
}

impl Arc {
    /// Requests a key. Returns whether it was a hit.
    fn ask(&mut self, key: u64) -> bool {
        if self.once.pop(&key).is_some() || self.again.pop(&key).is_some() {
            self.again.put(key, ());
            return true;
        }
        let (once_ghosts, again_ghosts) = (self.once_ghosts.len(), self.again_ghosts.len());
        if self.once_ghosts.pop(&key).is_some() {
            self.once_wanted = (self.once_wanted + (again_ghosts / once_ghosts).max(1)).min(self.entries);
            self.make_room(false);
            self.again.put(key, ());
        } else if self.again_ghosts.pop(&key).is_some() {
            self.once_wanted = self.once_wanted.saturating_sub((once_ghosts / again_ghosts).max(1));
            self.make_room(true);
            self.again.put(key, ());
        } else {
            self.make_room_for_new();
            self.once.put(key, ());
        }
        false
    }

    /// Makes room for a key that is in no list (case IV).
    fn make_room_for_new(&mut self) {
        let once = self.once.len() + self.once_ghosts.len();
        let all = once + self.again.len() + self.again_ghosts.len();
        if once >= self.entries {
            if self.once.len() < self.entries {
                self.once_ghosts.pop_lru();
                self.make_room(false);
            } else {
                self.once.pop_lru();
            }
        } else if all >= self.entries {
            if all >= 2 * self.entries {
                self.again_ghosts.pop_lru();
            }
            self.make_room(false);
        }
    }

    /// Evicts one entry to its ghost list, if the cache is full (REPLACE). `from_again_ghosts`: the
    /// requested key was in `again_ghosts`.
    fn make_room(&mut self, from_again_ghosts: bool) {
        let once = self.once.len();
        if once + self.again.len() < self.entries {
            return;
        }
        let (from, to) = if once > 0 && (once > self.once_wanted || (from_again_ghosts && once == self.once_wanted)) {
            (&mut self.once, &mut self.once_ghosts)
        } else {
            (&mut self.again, &mut self.again_ghosts)
        };
        if let Some((key, ())) = from.pop_lru() {
            to.put(key, ());
        }
    }
}
