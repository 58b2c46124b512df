//! Belady's optimum, which sees the future: what is asked for last, or never again, makes room, be it what was just asked for.

use std::collections::{BTreeSet, HashMap};

/// Asked for never again.
const NEVER: usize = usize::MAX;

/// Hits.
pub fn optimum(keys: &[u64], entries: usize) -> usize {
    let mut next = vec![NEVER; keys.len()];
    let mut seen = HashMap::new();
    for (turn, key) in keys.iter().enumerate().rev() {
        next[turn] = seen.insert(*key, turn).unwrap_or(NEVER);
    }
    // By when they are asked for again; the turn of that is the same for no two, but for `NEVER`.
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
