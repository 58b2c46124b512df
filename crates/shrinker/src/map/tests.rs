//! The map compared with a plain set of triples, and its iterator with a sorted list of paths.
//!
//! Proptest draws a history of operations. After each of them the map's invariants are checked
//! (`assert_valid`), and the map is compared with the set.
//!
//! A new operation of the map is added to the histories.

use super::shards::SHARDS;
use super::summary::Path;
use super::*;
use crate::deferred::Debt;
use crate::stats::VisitCounts;
use alloc::{collections::BTreeMap, string::ToString, vec};
use lowwater_lru_core::MemcgTree;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

impl Map {
    /// Checks the invariants; no operation may be in progress.
    pub(crate) fn assert_valid(&self) {
        let mut in_infos = HashSet::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let node_id = NodeId::new(n as u16);
            let mut infos = HashSet::new();
            for (s, shard) in node.shards.iter().enumerate() {
                for info in shard.read().iter() {
                    let id = info.memcg.id();
                    assert_eq!(id.index() % SHARDS, s, "group {id} is in the wrong shard");
                    assert!(info.memcg.is_online(), "group {id} has an info after its offline (invariant 5)");
                    let mut ids = Vec::new();
                    info.words.collect(0..=u32::MAX, &mut ids);
                    assert!(!ids.is_empty(), "group {id} has an empty info: retire_pair was forgotten");
                    for shrinker in ids {
                        assert!(self.index.lock(shrinker).contains(shrinker, node_id, id), "a bit is not in the index");
                        in_infos.insert((shrinker, node_id, id));
                    }
                    if let Some(visit_state) = info.visit_state() {
                        visit_state.nr_deferred.lock().retain(|shrinker| {
                            assert!(info.words.contains(shrinker), "shrinker {shrinker} has a debt without a bit");
                            true
                        });
                        visit_state.pair_counts.lock().retain(|shrinker| {
                            assert!(info.words.contains(shrinker), "shrinker {shrinker} has counts without a bit");
                            true
                        });
                    }
                    assert!(infos.insert(id), "a group has one info");
                }
            }
            let summary = node.summary.lock();
            summary.assert_valid();
            let live: HashSet<_> = summary.all_live().map(Memcg::id).collect();
            assert_eq!(live, infos, "infos and live groups agree (invariant 2)");
        }
        assert_eq!(self.live().0, in_infos.len());
        assert_eq!(self.index.len(), in_infos.len(), "the index has pairs without a bit (invariant 4)");
    }
}

const NODES: u16 = 2;

/// A tree of 1 + 3 + 9 groups.
fn tree() -> (MemcgTree, Vec<Memcg>) {
    let tree = MemcgTree::new(0);
    let mut groups = vec![tree.root().clone()];
    for a in 0..3 {
        let child = tree.root().create(&a.to_string()).unwrap();
        groups.push(child.clone());
        for b in 0..3 {
            groups.push(child.create(&b.to_string()).unwrap());
        }
    }
    (tree, groups)
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Set(usize, u16, u32),
    /// Clear, then the second count is empty.
    Clear(usize, u16, u32),
    /// Clear, then the second count finds an object.
    ClearInVain(usize, u16, u32),
    Owe(usize, u16, u32, u64),
    Take(usize, u16, u32),
    /// Takes up to this many of the owed objects.
    Pay(usize, u16, u32, u64),
    Offline(usize),
    /// Closes the shrinker's id, and opens it for another.
    Reuse(u32),
}

/// Ids of two adjacent words (63 and 64) and of one far behind them. 0 and 64 share a shard of the
/// index.
const IDS: [u32; 6] = [0, 1, 62, 63, 64, 1_000];

fn op() -> impl Strategy<Value = Op> {
    // Mostly a few positions, so that most operations hit the result of an earlier one.
    let place = || (prop_oneof![3 => 0..3_usize, 1 => 0..13_usize], 0..NODES, proptest::sample::select(&IDS[..]));
    prop_oneof![
        8 => place().prop_map(|(g, n, id)| Op::Set(g, n, id)),
        4 => place().prop_map(|(g, n, id)| Op::Clear(g, n, id)),
        1 => place().prop_map(|(g, n, id)| Op::ClearInVain(g, n, id)),
        3 => (place(), 1..1000_u64).prop_map(|((g, n, id), owed)| Op::Owe(g, n, id, owed)),
        1 => place().prop_map(|(g, n, id)| Op::Take(g, n, id)),
        1 => (place(), 1..1000_u64).prop_map(|((g, n, id), max)| Op::Pay(g, n, id, max)),
        1 => (1..13_usize).prop_map(Op::Offline),
        1 => proptest::sample::select(&IDS[..]).prop_map(Op::Reuse),
    ]
}

proptest! {
    #[test]
    fn s16_s17_s18_s25_a_map_is_a_set_of_triples_with_debts(ops in proptest::collection::vec(op(), 1..120)) {
        let (_tree, groups) = tree();
        let map = Map::new(NODES.into());
        let mut keys: HashMap<u32, Key> = IDS.map(|id| (id, map.open(id).unwrap())).into();
        // (group, node, shrinker) -> owed objects
        let mut model: BTreeMap<(usize, u16, u32), u64> = BTreeMap::new();
        let online = |g: usize| groups.iter().position(|m| *m == groups[g].nearest_online()).unwrap();
        for op in ops {
            match op {
                Op::Set(g, n, id) => {
                    map.set(&groups[g], NodeId::new(n), keys[&id]);
                    map.note(&groups[g], NodeId::new(n), id, 1, &VisitCounts::default());
                    model.entry((online(g), n, id)).or_default();
                }
                Op::Clear(g, n, id) => {
                    let last = map.clear(&groups[g], NodeId::new(n), id);
                    map.retire_pair(&groups[g], NodeId::new(n), id, last);
                    prop_assert!(!map.index.lock(id).contains(id, NodeId::new(n), groups[g].id()));
                    model.remove(&(g, n, id));
                }
                Op::ClearInVain(g, n, id) => {
                    let was = map.is_set(&groups[g], NodeId::new(n), id);
                    map.clear(&groups[g], NodeId::new(n), id);
                    prop_assert!(!map.is_set(&groups[g], NodeId::new(n), id));
                    if was {
                        map.set(&groups[g], NodeId::new(n), keys[&id]);
                    }
                }
                Op::Owe(g, n, id, owed) => {
                    let (memcg, node, debt) = (&groups[g], NodeId::new(n), Debt { owed, carry: 0 });
                    let now = map.add_deferred(memcg, node, keys[&id], debt, |_| u64::MAX);
                    // A debt sets the bit, which it needs.
                    let sum = model.entry((online(g), n, id)).or_default();
                    *sum += owed;
                    prop_assert_eq!(now, *sum);
                }
                Op::Take(g, n, id) => {
                    let taken = map.take_deferred(&groups[g], NodeId::new(n), id, true, u64::MAX).owed;
                    prop_assert_eq!(taken, model.get_mut(&(g, n, id)).map_or(0, core::mem::take));
                }
                Op::Pay(g, n, id, max) => {
                    let taken = map.take_owed(&groups[g], NodeId::new(n), id, max, u64::MAX);
                    let owed = model.get_mut(&(g, n, id));
                    prop_assert_eq!(taken, owed.as_deref().map_or(0, |owed| max.min(*owed)));
                    if let Some(owed) = owed {
                        *owed -= taken;
                    }
                }
                Op::Offline(g) => {
                    if groups[g].offline().is_ok() {
                        let parent = groups[g].parent().unwrap();
                        map.offline(&groups[g], parent);
                        let above = groups.iter().position(|m| m == parent).unwrap();
                        // The triples of `g` alone.
                        let mut moved = model.split_off(&(g, 0, 0));
                        model.append(&mut moved.split_off(&(g + 1, 0, 0)));
                        for ((_, n, id), owed) in moved {
                            *model.entry((above, n, id)).or_default() += owed;
                        }
                    }
                }
                Op::Reuse(id) => {
                    let old = keys[&id];
                    map.close(old);
                    map.assert_valid();
                    // The lists of the old owner still exist, and still report.
                    map.set(&groups[0], NodeId::ZERO, old);
                    keys.insert(id, map.open(id).unwrap());
                    map.set(&groups[0], NodeId::ZERO, old);
                    model.retain(|(_, _, other), _| *other != id);
                }
            }
            map.assert_valid();
            let infos: HashSet<_> = model.keys().map(|(g, n, _)| (*g, *n)).collect();
            prop_assert_eq!(map.live(), (model.len(), infos.len()));
            for (g, n) in infos {
                let owing = || model.range((g, n, 0)..=(g, n, u32::MAX)).filter(|(_, owed)| **owed > 0);
                let (memcg, node) = (&groups[g], NodeId::new(n));
                prop_assert_eq!(map.ids_owing(memcg, node), owing().map(|(pair, _)| pair.2).collect::<Vec<_>>());
                prop_assert_eq!(map.owed_by_all(memcg, node), owing().map(|(_, owed)| *owed).sum::<u64>());
            }
            for ((g, n, id), owed) in &model {
                prop_assert!(map.is_set(&groups[*g], NodeId::new(*n), *id));
                prop_assert_eq!(map.owed(&groups[*g], NodeId::new(*n), *id), *owed);
            }
        }
        for key in keys.into_values() {
            map.close(key);
        }
        map.assert_valid();
        prop_assert_eq!(map.live(), (0, 0));
        prop_assert_eq!(map.footprint(), Map::new(NODES.into()).footprint(), "an empty map keeps no memory");
    }

    #[test]
    fn s15_an_iteration_visits_each_live_group_once_in_tree_order(
        live in proptest::collection::btree_set(0..13_usize, 0..13),
        // Mostly the root of the tree, because most starts are not below another group.
        root in prop_oneof![3 => Just(0), 1 => 0..13_usize],
        start in proptest::option::weighted(0.8, (0..13_usize, 0..3_u32)),
        gone in 0..13_usize,
    ) {
        let (_tree, groups) = tree();
        let map = Map::new(1);
        let keys: Vec<Key> = (0..3).map(|id| map.open(id).unwrap()).collect();
        for g in &live {
            for key in &keys {
                map.set(&groups[*g], NodeId::ZERO, *key);
            }
        }
        let root = &groups[root];
        let path = |memcg: &Memcg| {
            let mut path: Vec<_> = core::iter::successors(Some(memcg), |m| m.parent())
                .take_while(|m| *m != root)
                .map(|m| m.id())
                .collect();
            path.reverse();
            path
        };
        let start = start
            .filter(|(g, _)| groups[*g].is_descendant_of(root))
            .map(|(g, id)| IterPosition { path: path(&groups[g]), id });
        // The round may start from a group that has ended.
        let mut live = live;
        if groups[gone].offline().is_ok() {
            map.offline(&groups[gone], groups[gone].parent().unwrap());
            if live.remove(&gone) {
                live.insert(groups.iter().position(|m| Some(m) == groups[gone].parent()).unwrap());
            }
        }
        let mut want: Vec<(Path, u32)> = live
            .iter()
            .filter(|g| groups[**g].is_descendant_of(root))
            .flat_map(|g| (0..3).map(|id| (path(&groups[*g]), id)))
            .collect();
        want.sort();
        if let Some(start) = &start {
            let at = want.partition_point(|place| *place <= (start.path.clone(), start.id));
            want.rotate_left(at);
        }
        let mut got = Vec::new();
        for stop in MemcgIter::new(&map, root, NodeId::ZERO, start) {
            let mut ids = Vec::new();
            map.collect(&stop.memcg, NodeId::ZERO, stop.ids, &mut ids);
            got.extend(ids.into_iter().map(|id| (path(&stop.memcg), id)));
        }
        prop_assert_eq!(got, want);
    }
}

#[test]
fn a_stored_position_is_not_mistaken_for_a_group_with_a_reused_id() {
    let tree = MemcgTree::new(0);
    let (a, b) = (tree.root().create("a").unwrap(), tree.root().create("b").unwrap());
    let old = a.create("old").unwrap();
    let start = IterPosition { path: vec![old.id()], id: 0 };
    let id = old.id();
    old.offline().unwrap();
    drop(old);
    let elsewhere = b.create("new").unwrap();
    assert_eq!(elsewhere.id(), id, "the id is reused");
    let below = elsewhere.create("below").unwrap();
    let map = Map::new(1);
    let key = map.open(1).unwrap();
    for memcg in [&a, &elsewhere, &below] {
        map.set(memcg, NodeId::ZERO, key);
    }
    let visited: Vec<_> = MemcgIter::new(&map, &a, NodeId::ZERO, Some(start)).map(|stop| stop.memcg).collect();
    assert_eq!(visited, [a]);
}

#[test]
fn a_dropped_registry_holds_no_group() {
    let tree = MemcgTree::new(0);
    let map = Map::new(1);
    let key = map.open(0).unwrap();
    let group = tree.root().create("g").unwrap();
    let id = group.id();
    map.set(&group, NodeId::ZERO, key);
    group.offline().unwrap();
    drop(group);
    assert!(tree.get(id).is_some(), "the info holds its group");
    map.shut();
    assert!(tree.get(id).is_none());
    map.set(tree.root(), NodeId::ZERO, key);
    assert_eq!(map.live(), (0, 0));
}

#[test]
fn a_dirty_node_is_reported_once() {
    let map = Map::new(2);
    let asked = || [0, 1, 0, 1].map(|n| map.take_dirty(NodeId::new(n)));
    assert_eq!(asked(), [false; 4]);
    map.mark_dirty(NodeId::new(1));
    assert_eq!(asked(), [false, true, false, false]);
}

#[test]
fn an_invalid_node_stands_for_the_last() {
    let (tree, map) = (MemcgTree::new(0), Map::new(3));
    assert_eq!(map.nodes(), 3);
    let key = map.open(0).unwrap();
    for (n, last) in [(2, 2), (3, 2), (u16::MAX, 2), (1, 1)] {
        map.set(tree.root(), NodeId::new(n), key);
        assert!(map.is_set(tree.root(), NodeId::new(last), 0), "node {n}");
        assert_eq!(map.live(), (1, 1));
        let emptied = map.clear(tree.root(), NodeId::new(n), 0);
        assert!(emptied);
        map.retire_pair(tree.root(), NodeId::new(n), 0, emptied);
        assert_eq!(map.live(), (0, 0));
    }
}

/// The debt is forgiven whether or not the bit's word stays for another shrinker; other debts are
/// kept.
#[test]
fn s17_a_cleared_bit_leaves_no_debt() {
    let (tree, map, node) = (MemcgTree::new(0), Map::new(1), NodeId::ZERO);
    let root = tree.root();
    for other in [2, 200] {
        let keys = [1, other].map(|id| map.open(id).unwrap());
        for key in keys {
            map.set(root, node, key);
            map.add_deferred(root, node, key, Debt { owed: 10, carry: 3 }, |_| u64::MAX);
        }
        let last = map.clear(root, node, 1);
        assert_eq!(last, other == 200, "of its word");
        map.retire_pair(root, node, 1, last);
        assert_eq!((map.owed(root, node, 1), map.owed(root, node, other)), (0, 10));
        assert_eq!(map.take_deferred(root, node, 1, true, u64::MAX), Debt::NONE);
        // Here the bit is set again before the call of `retire_pair`.
        let last = map.clear(root, node, other);
        map.set(root, node, keys[1]);
        map.retire_pair(root, node, other, last);
        assert_eq!(map.take_deferred(root, node, other, true, u64::MAX), Debt { owed: 10, carry: 3 });
        for key in keys {
            map.close(key);
        }
    }
}

#[test]
fn a_visit_is_noted_as_long_as_the_pair_is_live() {
    let (tree, map, node) = (MemcgTree::new(0), Map::new(1), NodeId::ZERO);
    let group = tree.root().create("g").unwrap();
    let keys = [3, 4].map(|id| map.open(id).unwrap());
    let visited = VisitCounts { freed: 7, ..VisitCounts::default() };
    map.set(&group, node, keys[0]);
    for key in keys {
        map.note(&group, node, key.id, 50, &visited);
    }
    let pairs: Vec<_> = map.pairs().iter().map(|pair| (pair.shrinker.get(), pair.count, pair.freed)).collect();
    assert_eq!(pairs, [(3, Some(50), 7)]);
    assert_eq!([tree.root(), &group].map(|root| map.held(root, node)), [50, 50]);
    let beside = tree.root().create("beside").unwrap();
    assert_eq!(map.held(&beside, node), 0);
}

/// As for debts: the counts vanish with the bit whether or not its word stays for another shrinker.
#[test]
fn s17_a_cleared_bit_leaves_no_counts() {
    let (tree, map, node) = (MemcgTree::new(0), Map::new(1), NodeId::ZERO);
    let root = tree.root();
    let visited = VisitCounts { requested: 9, freed: 7, ..VisitCounts::default() };
    for other in [2, 200] {
        let (mut key, stays) = (map.open(1).unwrap(), map.open(other).unwrap());
        map.set(root, node, stays);
        map.note(root, node, other, 3, &visited);
        for is_reused in [false, true] {
            map.set(root, node, key);
            map.note(root, node, 1, 50, &visited);
            assert_eq!(map.held(root, node), 53);
            let last = map.clear(root, node, 1);
            assert_eq!(last, other == 200, "of its word");
            map.retire_pair(root, node, 1, last);
            assert_eq!(map.held(root, node), 3);
            if is_reused {
                map.close(key);
                key = map.open(1).unwrap();
            }
            map.set(root, node, key);
            let counts =
                map.pairs().into_iter().map(|pair| (pair.shrinker.get(), pair.count, pair.requested, pair.freed));
            let mut counts: Vec<_> = counts.collect();
            counts.sort();
            assert_eq!(counts, [(1, None, 0, 0), (other, Some(3), 9, 7)]);
        }
        // Here the bit is set again before the call of `retire_pair`.
        let last = map.clear(root, node, other);
        map.set(root, node, stays);
        map.retire_pair(root, node, other, last);
        assert_eq!(map.held(root, node), 3);
        map.close(key);
        map.close(stays);
    }
}

#[test]
fn a_pair_inserted_twice_is_counted_once() {
    let tree = MemcgTree::new(0);
    let index = Index::try_new().unwrap();
    let key = index.open(7).unwrap();
    let empty = index.bytes();
    for _ in 0..2 {
        assert_eq!(index.lock(7).insert(key, NodeId::ZERO, tree.root().id()), IndexOutcome::Present);
        assert_eq!((index.len(), index.bytes()), (1, empty), "one pair needs no memory of its own");
    }
}

/// A group's end removes the pairs of bits that it took out of the map before: the id of such a bit
/// may have a new owner by now, which has nothing to do with the bit.
#[test]
fn s17_a_removal_returns_the_owner_only_if_it_has_the_pair() {
    let (a, b, n0) = (MemcgId::new(1), MemcgId::new(2), NodeId::ZERO);
    let index = Index::try_new().unwrap();
    let old = index.open(7).unwrap();
    for memcg in [a, b] {
        index.lock(7).insert(old, n0, memcg);
    }
    assert_eq!(index.lock(7).remove(7, n0, a), Some(old), "one of several pairs");
    assert_eq!(index.lock(7).remove(7, n0, a), None);
    assert_eq!(index.lock(7).remove(7, NodeId::new(1), b), None);
    assert_eq!(index.close(old).count(), 1);
    let new = index.open(7).unwrap();
    assert_eq!(index.lock(7).remove(7, n0, b), None, "the next owner has no pair");
    index.lock(7).insert(new, n0, a);
    assert_eq!(index.lock(7).remove(7, n0, b), None, "the next owner has another pair");
    assert_eq!(index.lock(7).remove(7, n0, a), Some(new), "its only pair");
    assert_eq!(index.len(), 0);
}

#[test]
fn collect_returns_at_most_the_requested_groups() {
    let (_tree, groups) = tree();
    let map = Map::new(1);
    let key = map.open(0).unwrap();
    for group in &groups {
        map.set(group, NodeId::ZERO, key);
    }
    for max in 1..=groups.len() {
        let mut found = Vec::new();
        map.summary(NodeId::ZERO).collect(groups[0].id(), None, None, max, &mut found);
        assert_eq!(found.len(), max);
    }
}

#[test]
fn a_round_continues_where_the_last_of_its_kind_stopped() {
    let (tree, map, node) = (MemcgTree::new(0), Map::new(1), NodeId::ZERO);
    let (a, b) = (tree.root().create("a").unwrap(), tree.root().create("b").unwrap());
    let root = tree.root().id();
    map.set(&a, node, map.open(0).unwrap());
    let place = |memcg: &Memcg, id| Some(IterPosition { path: path(root, memcg).unwrap(), id });
    let places = || [IterKind::Pass, IterKind::Direct].map(|who| map.summary(node).iter_position(root, who));
    assert_eq!(places(), [None, None]);
    map.summary(node).set_iter_position(root, IterKind::Direct, place(&a, 3));
    map.summary(node).set_iter_position(root, IterKind::Pass, place(&b, 4));
    assert_eq!(places(), [place(&b, 4), place(&a, 3)]);
    map.summary(node).set_iter_position(root, IterKind::Direct, None);
    assert_eq!(places(), [place(&b, 4), None]);
    let bytes = map.footprint();
    map.summary(node).set_iter_position(root, IterKind::Pass, None);
    assert_eq!(places(), [None, None]);
    assert!(map.footprint() < bytes, "a group without positions needs no memory for them");
    let mut summary = map.summary(node);
    assert_eq!(summary.find(root, &[]), None, "the root has objects below it, and none itself");
    assert_eq!(summary.find(root, &[a.id()]), Some(a.clone()));
    assert_eq!(summary.find(root, &[b.id()]), None);
    summary.set_iter_position(b.id(), IterKind::Pass, place(&b, 0));
    assert_eq!(summary.iter_position(b.id(), IterKind::Pass), None, "`b` is not in the summary");
}

#[test]
fn s18_a_debt_of_a_dead_group_does_not_reduce_its_parents() {
    let tree = MemcgTree::new(0);
    let (map, node) = (Map::new(1), NodeId::ZERO);
    let key = map.open(0).unwrap();
    let child = tree.root().create("child").unwrap();
    map.set(tree.root(), node, key);
    map.add_deferred(tree.root(), node, key, Debt { owed: 100, carry: 0 }, |_| u64::MAX);
    child.offline().unwrap();
    // The end had finished when the visit of the child began, so it does not overlap.
    for (debt, sum) in [(Debt { owed: 5, carry: 0 }, 105), (Debt { owed: 0, carry: 7 }, 105), (Debt::NONE, 105)] {
        map.add_deferred(&child, node, key, debt, |_| 10);
        assert_eq!(map.owed(tree.root(), node, 0), sum);
    }
    // The maximum holds for the group itself.
    assert_eq!(map.add_deferred(tree.root(), node, key, Debt::NONE, |_| 10), 10);
}
