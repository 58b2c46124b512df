//! The lists with an allocator that counts and that fails on request.
//!
//! * L17, L6: each allocation of a population (the creation of a group's list and its ancestors')
//!   fails once; the lists stay valid, nothing leaks, and the next attempt succeeds.
//! * L16: the footprint follows the live lists, not those that existed before.
//! * A walk visits groups that other threads add while the walk waits for memory.
//!
//! Numbers such as L6 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each allocation of an operation fails once, and that the lists are
//! valid after it.

// crossbeam-epoch, the read side with `lowwater_epoch`, aborts when there is no memory.
#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::{meanwhile, refused_after, ALLOCATED};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowwater_lru_core::list_lru::{sweep, Swept};
use lowwater_lru_core::{linked, AddError, Links, ListLru, Memcg, MemcgTree, NodeId};

const N0: NodeId = NodeId::ZERO;

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

fn item() -> Arc<Item> {
    Arc::new(Item(Links::new()))
}

/// Serializes the tests: memory that one retires would be freed, and counted, by another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    sweep(MemcgTree::new(0).root()); // Frees the memory that the previous test retired.
    guard
}

/// Makes the allocations that happen once per thread; if these failed in a test, the thread would
/// enter the read side without a registration, and hold back all frees (a stray of `lowwater-rcu`).
fn warm_up() {
    ListLru::<Item>::new().count_one(MemcgTree::new(0).root(), N0);
}

fn chain(tree: &MemcgTree) -> Memcg {
    tree.root().create("a").unwrap().create("b").unwrap().create("c").unwrap()
}

/// Fails each allocation of one population in turn. Returns their number.
fn fail_each_allocation_of(populate: impl Fn(&ListLru<Item>, &Memcg) -> bool) -> usize {
    warm_up();
    for nth in 0.. {
        let tree = MemcgTree::new(0);
        let group = chain(&tree);
        let lru = ListLru::<Item>::new();
        let empty = lru.footprint();
        let (populated, failed) = refused_after(nth, || populate(&lru, &group));
        lru.assert_valid(); // Checks L6 among others.
        assert_eq!(populated, !failed, "the result must report whether allocation {nth} failed");
        if !failed {
            return nth;
        }
        assert!(lru.pairs() < 4, "a failed call leaves no list incomplete (L17)");
        // 64 bytes for each list; the rest bounds the table: its head, and slots of 8 bytes.
        let paid = lru.footprint().get() - empty.get();
        assert!(paid <= lru.pairs() as u64 * (64 + 8 + 16) + 32, "{paid} bytes for {} lists", lru.pairs());
        assert!(populate(&lru, &group), "there is memory again");
        lru.assert_valid();
        assert_eq!(lru.pairs(), 4);
        while sweep(tree.root()) != Swept::default() {}
        if lru.count_node(N0) == 0 {
            assert_eq!(lru.footprint(), empty);
        }
    }
    unreachable!("a population ends");
}

#[test]
fn l17_each_allocation_of_a_prepare_may_fail() {
    let _alone = alone();
    // Four lists (the root's, and those of /a, /a/b, /a/b/c), and a table that grows at least once;
    // each list and each table is one allocation.
    assert!(fail_each_allocation_of(|lru, group| lru.prepare(group, N0).is_ok()) >= 4 + 2);
}

#[test]
fn l17_each_allocation_of_a_first_add_may_fail() {
    let _alone = alone();
    warm_up();
    for nth in 0.. {
        let tree = MemcgTree::new(0);
        let group = chain(&tree);
        let lru = ListLru::<Item>::new();
        let it = item();
        let (added, failed) = refused_after(nth, || lru.add(it.clone(), &group, N0));
        lru.assert_valid();
        match added {
            Ok(()) => {
                assert_eq!(lru.count_node(N0), 1);
                assert_eq!(Arc::strong_count(&it), 2);
                let own = lru.count_one(&group, N0) == 1;
                assert_eq!(
                    own, !failed,
                    "an ancestor that has a list takes it where there is no memory for the group's"
                );
                assert!(lru.del(&it).is_some());
            }
            Err(error) => {
                assert!(failed && lru.pairs() == 0, "not even the root has a list");
                assert!(matches!(error, AddError::NoMemory(_)));
                drop(error);
            }
        }
        assert_eq!(Arc::strong_count(&it), 1, "the handle is not lost");
        if !failed {
            assert!(nth >= 4 + 2, "all allocations have failed once, {nth} in all");
            return;
        }
    }
}

#[test]
fn l17_failed_populations_leak_nothing() {
    let _alone = alone();
    let series = || fail_each_allocation_of(|lru, group| lru.prepare(group, N0).is_ok());
    // `lowwater-rcu` frees retired memory in batches of 64 objects (`BATCH` in its `garbage.rs`),
    // most of 64 bytes (4 KiB); after a while the amount that waits does not grow any more.
    const WAITING_BYTES_MAX: isize = 16 << 10;
    (0..100).for_each(|_| assert!(series() > 0));
    let before = ALLOCATED.get();
    let lists: usize = (0..2_000).map(|_| series()).sum();
    let grown = ALLOCATED.get() - before;
    assert!(lists > 10_000);
    assert!(grown.abs() < WAITING_BYTES_MAX, "{grown} bytes more after {lists} failures: two bytes each would be seen");
}

#[test]
fn l16_a_million_groups_one_after_another_leave_the_footprint_flat() {
    let _alone = alone();
    const GROUPS: usize = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    const ALIVE: usize = 10;
    let tree = MemcgTree::new(0);
    let lru = ListLru::<Item>::new();
    let bytes = || tree.footprint().get() + lru.footprint().get();
    let mut alive = std::collections::VecDeque::new();
    let (mut first, mut most) = (0, 0);
    for n in 0..GROUPS {
        let group = tree.root().create("g").or_else(|_| tree.root().create(&(n % (2 * ALIVE)).to_string())).unwrap();
        let it = item();
        lru.add(it.clone(), &group, NodeId::new((n % 2) as u16)).unwrap();
        alive.push_back((group, it));
        if alive.len() > ALIVE {
            let (group, it) = alive.pop_front().unwrap();
            lru.del(&it).unwrap();
            group.offline().unwrap();
        }
        if n == 1_000 {
            first = bytes();
        }
        if n >= 1_000 {
            most = most.max(bytes());
        }
    }
    assert!(most <= first + first / 4, "{first} bytes after a thousand, {most} after {GROUPS}");
}

/// Adds an item to the list of each of `count` more groups, which are numbered from `from`; number
/// 0 is the root.
fn add_groups(tree: &MemcgTree, lru: &ListLru<Item>, from: usize, count: usize) {
    for n in from..from + count {
        let group = if n == 0 { tree.root().clone() } else { tree.root().create(&n.to_string()).unwrap() };
        lru.add(item(), &group, N0).unwrap();
    }
}

fn shown_by_walk_node(lru: &ListLru<Item>) -> u64 {
    let mut left = 1_000;
    lru.walk_node(N0, &mut left, |it| it.skip());
    1_000 - left
}

#[test]
fn walk_node_visits_groups_that_are_added_while_it_allocates() {
    let _alone = alone();
    warm_up();
    let (tree, lru) = (MemcgTree::new(0), ListLru::<Item>::new());
    add_groups(&tree, &lru, 0, 20);
    let others = || add_groups(&tree, &lru, 20, 40);
    assert_eq!(meanwhile(0, &others, || shown_by_walk_node(&lru)), (60, true));
}

#[test]
fn l17_walk_node_without_memory_visits_as_many_groups_as_possible() {
    let _alone = alone();
    warm_up();
    let (tree, lru) = (MemcgTree::new(0), ListLru::<Item>::new());
    add_groups(&tree, &lru, 0, 17);
    assert_eq!(
        refused_after(0, || shown_by_walk_node(&lru)),
        (8, true),
        "for 17 there is none, for half of them there is"
    );
    assert_eq!(shown_by_walk_node(&lru), 17);
}
