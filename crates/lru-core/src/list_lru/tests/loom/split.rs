//! Splitting and joining of lists, concurrent with their users.
//!
//! The functions `…_beside_…` run one race each, and are shared by the test that passes and its
//! `fails_with_` twins. A split list has two shards, the minimum, as under loom one processor is
//! assumed: with more shards there would be too many orders.
//!
//! Numbers such as L4 and R8 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each ordering, and each decision without a lock, has a twin that fails
//! (docs/ORDERINGS.md).

use super::listener::Bit;
use super::{world, world_heard_by, World, N0};
use crate::list_lru::shards::set_cpu_hint;
use crate::list_lru::tests::item;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{model, with_mutant};
use crate::{ListLru, Occupancy};
use alloc::sync::Arc;
use loom::thread;

/// Creates a world whose child group has a split list. The current thread adds to the first shard.
fn split_world_heard_by(listener: Option<Arc<dyn Occupancy>>) -> &'static World {
    let w = world_heard_by(listener);
    drop(w.lru.prepare(&w.child, N0).unwrap());
    assert!(w.lru.split_now(&w.child, N0));
    set_cpu_hint(0);
    w
}

fn split_world() -> &'static World {
    split_world_heard_by(None)
}

/// Returns the number of items that a walk visits.
fn shown(lru: &ListLru<super::Item>, memcg: &crate::Memcg) -> usize {
    let mut shown = 0;
    lru.walk_one(memcg, N0, &mut u64::MAX.clone(), |it| {
        shown += 1;
        it.skip()
    });
    shown
}

// === concurrent with a split ===

fn add_beside_split() {
    let w = world();
    drop(w.lru.prepare(&w.child, N0).unwrap());
    let other = thread::spawn(move || w.lru.split_now(&w.child, N0));
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!((w.lru.count_one(&w.child, N0), shown(&w.lru, &w.child)), (1, 1));
    w.end();
}

#[test]
fn an_add_during_a_split_reaches_the_list_or_a_shard() {
    model(add_beside_split);
}

#[test]
#[should_panic]
fn fails_with_split_relaxed() {
    with_mutant("split_relaxed", || model(add_beside_split));
}

#[test]
fn l4_a_del_during_a_split_finds_its_item() {
    model(|| {
        let w = world();
        let it = item(0);
        w.lru.add(it.clone(), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.lru.split_now(&w.child, N0));
        assert!(w.lru.del(&it).is_some());
        other.join().unwrap();
        assert_eq!(w.lru.count_one(&w.child, N0), 0);
        w.end();
    });
}

#[test]
fn l13_a_walk_during_a_split_visits_an_item_once() {
    model(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = thread::spawn(move || {
            w.lru.split_now(&w.child, N0);
            w.lru.add(item(1), &w.child, N0).unwrap();
        });
        let n = shown(&w.lru, &w.child);
        assert!(n == 1 || n == 2, "each item is shown once");
        other.join().unwrap();
        w.end();
    });
}

fn offline_beside_split() {
    let w = world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    w.lru.split_now(&w.child, N0);
    other.join().unwrap();
    assert_eq!((w.lru.count_one(w.tree.root(), N0), w.lru.pairs()), (1, 1));
    w.end();
}

#[test]
fn r1_l8_a_dying_groups_list_is_not_split() {
    model(offline_beside_split);
}

#[test]
#[should_panic]
fn r1_fails_with_split_without_chain() {
    with_mutant("split_without_chain", || model(offline_beside_split));
}

// === concurrent with the end of shards ===

fn add_beside_end() {
    let w = split_world();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    w.lru.add(item(0), &w.child, N0).unwrap();
    assert!(other.join().unwrap() || w.lru.shards(&w.child, N0) != 0);
    assert_eq!((w.lru.count_one(&w.child, N0), shown(&w.lru, &w.child)), (1, 1));
    w.end();
}

#[test]
fn r8_an_add_during_a_join_finds_a_live_list() {
    model(add_beside_end);
}

#[test]
#[should_panic]
fn fails_with_parts_die_before_they_are_out() {
    with_mutant("parts_die_before_they_are_out", || model(add_beside_end));
}

#[test]
#[should_panic]
fn r8_fails_with_free_without_waiting_of_a_shard() {
    with_mutant("free_without_waiting", || model(add_beside_end));
}

fn del_beside_end() {
    let w = split_world();
    let it = item(0);
    w.lru.add(it.clone(), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    assert!(w.lru.del(&it).is_some(), "it is on a list throughout");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(&w.child, N0), 0);
    w.end();
}

#[test]
fn l4_a_del_during_a_join_finds_its_item() {
    model(del_beside_end);
}

#[test]
#[should_panic]
fn l4_fails_with_parts_uncounted() {
    with_mutant("parts_uncounted", || model(del_beside_end));
}

fn walk_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    set_cpu_hint(1);
    w.lru.add(item(1), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    assert_eq!(shown(&w.lru, &w.child), 2, "each once");
    other.join().unwrap();
    w.end();
}

#[test]
fn l11_a_walk_during_a_join_visits_each_item_once() {
    model(walk_beside_end);
}

#[test]
#[should_panic]
fn l11_fails_with_end_parts_under_a_walk() {
    with_mutant("end_parts_under_a_walk", || model(walk_beside_end));
}

fn count_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    assert!(w.lru.count_one(&w.child, N0) <= 1, "never above the number of items (L2)");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(&w.child, N0), 1);
    w.end();
}

#[test]
fn l2_a_count_during_a_join_is_not_too_high() {
    model(count_beside_end);
}

#[test]
#[should_panic]
fn l2_fails_with_count_without_second_look() {
    with_mutant("count_without_second_look", || model(count_beside_end));
}

#[test]
#[should_panic]
fn l2_fails_with_end_parts_without_fence() {
    with_mutant("end_parts_without_fence", || model(count_beside_end));
}

fn count_node_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    let counted = w.lru.count_node(N0);
    assert!(counted >= 1, "it is on a list or a shard throughout (L3)");
    assert!(counted <= 3, "as one of a shard, once more as one of a shard that ends, and as one of the list");
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), 1);
    w.end();
}

#[test]
fn r11_l3_a_nodes_count_is_not_too_low_during_a_join() {
    model(count_node_beside_end);
}

#[test]
#[should_panic]
fn r11_fails_with_count_node_once() {
    with_mutant("count_node_once", || model(count_node_beside_end));
}

#[test]
#[should_panic]
fn r11_fails_with_ending_parts_uncounted() {
    with_mutant("ending_parts_uncounted", || model(count_node_beside_end));
}

// === listeners ===

fn add_to_part_beside_clear() {
    let bit = Arc::new(Bit(AtomicBool::new(true)));
    let w = split_world_heard_by(Some(bit.clone()));
    let other = thread::spawn(move || w.lru.add(item(0), &w.child, N0).unwrap());
    bit.clear_if_empty(&w.lru, &w.child);
    other.join().unwrap();
    assert!(bit.0.load(Ordering::Relaxed), "an object must not be hidden");
    w.end();
}

#[test]
fn l10_a_listener_does_not_miss_an_item_on_a_shard() {
    model(add_to_part_beside_clear);
}

#[test]
#[should_panic]
fn l10_fails_with_listener_without_fence() {
    with_mutant("listener_without_fence", || model(add_to_part_beside_clear));
}

fn clear_beside_end() {
    let bit = Arc::new(Bit(AtomicBool::new(true)));
    let w = split_world_heard_by(Some(bit.clone()));
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.join_shards_now(&w.child, N0));
    bit.clear_if_empty(&w.lru, &w.child);
    other.join().unwrap();
    assert!(bit.0.load(Ordering::Relaxed), "an object must not be hidden");
    w.end();
}

#[test]
fn l10_a_listener_does_not_miss_an_item_that_a_join_moves() {
    model(clear_beside_end);
}

#[test]
#[should_panic]
fn l10_fails_with_end_parts_in_silence() {
    with_mutant("end_parts_in_silence", || model(clear_beside_end));
}

// === the group's offline ===

#[test]
fn r1_an_add_to_a_shard_during_offline_reaches_the_parents_list() {
    model(|| {
        let w = split_world();
        let other = thread::spawn(move || w.child.offline().unwrap());
        w.lru.add(item(0), &w.child, N0).unwrap();
        other.join().unwrap();
        assert_eq!((w.lru.count_one(&w.child, N0), w.lru.count_one(w.tree.root(), N0)), (0, 1));
        w.end();
    });
}

#[test]
fn r2_r8_a_del_from_a_shard_during_offline_finds_its_item() {
    model(|| {
        let w = split_world();
        let it = item(0);
        w.lru.add(it.clone(), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        assert!(w.lru.del(&it).is_some(), "it is on a list throughout");
        other.join().unwrap();
        assert_eq!(w.lru.count_node(N0), 0);
        w.end();
    });
}

fn look_beside_offline() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    let n = shown(&w.lru, &w.child) + shown(&w.lru, w.tree.root());
    assert_ne!(n, 0, "an item is not out of sight between two lists");
    other.join().unwrap();
    w.end();
}

#[test]
fn r2_an_item_on_a_shard_is_always_found_during_offline() {
    model(look_beside_offline);
}

#[test]
#[should_panic]
fn r2_fails_with_dead_part_without_waiting() {
    with_mutant("dead_part_without_waiting", || model(look_beside_offline));
}
