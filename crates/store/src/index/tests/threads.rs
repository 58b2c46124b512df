//! Several threads on one index.
//!
//! Some keys stay and others come and go; the readers check that each key that stays is found with
//! its value, and that a walk visits it exactly once.
//!
//! A change must ensure that the keys that stay are looked up during the whole run.

use super::*;
use crate::index::Cursor;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use lowwater_lru_core::ListLru;
use lowwater_lru_core::MemcgTree;
use lowwater_rcu::pin;
use std::collections::HashSet;
use std::thread;

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

/// Keys that are never removed are always found, whatever changes beside them; a value is always
/// one that was inserted under its key.
#[test]
fn keys_that_stay_are_always_found_and_visited_once() {
    const STAY: u64 = 3_000;
    const COME: u64 = 20_000;
    let index = ExtendibleIndex::<Entry>::new();
    let (tree, lru) = (MemcgTree::default(), ListLru::<Entry>::new());
    let put_key = |key: u64, value: u64| {
        let guard = pin();
        let (_, old) = put(&index, key, value, &hash, &guard, |slot, old| {
            lru.add(slot, tree.root(), NodeId::ZERO).unwrap();
            old.and_then(|old| lru.del(old))
        });
        drop(guard);
        drop(old);
    };
    (0..STAY).for_each(|key| put_key(key, key));
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let writers: Vec<_> = (0..2)
            .map(|t| {
                let (index, lru, put_key) = (&index, &lru, &put_key);
                s.spawn(move || {
                    for round in 0..3 {
                        for key in (STAY + t..STAY + COME).step_by(2) {
                            put_key(key, key + (round << 32));
                        }
                        for key in (t..STAY).step_by(20) {
                            put_key(key, key + (round << 32));
                        }
                        for key in (STAY + t..STAY + COME).step_by(2) {
                            let guard = pin();
                            let hasher = |entry: &Entry| hash(entry.key);
                            let gone =
                                index.remove(hash(key), &guard, |e| e.key == key, &hasher, |entry| lru.del(entry));
                            let gone = gone.and_then(|(_, handle)| handle);
                            drop(guard);
                            assert!(gone.is_some(), "no other thread removes {key}");
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            s.spawn(|| {
                let mut key = 1_u64;
                while !stop.load(Ordering::Relaxed) {
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (stays, comes) = ((key >> 33) % STAY, STAY + (key >> 20) % COME);
                    let guard = pin();
                    assert_eq!(
                        get(&index, stays, &hash, &guard).map(|v| v as u32),
                        Some(stays as u32),
                        "{stays} stays"
                    );
                    if let Some(value) = get(&index, comes, &hash, &guard) {
                        assert_eq!(value as u32, comes as u32);
                    }
                }
            });
        }
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (mut cursor, mut seen) = (Cursor::new(), Vec::new());
                while !cursor.is_done() {
                    let guard = pin();
                    index.visit(&mut cursor, &guard, |entry| seen.push(entry.key));
                }
                let stayed: Vec<_> = seen.into_iter().filter(|&key| key < STAY).collect();
                assert_eq!(stayed.len(), STAY as usize, "each once");
                assert_eq!(stayed.into_iter().collect::<HashSet<_>>().len(), STAY as usize);
            }
        });
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    lru.assert_valid();
    assert_eq!(lru.count_one(tree.root(), NodeId::ZERO), STAY);
    let mut cursor = Cursor::new();
    while !cursor.is_done() {
        let guard = pin();
        let mut keys = Vec::new();
        index.visit(&mut cursor, &guard, |entry| keys.push(entry.key));
        for key in keys {
            let hasher = |entry: &Entry| hash(entry.key);
            assert!(index.remove(hash(key), &guard, |e| e.key == key, &hasher, |entry| lru.del(entry)).is_some());
        }
    }
    let begin = std::time::Instant::now();
    while index.slab().collect().get() != 0 {
        assert!(begin.elapsed().as_secs() < 60, "removed entries are not dropped");
        thread::yield_now();
    }
}
