//! Model checks of the map: concurrent adds, passes and group ends.
//!
//! Run with `RUSTFLAGS="--cfg lowwater_loom" cargo test --release`; each takes well under a second,
//! without a bound on preemptions.
//!
//! A `fails_with_` test repeats a check without one fence or step, and must fail.

use super::*;
use crate::deferred::Debt;
use ::loom::thread;
use alloc::sync::Arc;
use lowwater_base::sync::atomic::AtomicU64;
use lowwater_base::sync::with_mutant;
use lowwater_lru_core::MemcgTree;

const N0: NodeId = NodeId::ZERO;

/// A list as the map sees it: its number of objects.
struct List(AtomicU64);

impl List {
    fn new(objects: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(objects)))
    }

    fn add(&self) {
        // Relaxed, on purpose: the map's fences must provide the ordering.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The steps of a pass for a list that seems empty.
fn clear_if_empty(map: &Map, memcg: &Memcg, key: Key, list: &List) {
    if list.count() == 0 {
        let last = map.clear(memcg, N0, key.id);
        let is_found = list.count() > 0;
        if is_found {
            map.set(memcg, N0, key);
        }
        if !is_found || !map.index.lock(key.id).is_open(key) {
            map.retire_pair(memcg, N0, key.id, last);
        }
    }
}

/// An add beside a pass that clears the bit that an earlier add set.
fn add_meets_clear() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let (map, list) = (Arc::new(Map::new(1)), List::new(0));
        let key = map.open(0).unwrap();
        map.set(tree.root(), N0, key);
        let adder = {
            let (map, list, root) = (Arc::clone(&map), Arc::clone(&list), tree.root().clone());
            thread::spawn(move || {
                list.add();
                map.set(&root, N0, key);
            })
        };
        clear_if_empty(&map, tree.root(), key, &list);
        adder.join().unwrap();
        assert!(map.is_set(tree.root(), N0, 0), "an object is hidden");
        map.shut();
    });
}

#[test]
fn an_object_is_never_hidden() {
    add_meets_clear();
}

#[test]
#[should_panic = "an object is hidden"]
fn fails_with_set_without_fence() {
    with_mutant("set_without_fence", add_meets_clear);
}

#[test]
#[should_panic = "an object is hidden"]
fn fails_with_clear_without_fence() {
    with_mutant("clear_without_fence", add_meets_clear);
}

/// The `ShrinkerInfo` exists for another shrinker; this one has no word yet. One adder creates the
/// word, while another adder and a reader look up theirs.
#[test]
fn s16_an_info_that_grows_under_readers_loses_no_bit() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let (near, far, other) = (map.open(1).unwrap(), map.open(100).unwrap(), map.open(2).unwrap());
        map.set(tree.root(), N0, near);
        let adder = {
            let (map, root) = (Arc::clone(&map), tree.root().clone());
            thread::spawn(move || map.set(&root, N0, far))
        };
        map.set(tree.root(), N0, other);
        let mut ids = Vec::new();
        map.collect(tree.root(), N0, 0..=u32::MAX, &mut ids);
        assert!(ids.starts_with(&[1, 2]), "a reader sees a short map");
        adder.join().unwrap();
        ids.clear();
        map.collect(tree.root(), N0, 0..=u32::MAX, &mut ids);
        assert_eq!(ids, [1, 2, 100]);
        map.shut();
    });
}

/// A pass finds a `ShrinkerInfo` empty and removes it, beside an add.
#[test]
fn s11_removing_an_empty_info_loses_no_bit() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let (map, list) = (Arc::new(Map::new(1)), List::new(0));
        let (ours, theirs) = (map.open(0).unwrap(), map.open(1).unwrap());
        map.set(tree.root(), N0, ours);
        let adder = {
            let (map, root) = (Arc::clone(&map), tree.root().clone());
            thread::spawn(move || map.set(&root, N0, theirs))
        };
        clear_if_empty(&map, tree.root(), ours, &list);
        adder.join().unwrap();
        let mut ids = Vec::new();
        map.collect(tree.root(), N0, 0..=u32::MAX, &mut ids);
        assert_eq!(ids, [1]);
        assert!(
            map.summary(N0).find(tree.root().id(), &[]).is_some(),
            "the summary node exists with the `ShrinkerInfo`"
        );
        map.shut();
    });
}

/// The size of the map is measured beside the removal of a pair's debt and counts.
#[test]
fn a_footprint_beside_the_end_of_a_pair_does_not_deadlock() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let (ends, stays) = (map.open(1).unwrap(), map.open(2).unwrap());
        map.set(tree.root(), N0, ends);
        map.set(tree.root(), N0, stays);
        map.add_deferred(tree.root(), N0, ends, Debt { owed: 5, carry: 0 }, |_| u64::MAX);
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || map.footprint())
        };
        let last = map.clear(tree.root(), N0, ends.id);
        map.retire_pair(tree.root(), N0, ends.id, last);
        reader.join().unwrap();
        assert_eq!(map.owed(tree.root(), N0, ends.id), 0);
        map.shut();
    });
}

/// An add reports late for a group that has died meanwhile, or is dying.
#[test]
fn s11_r3_a_bit_set_on_a_dying_group_is_set_on_its_parent() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let key = map.open(0).unwrap();
        let child = tree.root().create("c").unwrap();
        let adder = {
            let (map, child) = (Arc::clone(&map), child.clone());
            thread::spawn(move || map.set(&child, N0, key))
        };
        child.offline().unwrap();
        map.offline(&child, tree.root());
        adder.join().unwrap();
        assert!(map.is_set(tree.root(), N0, 0), "the parent's bit is not set");
        assert!(!map.is_set(&child, N0, 0), "a dead group has a `ShrinkerInfo`");
        map.shut();
    });
}

/// A debt is recorded while its group dies: finally the parent owes it, exactly once, although it
/// has no objects of this shrinker itself. `parent_has`: another shrinker, of which it has.
fn debt_meets_a_death(parent_has: Option<u32>) {
    lowwater_base::sync::model(move || {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let key = map.open(0).unwrap();
        let child = tree.root().create("c").unwrap();
        map.set(&child, N0, key);
        if let Some(other) = parent_has {
            let other = map.open(other).unwrap();
            map.set(tree.root(), N0, other);
            // The debts are allocated here: the model does not see the ordering of a `OnceBox`.
            map.add_deferred(tree.root(), N0, other, Debt { owed: 0, carry: 1 }, |_| u64::MAX);
        }
        let debt = |owed| Debt { owed, carry: 0 };
        map.add_deferred(&child, N0, key, debt(5), |_| u64::MAX);
        let payer = {
            let (map, child) = (Arc::clone(&map), child.clone());
            thread::spawn(move || {
                let taken = map.take_deferred(&child, N0, 0, true, u64::MAX);
                map.add_deferred(&child, N0, key, taken, |_| u64::MAX);
            })
        };
        child.offline().unwrap();
        map.offline(&child, tree.root());
        payer.join().unwrap();
        assert_eq!(map.owed(tree.root(), N0, 0), 5);
        map.shut();
    });
}

#[test]
fn s18_no_debt_is_lost_in_a_death() {
    debt_meets_a_death(Some(1));
}

#[test]
fn s18_no_debt_is_lost_in_a_death_below_a_parent_without_objects() {
    debt_meets_a_death(None);
}

/// A shrinker's id ends while one of its lists reports an object.
#[test]
fn s17_no_bit_is_set_for_an_id_that_is_closed() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let key = map.open(0).unwrap();
        let adder = {
            let (map, root) = (Arc::clone(&map), tree.root().clone());
            thread::spawn(move || map.set(&root, N0, key))
        };
        map.close(key);
        let heir = map.open(0).unwrap();
        adder.join().unwrap();
        assert!(!map.is_set(tree.root(), N0, 0), "the heir inherits a bit");
        assert_eq!(map.live(), (0, 0));
        map.close(heir);
    });
}

/// A visit owes objects while another visit finds the list empty; then the id gets its next owner.
/// The bit's word stays, for another shrinker.
#[test]
fn s17_a_debt_beside_the_end_of_its_pair_is_not_left_to_the_next_owner() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let (key, other) = (map.open(1).unwrap(), map.open(2).unwrap());
        map.set(tree.root(), N0, key);
        map.set(tree.root(), N0, other);
        // The debts are allocated here: the model does not see the ordering of a `OnceBox`.
        map.add_deferred(tree.root(), N0, other, Debt { owed: 0, carry: 1 }, |_| u64::MAX);
        let visit = {
            let (map, root) = (Arc::clone(&map), tree.root().clone());
            thread::spawn(move || {
                map.add_deferred(&root, N0, key, Debt { owed: 5, carry: 0 }, |_| u64::MAX);
            })
        };
        let last = map.clear(tree.root(), N0, key.id);
        map.retire_pair(tree.root(), N0, key.id, last);
        visit.join().unwrap();
        map.close(key);
        let heir = map.open(1).unwrap();
        map.set(tree.root(), N0, heir);
        assert_eq!(map.owed(tree.root(), N0, 1), 0, "the heir inherits a debt");
        map.shut();
    });
}

/// A shrinker's id ends and is given to another while a group ends, in which the shrinker has a
/// debt. `has_bit`: the next owner has objects in the root. `is_visited`: before the id ends, a
/// visit of the root clears the bit there, whose word stays, for another shrinker.
fn next_owner_beside_an_end(has_bit: bool, is_visited: bool) {
    lowwater_base::sync::model(move || {
        let tree = MemcgTree::new(0);
        let map = Arc::new(Map::new(1));
        let (key, other) = (map.open(0).unwrap(), map.open(1).unwrap());
        let child = tree.root().create("c").unwrap();
        map.set(&child, N0, key);
        map.add_deferred(&child, N0, key, Debt { owed: 5, carry: 0 }, |_| u64::MAX);
        if is_visited {
            map.set(tree.root(), N0, key);
            map.set(tree.root(), N0, other);
            map.add_deferred(tree.root(), N0, other, Debt { owed: 0, carry: 1 }, |_| u64::MAX);
        }
        let end = {
            let (map, root, child) = (Arc::clone(&map), tree.root().clone(), child.clone());
            thread::spawn(move || {
                child.offline().unwrap();
                map.offline(&child, &root);
            })
        };
        if is_visited {
            let last = map.clear(tree.root(), N0, 0);
            map.retire_pair(tree.root(), N0, 0, last);
        }
        map.close(key);
        let heir = map.open(0).unwrap();
        if has_bit {
            map.set(tree.root(), N0, heir);
        }
        end.join().unwrap();
        assert_eq!(map.owed(tree.root(), N0, 0), 0, "the heir inherits a debt");
        assert_eq!(map.received(tree.root(), N0, 0), 0, "the heir inherits a received debt");
        assert_eq!(map.is_set(tree.root(), N0, 0), has_bit, "the heir inherits a bit");
        map.close(heir);
        map.close(other);
        assert_eq!(map.live(), (0, 0));
    });
}

#[test]
fn s17_the_end_of_a_group_leaves_no_debt_to_the_next_owner() {
    next_owner_beside_an_end(true, false);
}

#[test]
fn s17_the_end_of_a_group_beside_a_visit_leaves_no_debt_to_the_next_owner() {
    next_owner_beside_an_end(true, true);
}

#[test]
fn s17_the_end_of_a_group_sets_no_bit_of_the_next_owner() {
    next_owner_beside_an_end(false, false);
}

/// There is no memory for a bit: a resync that finds the node dirty counts the objects that the
/// caller added.
fn dirty_meets_resync() {
    lowwater_base::sync::model(|| {
        let (map, list) = (Arc::new(Map::new(1)), List::new(0));
        let adder = {
            let (map, list) = (Arc::clone(&map), Arc::clone(&list));
            thread::spawn(move || {
                list.add();
                map.mark_dirty(N0);
            })
        };
        let found = map.take_dirty(N0);
        assert!(!found || list.count() == 1, "the dirty mark is visible, and the object is not");
        adder.join().unwrap();
        assert!(found || map.take_dirty(N0), "the dirty mark is lost");
    });
}

#[test]
fn a_resync_finds_bits_that_had_no_memory() {
    dirty_meets_resync();
}

#[test]
#[should_panic(expected = "the dirty mark is visible, and the object is not")]
fn fails_with_lost_relaxed() {
    with_mutant("lost_relaxed", dirty_meets_resync);
}

/// A round beside a group's end. The parent has a word already, so its bit is set without a lock
/// that the round waits for.
fn round_meets_an_end() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let child = tree.root().create("child").unwrap();
        let map = Arc::new(Map::new(1));
        let (other, key) = (map.open(0).unwrap(), map.open(2).unwrap());
        map.set(tree.root(), N0, other);
        map.set(&child, N0, key);
        let end = {
            let (map, root, child) = (Arc::clone(&map), tree.root().clone(), child.clone());
            thread::spawn(move || {
                child.offline().unwrap();
                map.offline(&child, &root);
            })
        };
        let mark = map.ends().mark();
        let (at_root, at_child) = (map.is_set(tree.root(), N0, 2), map.is_set(&child, N0, 2));
        if at_child && !child.is_online() {
            map.ends().met_dying();
        }
        let is_found = at_root || at_child;
        assert!(is_found || map.ends().overlapped(mark), "a pass missed a moved object and is conclusive");
        end.join().unwrap();
        assert!(map.is_set(tree.root(), N0, 2));
        map.shut();
    });
}

#[test]
fn s22_a_round_that_missed_moved_objects_is_not_conclusive() {
    round_meets_an_end();
}

#[test]
#[should_panic = "a pass missed a moved object"]
fn s22_fails_with_end_finishes_early() {
    with_mutant("end_finishes_early", round_meets_an_end);
}

#[test]
#[should_panic = "a pass missed a moved object"]
fn s22_fails_with_end_begins_late() {
    with_mutant("end_begins_late", round_meets_an_end);
}

/// A visit of a parent beside the end of its child, whose debt is more than the parent's objects
/// without those of the child.
fn visit_meets_an_end() {
    lowwater_base::sync::model(|| {
        let tree = MemcgTree::new(0);
        let child = tree.root().create("child").unwrap();
        let map = Arc::new(Map::new(1));
        let key = map.open(0).unwrap();
        map.set(tree.root(), N0, key);
        map.set(&child, N0, key);
        map.add_deferred(&child, N0, key, Debt { owed: 5, carry: 0 }, |_| u64::MAX);
        // The root's debts are allocated here: the model does not see the ordering of a `OnceBox`.
        map.add_deferred(tree.root(), N0, key, Debt { owed: 0, carry: 1 }, |_| u64::MAX);
        let end = {
            let (map, root, child) = (Arc::clone(&map), tree.root().clone(), child.clone());
            thread::spawn(move || {
                child.offline().unwrap();
                map.offline(&child, &root);
            })
        };
        let received_before = map.received(tree.root(), N0, 0);
        let counted = if child.is_online() { 1 } else { 10 };
        let owed_max = |received| counted + received - received_before;
        map.add_deferred(tree.root(), N0, key, Debt { owed: 1, carry: 0 }, owed_max);
        end.join().unwrap();
        assert_eq!(map.owed(tree.root(), N0, 0), 6, "the debts of a child are lost");
        map.shut();
    });
}

#[test]
fn s18_a_visit_beside_the_end_of_a_child_keeps_its_debts() {
    visit_meets_an_end();
}

#[test]
#[should_panic = "the debts of a child are lost"]
fn s18_fails_with_forget_received() {
    with_mutant("forget_received", visit_meets_an_end);
}
