//! Hooks, listeners and destructors that panic, or use the object that called them.
//!
//! Callbacks run without a lock unless documented, so all calls from them must return. A change
//! must ensure that a call that may hang runs in `within`, so that its test fails.

use crate::common::{in_a_process, within};
use crate::leaks::{item, Hook, Item};
use lowwater_base::compact_bytes::CompactBytes;
use lowwater_base::EarliestDeadline;
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::list_lru::baseline::Turn;
use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, HookId, ListLru, Memcg, MemcgError, MemcgTree, NodeId, Occupancy, OfflineHook};
use lowwater_rcu::{pin, RcuCell};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

const N0: NodeId = NodeId::ZERO;

#[test]
fn a_hook_may_do_anything_to_its_tree() {
    struct Busy {
        tree: Weak<MemcgTree>,
        id: OnceLock<HookId>,
        kept: Mutex<Vec<Memcg>>,
        calls: AtomicUsize,
    }
    impl OfflineHook for Busy {
        fn offline(&self, dying: &Memcg, parent: &Memcg) {
            let tree = self.tree.upgrade().unwrap();
            let call = self.calls.fetch_add(1, Relaxed);
            assert_eq!(dying.offline(), Err(MemcgError::AlreadyDying));
            assert_eq!(dying.create("child").err(), Some(MemcgError::Dying));
            assert!(matches!(parent.offline(), Err(MemcgError::HasChildren | MemcgError::Root)));
            let new = parent.create(&format!("made {call}")).unwrap();
            let _ = new.try_charge(ByteSize::kib(3)).unwrap();
            new.uncharge(ByteSize::kib(3));
            let mut walk = tree.root().descendants();
            walk.next();
            drop(walk);
            assert_eq!(tree.get(dying.id()).as_ref(), Some(parent));
            tree.drain_stock();
            let _ = (tree.footprint(), tree.len(), parent.children(), dying.protection(tree.root()));
            // Drops handles, ends one more group inside this end, and removes the hook itself.
            self.kept.lock().unwrap().clear();
            if call < 3 {
                new.offline().unwrap();
                self.kept.lock().unwrap().push(new);
            }
            tree.add_hook(Arc::new(Hook));
            tree.remove_hook(*self.id.get().unwrap());
        }
    }
    within("hooks", || {
        let tree = Arc::new(MemcgTree::new(2));
        let busy = Arc::new(Busy {
            tree: Arc::downgrade(&tree),
            id: OnceLock::new(),
            kept: Mutex::default(),
            calls: AtomicUsize::new(0),
        });
        busy.id.set(tree.add_hook(busy.clone())).unwrap();
        let parent = tree.root().create("parent").unwrap();
        let child = parent.create("child").unwrap();
        busy.kept.lock().unwrap().push(child.clone());
        let _ = child.try_charge(ByteSize::kib(3)).unwrap();
        child.offline().unwrap();
        assert_eq!(
            busy.calls.load(Relaxed),
            4,
            "for the child, then nested for each group that the hook created and ended"
        );
        // The fourth call did not end the group that it made. The hook has removed itself, so the
        // next ends do not call it.
        let [last] = &parent.children()[..] else { panic!("one is left: {:?}", parent.children()) };
        last.offline().unwrap();
        parent.offline().unwrap();
        assert_eq!(busy.calls.load(Relaxed), 4);
        child.uncharge(ByteSize::kib(3));
    });
}

#[test]
fn a_hook_may_end_its_tree() {
    struct Last(Mutex<Option<MemcgTree>>);
    impl OfflineHook for Last {
        fn offline(&self, dying: &Memcg, parent: &Memcg) {
            let tree = self.0.lock().unwrap().take();
            drop(tree);
            assert_eq!(parent.create("child").err(), Some(MemcgError::TreeGone));
            assert_eq!(dying.nearest_online(), *parent);
        }
    }
    within("the end of a tree", || {
        let tree = MemcgTree::new(2);
        let (last, after) = (Arc::new(Last(Mutex::default())), Arc::new(Hook));
        tree.add_hook(last.clone());
        tree.add_hook(after.clone());
        let parent = tree.root().create("parent").unwrap();
        let child = parent.create("child").unwrap();
        let _ = child.try_charge(ByteSize::kib(3)).unwrap();
        *last.0.lock().unwrap() = Some(tree);
        child.offline().unwrap();
        assert_eq!(parent.offline(), Err(MemcgError::TreeGone));
        child.uncharge(ByteSize::kib(3));
        assert_eq!(parent.usage(), ByteSize::ZERO);
        drop((parent, child));
        assert_eq!((Arc::strong_count(&last), Arc::strong_count(&after)), (1, 1), "nothing of the tree is left");
    });
}

#[test]
fn a_hook_that_panics_when_it_is_dropped_does_not_keep_the_groups() {
    struct Panics;
    impl OfflineHook for Panics {
        fn offline(&self, _: &Memcg, _: &Memcg) {}
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the hook's own fault");
        }
    }
    let tree = MemcgTree::new(2);
    let other = Arc::new(Hook);
    tree.add_hook(Arc::new(Panics));
    tree.add_hook(other.clone());
    let group = tree.root().create("group").unwrap();
    let _ = group.try_charge(ByteSize::kib(3)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(tree))).is_err());
    assert_eq!(group.create("child").err(), Some(MemcgError::TreeGone), "the tree lets go of its groups");
    assert_eq!(Arc::strong_count(&other), 1);
    group.uncharge(ByteSize::kib(3));
}

/// An [`Occupancy`] must not call the list that reports to it, because that list's lock is held.
#[test]
fn an_occupancy_may_use_other_lists_and_groups() {
    #[derive(Default)]
    struct Busy {
        other: OnceLock<ListLru<Item>>,
        dropped: Mutex<Option<(ListLru<Item>, Memcg)>>,
        calls: AtomicUsize,
    }
    impl Occupancy for Busy {
        fn occupied(&self, memcg: &Memcg, node: NodeId) {
            self.calls.fetch_add(1, Relaxed);
            let other = self.other.get().unwrap();
            other.add(item(1), memcg, node).unwrap();
            other.walk_one(memcg, node, &mut 3, |it| it.remove().1.retry());
            let child = memcg.create("child").unwrap();
            let _ = child.try_charge(ByteSize::kib(3)).unwrap();
            child.uncharge(ByteSize::kib(3));
            other.add(item(2), &child, node).unwrap();
            child.offline().unwrap();
            assert!(other.count_one(memcg, node) > 0);
            drop(child);
            let dropped = self.dropped.lock().unwrap().take();
            drop(dropped);
        }
    }
    within("adds and listeners", || {
        let tree = MemcgTree::new(2);
        let busy = Arc::new(Busy::default());
        let lists = ListLru::<Item>::with_occupancy(busy.clone());
        assert!(busy.other.set(ListLru::new()).is_ok());
        let (ends, group) = (ListLru::new(), tree.root().create("last handle").unwrap());
        ends.add(item(3), &group, N0).unwrap();
        *busy.dropped.lock().unwrap() = Some((ends, group));
        let made = tree.root().create("made").unwrap();
        for (n, memcg) in [tree.root(), &made, tree.root()].into_iter().enumerate() {
            lists.add(item(n as u64), memcg, NodeId::new(n as u16)).unwrap();
        }
        // The objects go to the root's list of node 1, which was empty: the fourth report.
        made.offline().unwrap();
        assert_eq!(busy.calls.load(Relaxed), 4);
        lists.assert_valid();
        assert_eq!((lists.count_node(N0), lists.count_one(tree.root(), NodeId::new(1))), (1, 1));
    });
}

/// The end of the group holds its lock while it calls the listener: an add to a list that the group
/// does not have yet must not wait for that lock.
#[test]
fn an_occupancy_may_add_to_a_dying_group_for_the_first_time() {
    struct Adds {
        other: ListLru<Item>,
        made: Mutex<Option<Memcg>>,
    }
    impl Occupancy for Adds {
        fn occupied(&self, _: &Memcg, node: NodeId) {
            let made = self.made.lock().unwrap().take();
            made.into_iter().for_each(|made| self.other.add(item(9), &made, node).unwrap());
        }
    }
    within("an add below the end of its group", || {
        let tree = MemcgTree::new(0);
        let adds = Arc::new(Adds { other: ListLru::new(), made: Mutex::new(None) });
        let lists = ListLru::<Item>::with_occupancy(adds.clone());
        let made = tree.root().create("made").unwrap();
        lists.add(item(1), &made, N0).unwrap();
        *adds.made.lock().unwrap() = Some(made.clone());
        made.offline().unwrap();
        let of_root = |lists: &ListLru<Item>| (lists.count_one(tree.root(), N0), lists.count_node(N0));
        assert_eq!((of_root(&lists), of_root(&adds.other)), ((1, 1), (1, 1)));
    });
}

/// Replaces itself in its cell when it is dropped, `left` times.
struct Again {
    cell: Weak<RcuCell<Again>>,
    left: u32,
    dropped: Arc<AtomicU32>,
}

impl Drop for Again {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        let Some(cell) = self.cell.upgrade().filter(|_| self.left > 0) else { return };
        let guard = pin();
        let new = Again { cell: self.cell.clone(), left: self.left - 1, dropped: self.dropped.clone() };
        cell.replace(cell.load(&guard), new, &guard);
    }
}

#[test]
fn a_value_may_replace_itself_when_it_is_dropped() {
    let dropped = within("drops that replace", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let cell = Arc::new(RcuCell::new());
        let new = |left| Again { cell: Arc::downgrade(&cell), left, dropped: dropped.clone() };
        assert!(cell.replace(None, new(5), &pin()));
        for _ in 0..10 {
            let guard = pin();
            cell.replace(cell.load(&guard), new(5), &guard);
        }
        cell.clear(&pin());
        drop(cell);
        dropped
    });
    // Dropped on any thread, after readers of other tests have left.
    let start = std::time::Instant::now();
    while Arc::strong_count(&dropped) > 1 && start.elapsed() < crate::common::PATIENCE {
        RcuCell::new().replace(None, 1, &pin());
        let cell = RcuCell::new();
        cell.replace(None, 1, &pin());
        cell.clear(&pin());
    }
    assert_eq!(Arc::strong_count(&dropped), 1, "all were dropped: {dropped:?}");
}

/// Each drop replaces and retires the value that the previous drop created, 20,000 times. If a
/// destructor's own collection freed that value, the drops would nest, and need more than the 2 MiB
/// of a thread's stack.
#[test]
fn values_that_replace_each_other_when_dropped_need_little_stack() {
    within("a chain of drops", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let cell = Arc::new(RcuCell::new());
        let new = || Again { cell: Arc::downgrade(&cell), left: 10_000, dropped: dropped.clone() };
        assert!(cell.replace(None, new(), &pin()));
        let guard = pin();
        assert!(cell.replace(cell.load(&guard), new(), &guard));
        drop(guard);
        // A collection frees a bounded number of generations.
        while dropped.load(Relaxed) < 20_000 {
            lowwater_rcu::flush();
        }
    });
}

#[test]
fn a_value_that_always_replaces_itself_does_not_keep_its_thread() {
    within("endless drops", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let cell = Arc::new(RcuCell::new());
        for _ in 0..2 {
            let guard = pin();
            let new = Again { cell: Arc::downgrade(&cell), left: u32::MAX, dropped: dropped.clone() };
            assert!(cell.replace(cell.load(&guard), new, &guard));
        }
        // Each call frees a few generations.
        while dropped.load(Relaxed) < 100 {
            lowwater_rcu::flush();
        }
    });
}

struct Panics(Arc<AtomicU32>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        panic!("the value's own fault");
    }
}

#[test]
fn a_value_that_panics_when_it_is_dropped_is_dropped_once() {
    // In a separate process: the next thread that retires a value drops it.
    in_a_process("callbacks::a_value_that_panics_when_it_is_dropped_is_dropped_once", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let cell = RcuCell::new();
        for _ in 0..10 {
            let replace = || {
                let guard = pin();
                cell.replace(cell.load(&guard), Panics(dropped.clone()), &guard)
            };
            let _ = catch_unwind(AssertUnwindSafe(replace));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| cell.clear(&pin())));
        // The values that a reader held back are left to a later call.
        for _ in 0..50 {
            let _ = catch_unwind(lowwater_rcu::flush);
        }
        assert_eq!(dropped.load(Relaxed), 10);
        assert!(cell.load(&pin()).is_none());
    });
}

#[test]
fn a_shared_value_that_panics_when_it_is_dropped_is_dropped_once() {
    let dropped = Arc::new(AtomicU32::new(0));
    let first = CompactBytes::share(Arc::new(Panics(dropped.clone())), 1);
    let second = first.clone();
    drop(first);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(second))).is_err());
    assert_eq!(dropped.load(Relaxed), 1);
    // Dropped inside the drop of another one.
    let inner = CompactBytes::share(Arc::new(Panics(dropped.clone())), 1);
    let outer = CompactBytes::share(Arc::new(inner.clone()), 1);
    drop(inner);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(outer))).is_err());
    assert_eq!((dropped.load(Relaxed), Arc::strong_count(&dropped)), (2, 1));
}

#[test]
fn comparisons_that_panic_lie_or_retry_terminate() {
    within("comparisons", || {
        let earliest = EarliestDeadline::new();
        let panics = catch_unwind(AssertUnwindSafe(|| earliest.lower(7, |_, _| panic!("the caller's fault"))));
        assert!(panics.is_err() && earliest.get() == EarliestDeadline::NONE);
        assert!(earliest.lower(7, |_, _| true) && earliest.lower(9, |_, _| true) && !earliest.lower(1, |_, _| false));
        assert_eq!(earliest.get(), 9);
        // `lower` called from inside, then a new sweep.
        let depth = AtomicU32::new(0);
        assert!(earliest.lower(5, |_, _| {
            if depth.fetch_add(1, Relaxed) < 3 {
                earliest.lower(6, |_, _| true);
                earliest.reset();
            }
            true
        }));
        assert_eq!(earliest.get(), 5);
    });
}

#[test]
fn a_current_node_function_may_use_its_topology() {
    within("a topology", || {
        static TOPOLOGY: OnceLock<Fixed> = OnceLock::new();
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let topology = TOPOLOGY.get_or_init(|| {
            Fixed::with_current(2, || {
                let call = CALLS.fetch_add(1, Relaxed);
                assert!(call != 1, "the function's own fault");
                let topology = TOPOLOGY.get().unwrap();
                if call == 2 {
                    return topology.current();
                }
                NodeId::new(topology.nodes() as u16 - 1)
            })
        });
        assert_eq!(topology.current(), NodeId::new(1));
        assert!(catch_unwind(AssertUnwindSafe(|| topology.current())).is_err());
        assert_eq!(topology.current(), NodeId::new(1));
    });
}

#[test]
fn a_walk_of_the_eager_lists_that_panics_loses_no_item() {
    within("a walk that panics", || {
        let tree = MemcgTree::new(0);
        let eager = EagerListLru::<Item>::new(1);
        let items: Vec<_> = (0..8).map(item).collect();
        for item in &items {
            eager.add(item.clone(), tree.root(), N0).unwrap();
        }
        let walk = || {
            eager.walk_one(tree.root(), N0, &mut 8, |item| match item.1 {
                0 => Turn::Remove,
                1 => Turn::Rotate,
                2 | 3 => Turn::Skip,
                _ => panic!("the callback's own fault"),
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(walk)).is_err());
        assert_eq!(Arc::strong_count(&items[0]), 1, "it was removed, and went with the walk");
        let mut order = Vec::new();
        eager.walk_one(tree.root(), N0, &mut 8, |item| {
            order.push(item.1);
            Turn::Skip
        });
        assert_eq!(order, [2, 3, 4, 5, 6, 7, 1]);
        drop(eager);
        assert!(items.iter().all(|item| Arc::strong_count(item) == 1), "none is leaked");
    });
}
