//! Groups, trees and hooks with an allocator that fails on request: each function that is
//! documented to return an error without memory does so for each of its allocations in turn, and
//! leaves nothing behind.
//!
//! An embedder in a kernel must survive each failed allocation.

// crossbeam-epoch, the read side with `lowwater_epoch`, aborts when there is no memory.
#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::{refused_after, ALLOCATED};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use lowwater_base::fallible::{try_box, TryArc};
use lowwater_lru_core::{ByteSize, HookId, Memcg, MemcgError, MemcgTree, OfflineHook};

/// A hook with a handle on a group of its tree: a cycle, which the drop of the tree breaks.
struct Counts(Arc<AtomicUsize>, Memcg);

impl OfflineHook for Counts {
    fn offline(&self, dying: &Memcg, _: &Memcg) {
        assert!(dying.is_in_tree_of(&self.1));
        self.0.fetch_add(1, Relaxed);
    }
}

/// Runs `f` with each of its allocations failing in turn, the last time with none failing. Returns
/// the number of allocations.
fn each<R>(mut f: impl FnMut() -> R, mut check: impl FnMut(R, bool)) -> usize {
    for nth in 0.. {
        let (result, refused) = refused_after(nth, &mut f);
        check(result, refused);
        if !refused {
            return nth;
        }
    }
    unreachable!("it ends")
}

/// Makes the allocations that happen once per thread.
fn warm_up() {
    let tree = MemcgTree::new(2);
    let group = tree.root().create("first").unwrap();
    let _ = group.try_charge(ByteSize::new(1)).unwrap();
    group.offline().unwrap();
}

#[test]
fn l17_each_allocation_of_a_tree_may_fail() {
    warm_up();
    for slots in [0, 2] {
        let before = ALLOCATED.get();
        let allocations = each(
            || MemcgTree::try_new(slots),
            |tree, refused| {
                match &tree {
                    Ok(tree) => assert_eq!((tree.len(), refused), (1, false)),
                    Err(error) => assert_eq!((*error, refused), (MemcgError::NoMemory, true)),
                }
                drop(tree);
                assert_eq!(ALLOCATED.get(), before, "nothing is left");
            },
        );
        // The tree, its root, the root's id and slot, and the stock.
        assert!(allocations >= 4 + usize::from(slots > 0), "{allocations} allocations");
    }
}

#[test]
fn l17_each_allocation_of_a_group_may_fail() {
    warm_up();
    let tree = MemcgTree::new(0);
    // More groups than bits in a word of ids, so that all tables grow.
    let mut groups = Vec::with_capacity(200);
    for n in 0..200 {
        let name = format!("group {n}");
        let allocations = each(
            || tree.root().create(&name),
            |made, refused| match made {
                Ok(group) => {
                    assert!(!refused, "success means that no allocation failed");
                    groups.push(group);
                }
                Err(error) => {
                    assert_eq!((error, refused), (MemcgError::NoMemory, true));
                    assert!(tree.root().child(&name).is_none(), "nothing is half made");
                    assert_eq!(tree.len(), groups.len() + 1);
                }
            },
        );
        assert!(allocations >= 2, "itself and its name");
        assert_eq!(groups[n].id().get(), n as u32 + 1, "an id that found no memory is given out again");
    }
}

#[test]
fn l17_each_allocation_of_a_hook_may_fail_and_a_removal_needs_none() {
    warm_up();
    let start = ALLOCATED.get();
    {
        let calls = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let tree = MemcgTree::new(0);
        let group = tree.root().create("g").unwrap();
        let mut ids: Vec<HookId> = Vec::with_capacity(3);
        for (n, calls) in calls.iter().enumerate() {
            let hook = || Counts(Arc::clone(calls), group.clone());
            let shared: Arc<dyn OfflineHook> = Arc::new(hook());
            // Hook 1 is in a `Box`, the others are in an `Arc`.
            let allocations = each(
                || match n {
                    1 => {
                        let boxed = try_box(hook()).ok_or(MemcgError::NoMemory)?;
                        tree.try_add_boxed_hook(boxed)
                    }
                    _ => tree.try_add_hook(Arc::clone(&shared)),
                },
                |id, refused| match id {
                    Ok(id) => ids.push(id),
                    Err(error) => assert_eq!((error, refused), (MemcgError::NoMemory, true)),
                },
            );
            assert!(allocations >= 2, "a list and its count");
        }
        let ends = || {
            calls.iter().for_each(|calls| calls.store(0, Relaxed));
            group.create("ends").unwrap().offline().unwrap();
            [0, 1, 2].map(|n: usize| calls[n].load(Relaxed))
        };
        assert_eq!(ends(), [1, 1, 1], "each once, however often it was tried");
        // A hook of another tree: its id removes nothing here.
        let other = MemcgTree::new(0);
        let theirs = other.add_hook(Arc::new(Counts(Arc::clone(&calls[0]), other.root().clone())));
        tree.remove_hook(theirs);
        assert_eq!(ends(), [1, 1, 1]);
        // Each removal without memory for a shorter list.
        for (n, expected) in [(1, [1, 0, 1]), (0, [0, 0, 1]), (2, [0, 0, 0])] {
            let ((), _) = refused_after(0, || tree.root().remove_hook(ids[n]));
            assert_eq!(ends(), expected);
        }
        tree.remove_hook(ids[0]);
        let shared: Arc<dyn OfflineHook> = Arc::new(Counts(Arc::clone(&calls[0]), group.clone()));
        tree.add_hook(shared);
        assert_eq!(ends(), [1, 0, 0]);
    }
    assert_eq!(ALLOCATED.get(), start, "groups, hooks and tree hold each other, and are gone");
}

#[test]
fn nothing_of_a_tree_is_left() {
    warm_up();
    let start = ALLOCATED.get();
    let tree = MemcgTree::new(2);
    let a = tree.root().create("a").unwrap();
    tree.add_hook(Arc::new(Counts(Arc::default(), a.clone())));
    for _ in 0..3 {
        a.create("b").unwrap().offline().unwrap();
        let _ = a.try_charge(ByteSize::new(10)).unwrap();
    }
    drop((a, tree));
    assert_eq!(ALLOCATED.get(), start);
}

#[test]
fn try_arc_without_memory_returns_none_and_drops_the_value() {
    let value = Arc::new(());
    let (made, refused) = refused_after(0, || TryArc::try_new(Arc::clone(&value)));
    assert!(made.is_none() && refused);
    assert_eq!(Arc::strong_count(&value), 1);
}
