//! Splitting and joining of lists, concurrent with their users.

use super::listener::Bit;
use super::{world, world_heard_by, World, N0};
use crate::list_lru::shards::set_place;
use crate::list_lru::tests::item;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{model, with_mutant};
use crate::{ListLru, Occupancy};
use alloc::sync::Arc;
use loom::thread;

/// Creates a world whose child group has a split list. The current thread adds to the first shard.
fn split_world_heard_by(ear: Option<Arc<dyn Occupancy>>) -> &'static World {
    let w = world_heard_by(ear);
    drop(w.lru.prepare(&w.child, N0).unwrap());
    assert!(w.lru.split_now(&w.child, N0));
    set_place(0);
    w
}

fn split_world() -> &'static World {
    split_world_heard_by(None)
}

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
fn an_add_beside_a_split_is_on_the_list_or_on_a_part() {
    model(add_beside_split);
}

#[test]
#[should_panic]
fn and_finds_a_part_that_is_not_made_when_parts_are_published_relaxed() {
    with_mutant("split_relaxed", || model(add_beside_split));
}

#[test]
fn l4_a_del_beside_a_split_finds_its_item() {
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
fn l13_a_walk_beside_a_split_shows_an_item_once() {
    model(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = thread::spawn(move || {
            w.lru.split_now(&w.child, N0);
            w.lru.add(item(1), &w.child, N0).unwrap();
        });
        let n = shown(&w.lru, &w.child);
        assert!(n == 1 || n == 2, "what was there is shown once");
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
fn r1_l8_a_list_is_not_split_whose_group_dies() {
    model(offline_beside_split);
}

#[test]
#[should_panic]
fn r1_and_is_when_it_is_split_without_the_chain() {
    with_mutant("split_without_chain", || model(offline_beside_split));
}

// === concurrent with the end of shards ===

fn add_beside_end() {
    let w = split_world();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    w.lru.add(item(0), &w.child, N0).unwrap();
    assert!(other.join().unwrap() || w.lru.parts(&w.child, N0) != 0);
    assert_eq!((w.lru.count_one(&w.child, N0), shown(&w.lru, &w.child)), (1, 1));
    w.end();
}

#[test]
fn r8_an_add_beside_the_end_of_parts_finds_where_to_go() {
    model(add_beside_end);
}

#[test]
#[should_panic]
fn and_looks_for_ever_when_parts_die_before_they_are_out() {
    with_mutant("parts_die_before_they_are_out", || model(add_beside_end));
}

#[test]
#[should_panic]
fn r8_and_reads_a_part_after_its_end_when_it_is_freed_at_once() {
    with_mutant("free_without_waiting", || model(add_beside_end));
}

fn del_beside_end() {
    let w = split_world();
    let it = item(0);
    w.lru.add(it.clone(), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    assert!(w.lru.del(&it).is_some(), "it is on a list throughout");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(&w.child, N0), 0);
    w.end();
}

#[test]
fn l4_a_del_beside_the_end_of_parts_finds_its_item() {
    model(del_beside_end);
}

#[test]
#[should_panic]
fn l4_and_not_when_the_list_does_not_count_its_parts() {
    with_mutant("parts_uncounted", || model(del_beside_end));
}

fn walk_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    set_place(1);
    w.lru.add(item(1), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    assert_eq!(shown(&w.lru, &w.child), 2, "each once");
    other.join().unwrap();
    w.end();
}

#[test]
fn l11_a_walk_beside_the_end_of_parts_shows_each_item_once() {
    model(walk_beside_end);
}

#[test]
#[should_panic]
fn l11_and_not_when_parts_end_under_it() {
    with_mutant("end_parts_under_a_walk", || model(walk_beside_end));
}

fn count_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    assert!(w.lru.count_one(&w.child, N0) <= 1, "never above what was there (L2)");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(&w.child, N0), 1);
    w.end();
}

#[test]
fn l2_a_count_beside_the_end_of_parts_is_never_too_high() {
    model(count_beside_end);
}

#[test]
#[should_panic]
fn l2_but_is_without_the_second_look() {
    with_mutant("count_without_second_look", || model(count_beside_end));
}

#[test]
#[should_panic]
fn l2_but_is_without_the_fence() {
    with_mutant("end_parts_without_fence", || model(count_beside_end));
}

fn count_node_beside_end() {
    let w = split_world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    let counted = w.lru.count_node(N0);
    assert!(counted >= 1, "it is on a list or a part throughout (L3)");
    assert!(counted <= 3, "as one of a part, once more as one of a part that ends, and as one of the list");
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), 1);
    w.end();
}

#[test]
fn r11_l3_a_node_is_never_counted_too_low_beside_the_end_of_parts() {
    model(count_node_beside_end);
}

#[test]
#[should_panic]
fn r11_but_is_when_it_is_counted_once() {
    with_mutant("count_node_once", || model(count_node_beside_end));
}

#[test]
#[should_panic]
fn r11_but_is_when_parts_that_end_are_not_counted() {
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
fn l10_an_object_on_a_part_is_not_hidden() {
    model(add_to_part_beside_clear);
}

#[test]
#[should_panic]
fn l10_but_is_without_the_listeners_fence() {
    with_mutant("listener_without_fence", || model(add_to_part_beside_clear));
}

fn clear_beside_end() {
    let bit = Arc::new(Bit(AtomicBool::new(true)));
    let w = split_world_heard_by(Some(bit.clone()));
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.lru.end_parts_now(&w.child, N0));
    bit.clear_if_empty(&w.lru, &w.child);
    other.join().unwrap();
    assert!(bit.0.load(Ordering::Relaxed), "an object must not be hidden");
    w.end();
}

#[test]
fn l10_an_object_that_goes_from_a_part_to_the_list_is_not_hidden() {
    model(clear_beside_end);
}

#[test]
#[should_panic]
fn l10_but_is_when_the_end_of_parts_is_not_told() {
    with_mutant("end_parts_in_silence", || model(clear_beside_end));
}

// === the group's offline ===

#[test]
fn r1_an_add_to_a_part_beside_offline_ends_at_the_parent() {
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
fn r2_r8_a_del_from_a_part_beside_offline_finds_its_item() {
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
fn r2_an_item_on_a_part_is_in_sight_while_its_group_ends() {
    model(look_beside_offline);
}

#[test]
#[should_panic]
fn r2_and_is_not_when_a_dead_part_is_taken_for_the_end() {
    with_mutant("dead_part_without_waiting", || model(look_beside_offline));
}
