//! Tests of states that are visible only for an instant: the test freezes the instant by holding
//! the lock for which the other threads wait. And tests of limits that only private parts reach.
//!
//! Other tests cannot reach these states reliably. After a change of the lock order in
//! [`raw`](super) a thread may block; if it is not the test's own, the test fails after 60 seconds,
//! far more than a slow machine needs.
//!
//! Numbers such as R2 are those of docs/INVARIANTS.md.

#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
use super::super::chain::Chain;
use super::super::key::Key;
use super::super::shards::shard::Shard;
use super::super::table::{ListTable, Pair};
use super::super::tests::{item, Item};
use super::{Writer, PAIRS_MAX};
use crate::list_lru::{sweep, Swept};
use crate::rcu::{pin, Retired};
#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
use crate::Memcg;
use crate::{ListLru, MemcgTree, NodeId};
use core::ptr;
use core::time::Duration;
use std::thread;
use std::time::Instant;

const N0: NodeId = NodeId::ZERO;

/// Waits until `is_so` returns true; fails after 60 seconds.
fn wait(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the awaited state was not reached");
        thread::yield_now();
    }
}

#[test]
fn r2_calls_on_a_dead_list_that_is_still_in_the_table_use_the_parents_list_without_waiting() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::<Item>::new();
    let (moved, late) = (item(0), item(1));
    lru.add(moved.clone(), &group, N0).unwrap();
    thread::scope(|s| {
        // While this lock is held, nothing leaves the table.
        let writer = lru.raw.writer.lock();
        let end = s.spawn(|| group.offline().unwrap());
        wait(|| lru.count_one(tree.root(), N0) == 1);
        assert!(lru.del(&moved).is_some(), "for which both lists' locks are needed, so they are free again");
        assert!(lru.is_populated(&group, N0) && !end.is_finished());
        lru.add(late.clone(), &group, N0).unwrap();
        assert_eq!(lru.count_one(tree.root(), N0), 1);
        let prepare = s.spawn(|| lru.prepare(&group, N0).map(drop));
        wait(|| prepare.is_finished());
        drop(writer);
    });
    assert!(!lru.is_populated(&group, N0));
    lru.assert_valid();
    assert!(lru.del(&late).is_some());
}

/// Checks that the first add to `group` sleeps while `lock` is held. An add that tried again and
/// again would keep a holder of lower priority from running. (Without `std`, locks spin.)
#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
fn first_add_sleeps_under<L>(lru: &ListLru<Item>, group: &Memcg, lock: L) {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::scope(|s| {
        s.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            lru.add(item(0), group, N0).unwrap();
        });
        let stat = std::format!("/proc/self/task/{}/stat", receiver.recv().unwrap());
        let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
        // A thread may sleep for an instant for other reasons, such as a page fault.
        wait(|| {
            (0..10).all(|_| {
                thread::sleep(Duration::from_millis(2));
                sleeps()
            })
        });
        drop(lock);
    });
    assert_eq!(lru.count_one(group, N0), 1);
}

#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
#[test]
fn a_first_add_sleeps_until_the_lock_that_it_needs_is_free() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(tree.root(), N0).unwrap());
    let [a, b, c] = ["a", "b", "c"].map(|name| tree.root().create(name).unwrap());
    let guard = pin();
    first_add_sleeps_under(&lru, &a, Chain::lock(&a));
    first_add_sleeps_under(&lru, &b, lru.raw.writer.lock());
    first_add_sleeps_under(&lru, &c, lru.raw.lock_one(tree.root(), N0, 0, &guard));
}

#[test]
fn l11_a_walk_of_zero_items_takes_no_lock() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    lru.add(item(0), tree.root(), N0).unwrap();
    thread::scope(|s| {
        let guard = pin();
        let list = lru.raw.lock_one(tree.root(), N0, 0, &guard).unwrap();
        let walk = s.spawn(|| lru.walk_one(tree.root(), N0, &mut 0, |_| panic!("nothing is to be shown")));
        wait(|| walk.is_finished());
        drop(list);
    });
}

#[test]
fn a_sweep_skips_a_list_whose_lock_is_held() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(tree.root(), N0).unwrap());
    thread::scope(|s| {
        let guard = pin();
        let list = lru.raw.lock_one(tree.root(), N0, 0, &guard).unwrap();
        let swept = s.spawn(|| sweep(tree.root()));
        wait(|| swept.is_finished());
        drop(list);
        assert_eq!(swept.join().unwrap(), Swept::default());
    });
}

#[test]
fn a_walk_that_locks_a_list_after_its_shards_were_joined_walks_only_the_list() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(tree.root(), N0).unwrap());
    assert!(lru.split_now(tree.root(), N0));
    let guard = pin();
    let Some(Pair::ShardSet(split)) = lru.raw.lookup(Key::new(tree.root(), N0), &guard) else { panic!("it was split") };
    let mut whole = split.whole().lock(&guard);
    let (begin, lists, _) = split.begin_walk(&mut whole, 1, &mut split.parts()).unwrap();
    assert_eq!((begin, lists), (0, 1 + split.shards().count()));
    split.end_walk(&mut whole, 0);
    drop(whole);
    assert!(lru.join_shards_now(tree.root(), N0));
    assert!(split.begin_walk(&mut split.whole().lock(&guard), 1, &mut split.parts()).is_none());
}

#[test]
fn shard_sets_and_shards_have_their_own_link_for_the_retire_queue() {
    fn has_room<T: Retired>(retired: &T) -> bool {
        let at = ptr::from_ref(retired).addr();
        (at..at + size_of_val(retired)).contains(&ptr::from_ref(retired.link()).addr())
    }
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(tree.root(), N0).unwrap());
    assert!(lru.split_now(tree.root(), N0));
    let guard = pin();
    let Some(Pair::ShardSet(split)) = lru.raw.lookup(Key::new(tree.root(), N0), &guard) else { panic!("it was split") };
    assert!(has_room(split));
    for one in split.shards() {
        // SAFETY: `one` is a shard's list, and `guard` keeps the shard from being freed.
        assert!(has_room(unsafe { &*Shard::of(one) }));
    }
}

#[test]
fn creation_of_more_lists_than_the_maximum_is_refused() {
    let writer = |live| Writer { live, used: 0, split: 0 };
    let most = writer(PAIRS_MAX - 1).capacity_needed().map(ListTable::used_max);
    assert!(most.is_some_and(|most| most >= PAIRS_MAX as usize));
    assert_eq!(writer(PAIRS_MAX).capacity_needed(), None);
}

#[test]
fn l16_a_list_stays_after_any_number_of_leaked_prepared_guards() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    core::mem::forget(lru.prepare(tree.root(), N0).unwrap());
    // Shortcut for a loop that would take a minute or two.
    let n = u64::from(u32::MAX) - 2;
    lru.raw.lock_one(tree.root(), N0, 0, &pin()).unwrap().forget_refs(n);
    (0..10).for_each(|_| core::mem::forget(lru.prepare(tree.root(), N0).unwrap()));
    let it = item(0);
    lru.add(it.clone(), tree.root(), N0).unwrap();
    assert!(lru.del(&it).is_some());
    (0..3).for_each(|_| _ = sweep(tree.root()));
    assert!(lru.is_populated(tree.root(), N0), "a `Prepared` may still be in use");
    lru.add(it.clone(), tree.root(), N0).unwrap();
    assert_eq!(lru.count_one(tree.root(), N0), 1);
    lru.assert_valid();
}
