//! The races of a group's offline (R1 to R11), and orderings that were once wrong.
//!
//! Numbers such as R11 are those of docs/INVARIANTS.md.
//!
//! A function `…_beside_…` runs a race once and checks its result; one test calls it without a
//! mutant, and each test with `fails_with_` in its name with one. Bugs that Linux had are named
//! with its versions.
//!
//! A change must ensure that each ordering, and each decision without a lock, has a twin that fails
//! (docs/ORDERINGS.md).

use super::{world, World, N0};
use crate::list_lru::tests::{item, Item};
use crate::sync::atomic::Ordering;
use crate::sync::{model, with_mutant};
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId, Occupancy, OfflineHook};
use alloc::boxed::Box;
use alloc::sync::Arc;
use loom::thread;

/// R1: an add that populates, concurrent with the group's offline.
fn add_beside_offline() {
    let w = world();
    let other = { thread::spawn(move || w.child.offline().unwrap()) };
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!((w.lru.count_one(&w.child, N0), w.lru.count_one(w.tree.root(), N0)), (0, 1));
    assert_eq!(w.lru.pairs(), 1, "a dead group is not populated (L7, L8)");
    w.end();
}

#[test]
fn r1_an_add_during_offline_reaches_the_parents_list() {
    model(add_beside_offline);
}

/// R2: a del concurrent with the splice.
fn del_beside_offline() {
    let w = world();
    let it = item(0);
    w.lru.add(it.clone(), &w.child, N0).unwrap();
    let other = { thread::spawn(move || w.child.offline().unwrap()) };
    assert!(w.lru.del(&it).is_some(), "it is on a list throughout");
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), 0);
    w.end();
}

#[test]
fn r2_r8_a_del_during_offline_finds_its_item() {
    model(del_beside_offline);
}

/// R2: a promotion concurrent with the splice. Whether it comes before or after the splice, the
/// item that was younger is the older one afterwards.
fn promote_beside_offline() {
    let w = world();
    let (promoted, other) = (item(0), item(1));
    w.lru.add(promoted.clone(), &w.child, N0).unwrap();
    w.lru.add(other, &w.child, N0).unwrap();
    let end = thread::spawn(move || w.child.offline().unwrap());
    assert!(w.lru.promote(&promoted), "it is on a list throughout");
    end.join().unwrap();
    assert_eq!(w.lru.memcg_of(&promoted).as_ref(), Some(w.tree.root()));
    let mut is_promoted = alloc::vec::Vec::new();
    w.lru.walk_one(w.tree.root(), N0, &mut 3, |it| {
        is_promoted.push(core::ptr::eq(it.item(), &*promoted));
        it.skip()
    });
    assert_eq!(is_promoted, [false, true]);
    w.end();
}

#[test]
fn r2_a_promotion_during_offline_moves_its_item() {
    model(promote_beside_offline);
}

#[test]
#[should_panic]
fn r2_fails_with_home_without_forward() {
    with_mutant("home_without_forward", || model(promote_beside_offline));
}

/// R8: a list is found in the table while its group goes offline.
fn lookup_beside_offline() {
    let w = world();
    drop(w.lru.prepare(&w.child, N0).unwrap());
    let other = thread::spawn(move || w.child.offline().unwrap());
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

#[test]
fn r8_a_list_is_freed_after_its_readers_have_left() {
    model(lookup_beside_offline);
}

#[test]
#[should_panic]
fn r8_fails_with_free_without_waiting_of_a_list() {
    with_mutant("free_without_waiting", || model(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_fails_with_pin_relaxed() {
    with_mutant("pin_relaxed", || model(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_fails_with_unpin_relaxed() {
    with_mutant("unpin_relaxed", || model(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_fails_with_collect_relaxed() {
    with_mutant("collect_relaxed", || model(lookup_beside_offline));
}

#[test]
fn r7_a_walk_during_offline_visits_an_item_at_most_once() {
    model(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = { thread::spawn(move || w.child.offline().unwrap()) };
        let mut private = Isolated::new();
        let mut removed = w.lru.walk_one(&w.child, N0, &mut 1, |it| it.isolate(&mut private));
        other.join().unwrap();
        removed += w.lru.walk_one(w.tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
        assert_eq!((removed, private.len()), (1, 1));
        w.end();
    });
}

/// R2: looks for the only item, on the child's list and then on its parent's.
fn look_beside_offline() {
    let w = world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    let mut shown = 0;
    for group in [&w.child, w.tree.root()] {
        w.lru.walk_one(group, N0, &mut 1, |it| {
            shown += 1;
            it.skip()
        });
    }
    assert_ne!(shown, 0, "an item is not out of sight between two lists");
    other.join().unwrap();
    w.end();
}

#[test]
fn r2_an_item_is_always_found_on_a_list_during_offline() {
    model(look_beside_offline);
}

/// The behaviour of Linux 6.13 to 7.1.
#[test]
#[should_panic]
fn r2_fails_with_erase_before_drain() {
    with_mutant("erase_before_drain", || model(look_beside_offline));
}

#[test]
#[should_panic]
fn r1_fails_with_populate_without_dying_check() {
    with_mutant("populate_without_dying_check", || model(add_beside_offline));
}

/// A listener with a bit for each of the two groups.
#[derive(Default)]
struct Bits {
    root: core::sync::atomic::AtomicBool,
    child: core::sync::atomic::AtomicBool,
}

impl Occupancy for Bits {
    fn occupied(&self, memcg: &Memcg, _node: NodeId) {
        let bit = if memcg.depth() == 0 { &self.root } else { &self.child };
        bit.store(true, Ordering::Relaxed);
    }
}

fn bits_and_world() -> (Arc<Bits>, &'static World) {
    let bits = Arc::new(Bits::default());
    let tree = MemcgTree::new(1);
    let child = tree.root().create("c").unwrap();
    let lru = ListLru::with_occupancy(bits.clone());
    (bits, Box::leak(Box::new(World { tree, child, lru })))
}

/// R3: an add that may go to the parent, concurrent with the group's offline.
fn bit_beside_offline() {
    let (bits, w) = bits_and_world();
    let other = thread::spawn(move || w.child.offline().unwrap());
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    assert!(bits.root.load(Ordering::Relaxed), "the bit of the list's group is set (L10)");
    w.end();
}

#[test]
fn r3_l10_the_listener_is_called_for_the_group_of_the_list() {
    model(bit_beside_offline);
}

/// The behaviour of Linux 4.19 to 7.1.
#[test]
#[should_panic]
fn r3_fails_with_bit_of_the_passed() {
    with_mutant("bit_of_the_passed", || model(bit_beside_offline));
}

#[test]
#[should_panic]
fn r3_fails_with_bit_of_the_dying() {
    with_mutant("bit_of_the_dying", || model(bit_beside_offline));
}

/// R4: an offline hook finds the items on the parent's list already.
#[test]
fn r4_lists_are_reparented_before_offline_hooks_run() {
    struct Hears(&'static ListLru<Item>, Arc<core::sync::atomic::AtomicBool>);
    impl OfflineHook for Hears {
        fn offline(&self, dying: &Memcg, parent: &Memcg) {
            assert_eq!(self.0.count_one(dying, N0), 0);
            self.1.store(true, Ordering::Relaxed);
            self.0.walk_one(parent, N0, &mut 1, |it| it.skip());
        }
    }
    model(|| {
        let w = world();
        let heard = Arc::new(core::sync::atomic::AtomicBool::new(false));
        w.tree.add_hook(Arc::new(Hears(&w.lru, heard.clone())));
        let it = item(0);
        w.lru.add(it.clone(), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        assert!(w.lru.del(&it).is_some());
        other.join().unwrap();
        assert!(heard.load(Ordering::Relaxed));
        w.end();
    });
}

/// R6: a del concurrent with the drain; afterwards all counts are exact.
#[test]
fn r6_l1_a_del_during_offline_lowers_the_count_of_the_list_with_the_item() {
    model(del_and_count_beside_offline);
}

fn del_and_count_beside_offline() {
    let w = world();
    let (mine, stays) = (item(0), item(1));
    w.lru.add(mine.clone(), &w.child, N0).unwrap();
    w.lru.add(stays, &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    assert!(w.lru.del(&mine).is_some());
    assert!(w.lru.count_one(w.tree.root(), N0) <= 2, "never huge (L2)");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

/// The behaviour of Linux until 5.16.
#[test]
#[should_panic]
fn r6_fails_with_count_of_the_parent() {
    with_mutant("count_of_the_parent", || model(del_and_count_beside_offline));
}

/// R7: the group goes offline while a walk is in progress whose callback releases the lock.
#[test]
fn r7_l12_a_walk_that_released_the_lock_ends_when_its_group_dies() {
    model(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        let mut shown = 0;
        w.lru.walk_one(&w.child, N0, &mut 2, |it| {
            shown += 1;
            it.unlock().retry()
        });
        assert!(shown <= 2);
        other.join().unwrap();
        assert_eq!(w.lru.count_one(w.tree.root(), N0), 1, "an item that stayed is on the parent's list");
        w.end();
    });
}

/// R9: the `ListLru` is dropped while the group goes offline.
#[test]
fn r9_l20_dropping_the_lists_during_offline_frees_each_item_once() {
    model(|| {
        let tree = MemcgTree::new(1);
        let child = tree.root().create("c").unwrap();
        let lru = ListLru::<Item>::new();
        let it = item(0);
        lru.add(it.clone(), &child, N0).unwrap();
        let other = {
            let child = child.clone();
            thread::spawn(move || child.offline().unwrap())
        };
        drop(lru);
        other.join().unwrap();
        assert!(!it.links.is_linked());
        assert_eq!(Arc::strong_count(&it), 1);
        // Leaked: the drop of the tree is not under test.
        core::mem::forget((tree, child));
    });
}

/// R10: the last item of a dead group is removed, which frees the group's id, while a new group
/// takes an id.
#[test]
fn r10_l18_an_id_is_reused_only_after_the_groups_last_item_left() {
    model(|| {
        let w = world();
        let it = item(0);
        let dead = w.tree.root().create("d").unwrap();
        let id = dead.id();
        w.lru.add(it.clone(), &dead, N0).unwrap();
        dead.offline().unwrap();
        drop(dead);
        let other = {
            let it = it.clone();
            thread::spawn(move || assert!(w.lru.del(&it).is_some()))
        };
        let heir = w.tree.root().create("h").unwrap();
        assert_eq!(w.lru.count_one(&heir, N0), 0, "it starts clean");
        let linked = it.links.is_linked();
        assert!(!linked || heir.id() != id, "one id, two groups");
        other.join().unwrap();
        w.end();
    });
}

/// R11: a node is counted during a drain. The root's list is the first in the table, the list of
/// `child` the last: a sum that reads the former before the move and the latter after it misses the
/// item.
fn count_node_beside_offline() {
    let w = world();
    let second = w.tree.root().create("d").unwrap();
    drop(w.lru.prepare(&second, N0).unwrap());
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    let counted = w.lru.count_node(N0);
    assert!(counted >= 1, "it is on a list throughout");
    assert!(counted <= 2, "never huge");
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), 1);
    drop(second);
    w.end();
}

#[test]
fn r11_l3_a_nodes_count_is_not_too_low_during_a_drain() {
    model(count_node_beside_offline);
}

#[test]
#[should_panic]
fn r11_fails_with_count_node_once() {
    with_mutant("count_node_once", || model(count_node_beside_offline));
}

#[test]
#[should_panic]
fn r11_fails_with_move_without_fence() {
    with_mutant("move_without_fence", || model(count_node_beside_offline));
}

/// R7: if the group goes offline while the walk has released the lock, the walk's cursor moves with
/// the items.
#[test]
fn r7_a_cursor_that_moved_to_the_parents_list_is_taken_off() {
    model(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        w.lru.add(item(1), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        w.lru.walk_one(&w.child, N0, &mut 2, |it| {
            let (_gone, unlocked) = it.remove();
            unlocked.retry()
        });
        other.join().unwrap();
        w.end();
    });
}
