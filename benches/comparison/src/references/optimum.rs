//! Belady's optimum, which knows all future requests: the entry whose next request is latest, or
//! never, is evicted, even the one just inserted.
//!
//! An upper bound for every policy; no cache can implement it.
//!
//! A change must ensure that no policy can have more hits: the victim is the entry whose next
//! request is latest.

use std::collections::{BTreeSet, HashMap};

/// The next request of a key that is not requested again.
const NEVER: usize = usize::MAX;

/// Returns the hits of the optimum.
pub fn optimum(keys: &[u64], entries: usize) -> usize {
    let mut next = vec![NEVER; keys.len()];
    let mut seen = HashMap::new();
    for (turn, key) in keys.iter().enumerate().rev() {
        next[turn] = seen.insert(*key, turn).unwrap_or(NEVER);
    }
    // Ordered by the time of the next request, which is unique except for `NEVER`.
    let mut held = BTreeSet::new();
    let mut hits = 0;
    for (turn, key) in keys.iter().enumerate() {
        hits += usize::from(held.remove(&(turn, *key)));
        held.insert((next[turn], *key));
        if held.len() > entries {
            held.pop_last();
        }
    }
    hits
}
