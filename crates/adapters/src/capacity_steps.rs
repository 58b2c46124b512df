//! The capacities of an eviction from a sharded cache that can evict only by a lower capacity.
//!
//! Each shard has an equal part of the capacity, but not of the weight. So an eviction that lowers
//! the capacity to its target at once evicts more than it must, and everything if the entries are
//! heavier than the part of a shard. Steps stop where the weight is low enough.
//!
//! A change must ensure that the capacities end at the target: an eviction in steps evicts no more
//! than one without them.

/// Returns the capacities to set, one after the other, until the cache weighs no more than
/// `target`. They fall from below `capacity`, by `1 / divisor` each. All are multiples of
/// `granule`, and the last is `target` rounded down to one.
///
/// The first is at most `target` for each of the `shards`: above it, a shard could be heavier than
/// `target` alone. So there is one step for one shard.
pub(crate) fn capacity_steps(
    capacity: u64,
    target: u64,
    shards: u64,
    granule: u64,
    divisor: u64,
) -> impl Iterator<Item = u64> {
    let round = move |capacity: u64| capacity / granule * granule;
    let last = round(target);
    let below = move |capacity: u64| round(capacity - capacity.div_ceil(divisor)).max(last);
    let first = round(target.saturating_mul(shards)).min(below(capacity));
    std::iter::successors(Some(first), move |capacity| (*capacity > last).then(|| below(*capacity)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_fall_to_the_target() {
        for (shards, granule, divisor) in [(1, 256, 8), (8, 2048, 8), (64, 64 * 256, 8), (8, 1, 4)] {
            for target in [0, 1, granule, 7 * granule + 1, 1 << 20, 1 << 40, u64::MAX / 2] {
                for capacity in [0, granule, 1 << 20, 1 << 41, u64::MAX / granule * granule] {
                    let steps: Vec<_> = capacity_steps(capacity, target, shards, granule, divisor).collect();
                    assert_eq!(steps.last(), Some(&(target / granule * granule)), "from {capacity}");
                    assert!(steps.windows(2).all(|pair| pair[0] > pair[1]), "{steps:?}");
                    assert!(steps.iter().all(|step| step % granule == 0), "{steps:?}");
                    assert!(steps[0] <= target.saturating_mul(shards), "{steps:?} to {target}");
                    assert!(steps.len() <= 50, "{} steps", steps.len());
                }
            }
        }
        let count = |shards, divisor| capacity_steps(1 << 40, 1 << 23, shards, shards, divisor).count();
        assert_eq!((count(1, 8), count(8, 8), count(64, 8), count(8, 4)), (1, 17, 33, 9));
        assert_eq!(capacity_steps(1 << 23, (1 << 23) - 4096, 8, 8, 8).count(), 1, "a full cache needs one step");
    }
}
