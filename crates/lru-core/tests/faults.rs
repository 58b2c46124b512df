//! Threads that die in the middle, and callbacks that do what they should not: no lock is kept, nothing is lost or freed twice, and
//! memory that waits for readers does not wait for the dead.

#![cfg(all(feature = "std", not(lowwater_loom)))]

use lowwater_lru_core::list_lru::{sweep, Swept};
use lowwater_lru_core::{linked, Bytes, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Occupancy, OfflineHook};
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

struct Item {
    links: Links,
    alive: Arc<AtomicUsize>,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

impl Drop for Item {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

fn item(alive: &Arc<AtomicUsize>) -> Arc<Item> {
    alive.fetch_add(1, Relaxed);
    Arc::new(Item { links: Links::new(), alive: Arc::clone(alive) })
}

fn empty(lru: &ListLru<Item>, groups: &[Memcg]) {
    for group in groups {
        let mut all = Isolated::new();
        lru.walk_one(group, N0, &mut u64::MAX.clone(), |it| it.isolate(&mut all));
    }
}

#[test]
fn threads_that_die_inside_of_walks_take_nothing_along() {
    let tree = MemcgTree::new(0);
    let groups: Vec<_> = (0..4).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let lru = ListLru::<Item>::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut added = 0;
    for round in 0..60_usize {
        let group = &groups[round % 4];
        for _ in 0..10 {
            lru.add(item(&alive), group, N0).unwrap();
            added += 1;
        }
        let died = std::thread::scope(|s| {
            let walker = s.spawn(|| {
                let mut isolated = Isolated::new();
                let mut shown = 0;
                lru.walk_one(group, N0, &mut u64::MAX.clone(), |it| {
                    shown += 1;
                    let now = shown == 1 + round % 9;
                    match round % 6 {
                        // Dies with the list's lock held,
                        0 => {
                            assert!(!now, "dies");
                            it.skip()
                        }
                        // with some taken off onto a list of its own,
                        1 => {
                            assert!(!now, "dies");
                            it.isolate(&mut isolated)
                        }
                        // after it has moved some,
                        2 => {
                            assert!(!now, "dies");
                            it.rotate()
                        }
                        // without the lock, its mark left on the list,
                        3 => {
                            let unlocked = it.unlock();
                            assert!(!now, "dies");
                            unlocked.retry()
                        }
                        // with an item in its hands that is on no list,
                        4 => {
                            let (handle, unlocked) = it.remove();
                            assert!(!now, "dies");
                            drop(handle);
                            unlocked.retry()
                        }
                        // inside of another walk's callback.
                        _ => {
                            let unlocked = it.unlock();
                            lru.walk_one(group, N0, &mut 3, |it| {
                                assert!(!now, "dies");
                                it.skip()
                            });
                            unlocked.retry()
                        }
                    }
                });
            });
            walker.join().is_err()
        });
        assert!(died, "round {round}");
        lru.assert_valid();
        let counted: u64 = groups.iter().map(|group| lru.count_one(group, N0)).sum();
        assert_eq!(counted as usize, alive.load(Relaxed), "what is not counted is freed (round {round})");
    }
    assert!(added > alive.load(Relaxed), "some went with their walkers");
    empty(&lru, &groups);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn an_occupancy_or_hook_that_panics_loses_no_item() {
    struct Bad(AtomicUsize);
    impl Occupancy for Bad {
        fn occupied(&self, _: &Memcg, _: NodeId) {
            let nth = self.0.fetch_add(1, Relaxed);
            assert!(nth % 2 == 1, "the listener's own fault");
        }
    }
    struct BadHook;
    impl OfflineHook for BadHook {
        fn offline(&self, _: &Memcg, _: &Memcg) {
            panic!("the hook's own fault");
        }
    }
    let tree = MemcgTree::new(0);
    tree.add_hook(Arc::new(BadHook));
    let lru = ListLru::<Item>::with_occupancy(Arc::new(Bad(AtomicUsize::new(0))));
    let alive = Arc::new(AtomicUsize::new(0));
    for round in 0..20 {
        let group = tree.root().create("g").unwrap();
        let it = item(&alive);
        let added = catch_unwind(AssertUnwindSafe(|| lru.add(Arc::clone(&it), &group, N0)));
        drop(it);
        lru.assert_valid();
        assert_eq!(lru.count_node(N0) as usize, alive.load(Relaxed), "round {round}: {:?}", added.is_ok());
        let died = catch_unwind(AssertUnwindSafe(|| group.offline()));
        lru.assert_valid();
        assert_eq!(lru.count_node(N0) as usize, alive.load(Relaxed));
        drop((died, group));
    }
    empty(&lru, &[tree.root().clone()]);
    assert_eq!(alive.load(Relaxed), 0);
}

#[test]
fn lists_can_be_used_while_a_thread_is_ending() {
    struct AtEnd(ListLru<Item>, MemcgTree, Arc<AtomicUsize>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let Self(lru, tree, alive) = self;
            let group = tree.root().create("at the end").unwrap();
            let it = item(alive);
            lru.add(Arc::clone(&it), &group, N0).unwrap();
            group.offline().unwrap();
            assert_eq!(lru.count_one(tree.root(), N0), 2);
            lru.assert_valid();
            lru.del(&it).unwrap();
            sweep(tree.root());
        }
    }
    // Before or after the lists' own, whatever the order of ends is.
    thread_local! {
        static EARLY: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let alive = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let world = || {
            let (lru, tree) = (ListLru::new(), MemcgTree::new(2));
            lru.add(item(&alive), tree.root(), N0).unwrap();
            AtEnd(lru, tree, Arc::clone(&alive))
        };
        let thread = std::thread::spawn({
            let (a, b) = (world(), world());
            move || {
                EARLY.with_borrow_mut(|early| *early = Some(a));
                let (lru, tree) = (ListLru::<Item>::new(), MemcgTree::new(2));
                lru.count_one(tree.root(), N0);
                tree.root().create("g").unwrap().try_charge(Bytes::new(10)).map(drop).unwrap();
                LATE.with_borrow_mut(|late| *late = Some(b));
            }
        });
        thread.join().unwrap();
    }
    assert_eq!(alive.load(Relaxed), 0, "the lists went with their threads, and their items with them");
}

#[test]
fn memory_does_not_wait_for_threads_that_are_gone() {
    let tree = MemcgTree::new(0);
    let lru = ListLru::<Item>::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let round = || {
        let died = std::thread::scope(|s| {
            let dies = || {
                let group = tree.root().create("short").unwrap();
                lru.add(item(&alive), &group, N0).unwrap();
                lru.walk_one(&group, N0, &mut 1, |_| std::panic::panic_any("dies inside of a walk"));
            };
            s.spawn(dies).join().is_err()
        });
        assert!(died);
        tree.root().child("short").unwrap().offline().unwrap();
        empty(&lru, &[tree.root().clone()]);
    };
    (0..50).for_each(|_| round());
    while sweep(tree.root()) != Swept::default() {}
    let after_some = (tree.footprint(), lru.footprint());
    (0..500).for_each(|_| round());
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!((tree.footprint(), lru.footprint()), after_some);
    assert_eq!((alive.load(Relaxed), lru.pairs()), (0, 0));
}
