//! Threads that panic inside an operation, and callbacks that break their contract: no lock stays
//! held, nothing is lost or freed twice, and memory that waits for readers is not held back by dead
//! threads.
//!
//! The lists of `lowwater-lru-core` are tested here as well, beside the hash chains. Some test
//! names begin with the numbers of the promises that they check (docs/INVARIANTS.md).
//!
//! A change must ensure that each panic is followed by calls that need every lock.

#![cfg(all(feature = "std", not(lowwater_loom)))]
#![forbid(unsafe_code)]

use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::list_lru::{sweep, Swept};
use lowwater_lru_core::{linked, ByteSize, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Occupancy, OfflineHook};
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use lowwater_store::hash_node;
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
fn threads_that_panic_in_walks_lose_no_items() {
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
                        // Panics with the list's lock held,
                        0 => {
                            assert!(!now, "dies");
                            it.skip()
                        }
                        // with some items isolated on its own list,
                        1 => {
                            assert!(!now, "dies");
                            it.isolate(&mut isolated)
                        }
                        // after it has rotated some,
                        2 => {
                            assert!(!now, "dies");
                            it.rotate()
                        }
                        // without the lock, with its cursor on the list,
                        3 => {
                            let unlocked = it.unlock();
                            assert!(!now, "dies");
                            unlocked.retry()
                        }
                        // with an item that is on no list,
                        4 => {
                            let (handle, unlocked) = it.remove();
                            assert!(!now, "dies");
                            drop(handle);
                            unlocked.retry()
                        }
                        // inside the callback of another walk.
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
        assert_eq!(counted as usize, alive.load(Relaxed), "objects on no list are freed (round {round})");
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
    // The lists' thread-locals are created after `EARLY` and before `LATE`. So one of the two is
    // destroyed after those of the lists, whatever the order of destruction is.
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
                tree.root().create("g").unwrap().try_charge(ByteSize::new(10)).map(drop).unwrap();
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

// === user code that panics while lists are dropped ===

/// An item with a `Drop` that panics if requested.
struct Fuse {
    links: Links,
    link: HashLink<Fuse>,
    is_lit: bool,
    alive: Arc<AtomicUsize>,
}

linked!(impl[] for Fuse { links, handle: Arc<Fuse> });
hash_node!(impl[] for Fuse { link });

impl Drop for Fuse {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
        assert!(!self.is_lit, "the item's own fault");
    }
}

/// Ten items, of which every third panics when it is dropped.
fn fuses(alive: &Arc<AtomicUsize>) -> impl Iterator<Item = Arc<Fuse>> + '_ {
    (0..10).map(|n| {
        alive.fetch_add(1, Relaxed);
        Arc::new(Fuse { links: Links::new(), link: HashLink::new(), is_lit: n % 3 == 0, alive: Arc::clone(alive) })
    })
}

/// Runs `f` on a thread, and asserts that it panics within a bounded time.
fn dies_in_time(f: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(catch_unwind(AssertUnwindSafe(f)).is_err()));
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(true), "the panic comes out, and soon");
}

/// Waits until all items are dropped; items of a table are dropped after readers of other tests
/// have left.
fn all_go(alive: &AtomicUsize) {
    let begin = std::time::Instant::now();
    while alive.load(Relaxed) != 0 {
        drop(Reader::enter());
        drop(HashChains::<Fuse>::new(1));
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{} items stay", alive.load(Relaxed));
    }
}

#[test]
fn l20_items_that_panic_when_dropped_leave_no_list_behind() {
    let tree = MemcgTree::new(0);
    let groups: Vec<_> = (0..4).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let alive = Arc::new(AtomicUsize::new(0));
    let lru = ListLru::<Fuse>::new();
    for group in groups.iter().chain([tree.root()]) {
        for fuse in fuses(&alive) {
            lru.add(fuse, group, N0).unwrap();
        }
    }
    dies_in_time(move || drop(lru));
    assert_eq!(alive.load(Relaxed), 0, "all items are dropped");
    // No list is left that leads to the owner.
    for group in groups {
        group.offline().unwrap();
    }
    assert_eq!(sweep(tree.root()), Swept::default());
}

#[test]
fn l20_lists_that_are_dropped_by_a_panic_do_not_abort_when_their_items_panic_too() {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("g").unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let lru = ListLru::<Fuse>::new();
    for fuse in fuses(&alive) {
        lru.add(fuse, &group, N0).unwrap();
    }
    let isolated: Isolated<Fuse> = fuses(&alive).collect();
    let table = HashChains::new(4);
    for (fuse, n) in fuses(&alive).zip(0_u64..) {
        assert!(table.insert(n << 60, fuse).is_ok());
    }
    let eager = EagerListLru::<Fuse>::new(1);
    for fuse in fuses(&alive) {
        eager.add(fuse, tree.root(), N0).unwrap();
    }
    dies_in_time(move || {
        let _dropped = (lru, isolated, table, eager);
        std::panic::panic_any("dies");
    });
    all_go(&alive);
    group.offline().unwrap();
}

#[test]
fn all_isolated_items_are_dropped_even_if_some_panic() {
    let alive = Arc::new(AtomicUsize::new(0));
    let isolated: Isolated<Fuse> = fuses(&alive).collect();
    dies_in_time(move || drop(isolated));
    assert_eq!(alive.load(Relaxed), 0);
    let (tree, eager) = (MemcgTree::new(0), EagerListLru::<Fuse>::new(1));
    for fuse in fuses(&alive) {
        eager.add(fuse, tree.root(), N0).unwrap();
    }
    dies_in_time(move || drop(eager));
    assert_eq!(alive.load(Relaxed), 0);
    let table = HashChains::new(1);
    for fuse in fuses(&alive) {
        assert!(table.insert(0, fuse).is_ok());
    }
    // The items are dropped later, by any thread that enters the read side, which catches their
    // panics.
    drop(table);
    all_go(&alive);
}

#[test]
fn l7_l9_a_listener_that_panics_at_a_groups_end_keeps_no_list_from_the_parent() {
    struct Deaf;
    impl Occupancy for Deaf {
        fn occupied(&self, memcg: &Memcg, _: NodeId) {
            assert!(memcg.parent().is_some(), "the listener's own fault");
        }
    }
    struct Hears(Arc<AtomicUsize>);
    impl OfflineHook for Hears {
        fn offline(&self, _: &Memcg, _: &Memcg) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let tree = MemcgTree::new(0);
    let heard = Arc::new(AtomicUsize::new(0));
    tree.add_hook(Arc::new(Hears(Arc::clone(&heard))));
    let group = tree.root().create("g").unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    // Not dropped if an assertion fails, because the drop might not return.
    let lists: Vec<_> = (0..3).map(|_| ListLru::<Item>::with_occupancy(Arc::new(Deaf))).collect();
    let lists = std::mem::ManuallyDrop::new(lists);
    let nodes = [N0, NodeId::new(1)];
    for lru in &*lists {
        for node in nodes {
            lru.add(item(&alive), &group, node).unwrap();
        }
    }
    dies_in_time({
        let group = group.clone();
        move || group.offline().unwrap()
    });
    assert_eq!(heard.load(Relaxed), 1, "the listener is notified of this end");
    for lru in &*lists {
        for node in nodes {
            assert_eq!((lru.count_one(&group, node), lru.count_one(tree.root(), node)), (0, 1));
        }
        assert_eq!(lru.pairs(), 2, "the group's own lists are gone (L7)");
        lru.assert_valid();
    }
    let id = group.id();
    drop(group);
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(std::mem::ManuallyDrop::into_inner(lists));
        done.send(())
    });
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(()), "the lists' drop ends");
    assert_eq!((alive.load(Relaxed), tree.get(id)), (0, None), "nothing names the group any more");
}

#[test]
fn s18_all_hooks_run_even_if_one_panics() {
    struct Hears(Arc<AtomicUsize>);
    impl OfflineHook for Hears {
        fn offline(&self, _: &Memcg, _: &Memcg) {
            assert!(self.0.fetch_add(1, Relaxed) % 2 == 1, "the hook's own fault");
        }
    }
    let tree = MemcgTree::new(0);
    let heard = Arc::new(AtomicUsize::new(0));
    for _ in 0..5 {
        tree.add_hook(Arc::new(Hears(Arc::clone(&heard))));
    }
    let group = tree.root().create("g").unwrap();
    dies_in_time(move || group.offline().unwrap());
    assert_eq!(heard.load(Relaxed), 5);
}

#[test]
fn l1_a_listener_that_panics_beside_many_adds_loses_no_item() {
    struct Deaf;
    impl Occupancy for Deaf {
        fn occupied(&self, _: &Memcg, _: NodeId) {
            panic!("the listener's own fault");
        }
    }
    let tree = MemcgTree::new(0);
    let lru = ListLru::<Item>::with_occupancy(Arc::new(Deaf));
    let alive = Arc::new(AtomicUsize::new(0));
    let mut items: Isolated<Item> = (0..100).map(|_| item(&alive)).collect();
    assert!(catch_unwind(AssertUnwindSafe(|| lru.add_batch(&mut items, tree.root(), N0))).is_err());
    lru.assert_valid();
    assert_eq!((lru.count_node(N0), items.len()), (1, 99), "an item is here or there");
    assert_eq!(lru.add_batch(&mut items, tree.root(), N0), Ok(99));
    let (old, new) = (item(&alive), item(&alive));
    lru.add(Arc::clone(&old), tree.root(), N0).unwrap();
    assert!(lru.replace(&old, new).is_ok());
    drop((old, lru, items));
    assert_eq!(alive.load(Relaxed), 0);
}
