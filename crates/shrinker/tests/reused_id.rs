//! An id that is given to another shrinker while a call works on the ids that it found.
//!
//! The callback of the first shrinker ends the second one and registers a third, which gets the
//! second one's id. Numbers such as S17 are those of docs/INVARIANTS.md.
//!
//! A call that looks up ids after it found them gets its case here.

#![cfg(not(lowwater_loom))]

mod common;

use common::{CountFn, Shelf};
use lowwater_lru_core::{Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Count, Reclaim, Registration, Registry, Work};
use std::sync::{Arc, Mutex};

const N1: NodeId = NodeId::new(1);

/// Calls `call` on a registry with two shrinkers that have an object of one group on node 1, and
/// lets a third one replace the second. Returns the groups and nodes for which the third one was
/// called, and the group.
fn replace_in(
    memcg_aware: bool,
    numa_aware: bool,
    call: impl FnOnce(&Registry, &Memcg),
) -> (Vec<(Memcg, NodeId)>, Memcg) {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("g").unwrap();
    let registry = Registry::new(&tree, 2);
    let register = |shelf: Shelf| {
        let shelf = Arc::new(shelf);
        let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
        shelf.add(&group, N1, 1);
        (shelf, registration)
    };
    let ((first, _first_ends), (_second, second_ends)) = (register(Shelf::new()), register(Shelf::new()));
    let id = second_ends.id();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let third = Arc::new(Shelf::new());
    let note: CountFn = {
        let calls = Arc::clone(&calls);
        Box::new(move |sc| {
            calls.lock().unwrap().push((sc.memcg().clone(), sc.node()));
            Some(Count::Objects(99))
        })
    };
    third.count.set(note).ok().unwrap();
    let third_ends = Arc::new(Mutex::new(None::<Registration>));
    let replace: CountFn = {
        let (registry, second, third_ends) = (registry.clone(), Mutex::new(Some(second_ends)), Arc::clone(&third_ends));
        Box::new(move |_| {
            let second = second.lock().unwrap().take()?;
            second.unregister().unwrap();
            let prepared = registry.builder("third").memcg_aware(memcg_aware).numa_aware(numa_aware).alloc().unwrap();
            assert_eq!(prepared.id(), id, "the id is reused");
            *third_ends.lock().unwrap() = Some(third.register(prepared));
            None
        })
    };
    first.count.set(replace).ok().unwrap();
    call(&registry, &group);
    assert!(third_ends.lock().unwrap().take().is_some(), "the second shrinker was replaced");
    let calls = calls.lock().unwrap().clone();
    (calls, group)
}

#[test]
fn a_pass_calls_no_shrinker_for_a_group_or_node_that_it_does_not_distinguish() {
    for (memcg_aware, numa_aware) in [(false, false), (false, true), (true, false), (true, true)] {
        let (calls, group) = replace_in(memcg_aware, numa_aware, |registry, _| {
            registry.shrink(registry.root(), N1, 12, Reclaim::KSWAPD, &mut Work::unlimited());
        });
        assert!(!calls.contains(&(group, N1)) || (memcg_aware, numa_aware) == (true, true), "{calls:?}");
    }
}

#[test]
fn s17_a_survey_does_not_count_the_next_owner_of_an_id() {
    let (calls, _) = replace_in(true, true, |registry, group| {
        let survey = registry.survey();
        let mut counts: Vec<_> = survey.pairs.iter().map(|pair| (pair.memcg.clone(), pair.node, pair.count)).collect();
        counts.sort_by_key(|pair| pair.2);
        assert_eq!(counts, [(group.clone(), N1, None), (group.clone(), N1, Some(1))]);
    });
    assert_eq!(calls, []);
}
