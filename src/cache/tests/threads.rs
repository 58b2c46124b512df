//! Many threads on one small cache: byte counts are exact, no entry is lost, and no thread waits
//! for ever.
//!
//! Interleavings are random, so a failure may need several runs to show again. Only the waits at
//! the end of a test have a time limit: a thread that waits for ever hangs the test.
//!
//! A change must ensure that the threads insert, read, update and remove the same keys, and that
//! the counts are compared exactly after the threads have ended.

use super::{cache_of, eventually};
use crate::cache::Op;
use crate::lru_core::MemcgError;
use crate::ByteSize;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn concurrent_operations_leave_exact_byte_counts() {
    let budget = ByteSize::kib(512);
    let cache = cache_of(budget);
    let runtime = cache.runtime().clone();
    thread::scope(|s| {
        for t in 0..4_u64 {
            let (cache, runtime) = (&cache, &runtime);
            s.spawn(move || {
                let mut rng = t + 1;
                for step in 0..20_000_u64 {
                    rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let key = (rng >> 33) % 3_000;
                    let group = match runtime.group(&format!("g{}", key % 7)) {
                        // Another thread ends the group.
                        Err(MemcgError::Dying) => continue,
                        group => group.unwrap(),
                    };
                    match (rng >> 20) % 16 {
                        0..=7 => {
                            if let Some(value) = cache.get(&key) {
                                assert_eq!(value[0], key as u8);
                            }
                        }
                        8..=11 => {
                            let value = vec![key as u8; (rng >> 50) as usize % 700 + 1];
                            // May be rejected: another thread may take the memory that this insert
                            // has freed.
                            let _ = cache.entry(key).group(&group).insert(value);
                        }
                        12 => drop(cache.remove(&key)),
                        13 => {
                            cache.get_or_insert_with(key, || vec![key as u8]);
                        }
                        14 => {
                            let _ = cache.entry(key).group(&group).and_compute(|current| match current {
                                Some(current) => Op::Update([current.value().as_slice(), &[0]].concat()),
                                None => Op::Put(vec![key as u8]),
                            });
                        }
                        _ if step % 512 == 0 => cache.clear(),
                        _ if step % 128 == 0 => drop(runtime.end_group(&group)),
                        _ => {}
                    }
                    assert!(runtime.root().usage() <= budget);
                }
            });
        }
    });
    // Each entry is on a list of one of the queues. The reclaimer may still have isolated entries;
    // it puts them back or evicts them soon.
    let queues = &cache.inner.core.queues;
    eventually(PATIENCE, "every entry is on a list", || queues.count_node(crate::NodeId::ZERO) == cache.len() as u64);
    eventually(PATIENCE, "the entries are the inserts less the removals", || {
        let stats = cache.stats();
        let gone = stats.evictions + stats.expired + stats.removed + stats.replaced;
        stats.inserts - gone == cache.len() as u64
    });
    queues.assert_valid();
    cache.clear();
    // Bytes that a processor holds in stock count as usage until they are drained.
    eventually(PATIENCE, "an empty cache has no charge", || {
        runtime.tree().drain_stock();
        runtime.root().usage() == ByteSize::ZERO
    });
}

#[test]
fn concurrent_computes_of_one_key_lose_no_update() {
    let cache = cache_of(ByteSize::mib(1));
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..500 {
                    let step = |current: Option<crate::cache::Current<'_, u64, Vec<u8>>>| {
                        let n = current.map_or(0, |c| u32::from_le_bytes(c.value()[..].try_into().unwrap()));
                        Op::Put((n + 1).to_le_bytes().to_vec())
                    };
                    cache.entry(1).and_compute(step).unwrap();
                }
            });
        }
    });
    assert_eq!(cache.get(&1), Some(2_000_u32.to_le_bytes().to_vec()));
}
