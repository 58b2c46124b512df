//! Groups of two trees in the lists of one `ListLru`. The same ids refer to different groups.
//!
//! Lists are found by the group's address for this reason; a lookup by id alone would fail here.
//!
//! A new lookup of a list gets a case with equal ids here.

#![cfg(all(feature = "std", not(lowwater_loom)))]
#![forbid(unsafe_code)]

use lowwater_lru_core::list_lru::{sweep, Swept};
use lowwater_lru_core::{linked, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

struct Item(Links);
linked!(impl[] for Item { 0, handle: Arc<Item> });

fn item() -> Arc<Item> {
    Arc::new(Item(Links::new()))
}

/// Creates two trees, and in each a group with the same id.
fn two_groups() -> [(MemcgTree, Memcg); 2] {
    let groups = [(); 2].map(|()| {
        let tree = MemcgTree::new(0);
        let group = tree.root().create("g").unwrap();
        (tree, group)
    });
    assert_eq!(groups[0].1.id(), groups[1].1.id());
    groups
}

fn counts(lru: &ListLru<Item>, groups: [&Memcg; 4]) -> [u64; 4] {
    groups.map(|group| lru.count_one(group, N0))
}

#[test]
fn l2_l5_an_item_is_on_the_list_of_its_own_group() {
    let [(ours, our), (theirs, their)] = two_groups();
    let groups = [ours.root(), &our, theirs.root(), &their];
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..10).map(|_| item()).collect();
    for (n, it) in items.iter().enumerate() {
        lru.add(it.clone(), if n < 3 { &our } else { &their }, N0).unwrap();
    }
    assert_eq!(counts(&lru, groups), [0, 3, 0, 7]);
    assert_eq!((lru.count_node(N0), lru.pairs()), (10, 4));
    assert_eq!((lru.memcg_of(&items[0]), lru.memcg_of(&items[9])), (Some(our.clone()), Some(their.clone())));
    lru.assert_valid();

    let mut walked = Isolated::new();
    assert_eq!(lru.walk_one(&our, N0, &mut 100, |it| it.isolate(&mut walked)), 3);
    assert_eq!(lru.add_batch(&mut walked, &their, N0), Ok(3));
    assert_eq!(counts(&lru, groups), [0, 0, 0, 10]);
    let mut shown = 0;
    lru.walk_node(N0, &mut 100, |it| {
        shown += 1;
        it.skip()
    });
    assert_eq!(shown, 10);

    their.offline().unwrap();
    assert_eq!(counts(&lru, groups), [0, 0, 10, 0], "to their root, not to ours");
    lru.assert_valid();
}

#[test]
fn l6_a_group_has_ancestors_of_its_own_tree() {
    let [(ours, our), (theirs, their)] = two_groups();
    let lru = ListLru::<Item>::new();
    lru.add(item(), &our, N0).unwrap();
    let prepared = lru.prepare(&their, N0).unwrap();
    assert_eq!(lru.pairs(), 4);
    lru.assert_valid();
    our.offline().unwrap();
    their.offline().unwrap();
    drop(prepared);
    lru.assert_valid();
    assert_eq!((lru.count_one(ours.root(), N0), lru.count_one(theirs.root(), N0), lru.pairs()), (1, 0, 2));
}

#[test]
fn l16_a_sweep_of_one_tree_keeps_the_lists_of_the_other() {
    let [(ours, our), (theirs, their)] = two_groups();
    let lru = ListLru::<Item>::new();
    for round in 0..50 {
        let (a, b) = (item(), item());
        lru.add(a.clone(), &our, N0).unwrap();
        lru.add(b.clone(), &their, N0).unwrap();
        assert!(lru.del(&a).is_some());
        while sweep(ours.root()) != Swept::default() {}
        assert_eq!((lru.count_one(&their, N0), lru.pairs()), (1, 2), "round {round}");
        assert_eq!(lru.memcg_of(&b).as_ref(), Some(&their));
        assert!(lru.del(&b).is_some());
        while sweep(theirs.root()) != Swept::default() {}
        assert_eq!(lru.pairs(), 0);
    }
}

#[test]
fn r10_a_dropped_tree_leaves_nothing_to_a_new_one() {
    let lru = ListLru::<Item>::new();
    for _ in 0..100 {
        let tree = MemcgTree::new(0);
        let group = tree.root().create("g").unwrap();
        assert_eq!((lru.count_one(&group, N0), lru.count_one(tree.root(), N0)), (0, 0));
        lru.add(item(), &group, N0).unwrap();
        assert_eq!(lru.count_one(&group, N0), 1);
    }
    // The lists exist as long as they have items, and keep the groups alive.
    assert_eq!((lru.count_node(N0), lru.pairs()), (100, 200));
    lru.assert_valid();
}
