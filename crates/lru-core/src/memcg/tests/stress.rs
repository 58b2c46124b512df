//! Stress tests with several threads, for races that the small loom models cannot contain: of
//! charges (guarantee 4 of `tests.rs`), and of groups that come and go (1, 3 and 5).
//!
//! A change must ensure that forbidden states are looked for while the threads run, not only at the
//! end.

use alloc::format;
use alloc::vec::Vec;
use std::thread;

use crate::memcg::{Memcg, MemcgTree};
use crate::sync::atomic::{AtomicBool, Ordering};
use lowwater_base::ByteSize;

const THREADS: u64 = 4;

/// A generator of pseudo-random numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn usage_is_never_seen_above_max() {
    // Less than one thread alone would hold (100 charges of 1,500 on average), so that charges are
    // refused.
    const MAX: u64 = 100_000;
    let tree = MemcgTree::new(2);
    let parent = tree.root().create("parent").unwrap();
    parent.set_max(ByteSize::new(MAX));
    let groups: Vec<Memcg> = (0..3).map(|n| parent.create(&format!("{n}")).unwrap()).collect();
    groups.iter().for_each(|memcg| memcg.set_low(ByteSize::new(MAX / 4)));
    let stop = AtomicBool::new(false);
    let refused: u64 = thread::scope(|scope| {
        // Relaxed: the flag only ends the loop.
        let watch = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(parent.usage().get() <= MAX);
            }
        });
        let charge = |seed| {
            let (groups, mut numbers) = (&groups, Numbers(seed));
            move || {
                let (mut held, mut refused) = (Vec::new(), 0);
                for _ in 0..20_000 {
                    let memcg = &groups[numbers.below(3) as usize];
                    let bytes = ByteSize::new(numbers.below(3_000));
                    if numbers.below(2) == 0 || held.len() > 100 {
                        if let Some((memcg, bytes)) = held.pop() {
                            Memcg::uncharge(memcg, bytes);
                        }
                    }
                    match memcg.try_charge(bytes) {
                        Ok(_) => held.push((memcg, bytes)),
                        Err(_) => refused += 1,
                    }
                }
                held.into_iter().for_each(|(memcg, bytes)| memcg.uncharge(bytes));
                refused
            }
        };
        let workers: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(charge(seed))).collect();
        let refused = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        watch.join().unwrap();
        refused
    });
    assert!(refused > 0, "the limit was never reached: this test shows nothing");
    tree.assert_valid();
    tree.drain_stock();
    assert_eq!(tree.root().usage(), ByteSize::ZERO);
    tree.assert_valid();
}

/// The stock of two processors makes two limits refuse, one above the other: both stocks must be
/// drained.
#[test]
#[cfg(target_os = "linux")]
fn no_charge_fails_for_stock_of_another_processor() {
    use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    // With one processor there is one stock, and nothing to test.
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else { return };
    let tree = MemcgTree::new(second + 1);
    let parent = tree.root().create("parent").unwrap();
    let [inside, outside] = [parent.create("inside").unwrap(), tree.root().create("outside").unwrap()];
    // Each of the two groups is charged two bytes below, before `parent` is charged the rest of its
    // limit. Limits that are set after that would drain the stocks.
    let (max, charged) = (ByteSize::kib(256), ByteSize::new(2));
    parent.set_max(max);
    tree.root().set_max(max + charged);
    for (cpu, memcg) in [(first, &inside), (second, &outside)] {
        let take_stock = || {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            assert_eq!(sched_getcpu(), cpu);
            for _ in 0..2 {
                let _ = memcg.try_charge(ByteSize::new(1)).unwrap();
            }
        };
        thread::scope(|scope| scope.spawn(take_stock).join().unwrap());
        assert!(tree.in_stock(memcg) > 0);
    }
    assert!(parent.try_charge(max - charged).is_ok());
    assert_eq!((parent.usage(), tree.root().usage()), (max, max + charged));
}

/// Groups come and go during walks, lookups and charges; at the end, ids, sums and claims are as at
/// the start.
#[test]
fn groups_are_created_and_ended_during_walks_lookups_and_charges() {
    let tree = MemcgTree::new(2);
    let stay: Vec<Memcg> = (0..3).map(|n| tree.root().create(&format!("stay{n}")).unwrap()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Relaxed: the flag only ends the loop.
        let walk = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let seen: Vec<Memcg> = tree.root().descendants().collect();
                for memcg in &stay {
                    assert_eq!(seen.iter().filter(|other| *other == memcg).count(), 1, "{memcg:?} in {seen:?}");
                }
            }
        });
        let workers: Vec<_> = (1..=THREADS)
            .map(|seed| {
                let (tree, stay) = (&tree, &stay);
                scope.spawn(move || {
                    let mut numbers = Numbers(seed * 7_919);
                    for _ in 0..3_000 {
                        let parent = &stay[numbers.below(3) as usize];
                        // All threads use the same names, so some find theirs taken, and use the
                        // existing group.
                        let name = format!("{}", numbers.below(3));
                        let Some(memcg) = parent.create(&name).ok().or_else(|| parent.child(&name)) else { continue };
                        memcg.set_low(ByteSize::new(numbers.below(1_000)));
                        let bytes = ByteSize::new(numbers.below(2_000));
                        let _ = memcg.try_charge(bytes).unwrap();
                        let found = tree.get(memcg.id()).expect("the handle keeps the id");
                        assert!(found == memcg || (memcg.is_descendant_of(&found) && !memcg.is_online()));
                        let _ = memcg.offline();
                        assert_ne!(tree.get(memcg.id()), Some(memcg.clone()), "it is dying, by this or another thread");
                        memcg.uncharge(bytes);
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        walk.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    tree.drain_stock();
    tree.assert_valid();
    assert_eq!(tree.len(), 4);
    assert_eq!(tree.root().usage(), ByteSize::ZERO);
    assert_eq!(tree.root().create("next").unwrap().id().get(), 4, "every id came back");
}
