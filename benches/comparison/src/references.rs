//! Plain eviction policies as references for hit ratios: single-threaded, exact, and written for
//! clarity instead of speed.
//!
//! They show how near an implementation comes to its published algorithm, and how far it is from
//! the optimum.
//!
//! A new reference must be checked against its paper, and stays single-threaded.

mod arc;
mod optimum;
mod s3fifo;

pub use arc::arc;
pub use optimum::optimum;
pub use s3fifo::s3fifo;

/// A function that returns the hits of a policy on a sequence of keys, with a capacity in entries.
pub type Policy = fn(&[u64], usize) -> usize;

/// All references, by name. LRU is the contender `lru`.
pub const ALL: [(&str, Policy); 3] = [("ref: S3-FIFO", s3fifo), ("ref: ARC", arc), ("ref: optimum", optimum)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::zipf_keys;

    #[test]
    fn all_policies_hit_if_all_keys_fit_and_none_beats_the_optimum() {
        let keys = zipf_keys(1000, 0.9, 20_000, 1);
        let distinct = keys.iter().collect::<std::collections::HashSet<_>>().len();
        let best = optimum(&keys, 50);
        for (name, policy) in ALL {
            // More than the distinct keys, so that no policy evicts.
            assert_eq!(policy(&keys, 10 * distinct), keys.len() - distinct, "{name}: with room for all, a miss each");
            let hits = policy(&keys, 50);
            assert!(hits > 0 && hits <= best, "{name}: {hits} hits, and {best} are the most");
        }
    }

    #[test]
    fn a_loop_is_missed_by_all_but_the_optimum() {
        let keys: Vec<u64> = (0..10_000).map(|n| n % 100).collect();
        assert_eq!(arc(&keys, 50), 0);
        assert_eq!(s3fifo(&keys, 50), 0);
        // The optimum keeps half of the loop: half of the requests hit, except in the first round.
        assert_eq!(optimum(&keys, 50), (10_000 - 100) / 2);
    }

    #[test]
    fn arc_and_s3fifo_keep_reused_keys_during_a_scan() {
        let hot = [1, 2, 3, 1, 2, 3, 1, 2, 3];
        let keys: Vec<u64> = hot.into_iter().chain(100..200).chain([1, 2, 3]).collect();
        for (name, policy) in ALL {
            assert_eq!(policy(&keys, 10), 9, "{name}: 6 before the scan, 3 after");
        }
    }
}
