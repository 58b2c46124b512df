//! The map against a plain set of triples, and its tours against the tree's own walk.

use super::summary::Path;
use super::*;
use alloc::{collections::BTreeMap, string::ToString, vec};
use lowwater_lru_core::MemcgTree;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

impl Map {
    /// Checks the invariants, while nothing is in progress.
    pub(crate) fn assert_valid(&self) {
        let mut in_units = HashSet::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let node_id = NodeId::new(n as u16);
            let mut units = HashSet::new();
            for (s, shard) in node.shards.iter().enumerate() {
                for (id, unit) in shard.read().iter() {
                    assert_eq!(id.index() % SHARDS, s, "group {id} is in the wrong shard");
                    assert_eq!(*id, unit.memcg.id(), "a unit stands under its group's id");
                    assert!(unit.memcg.is_online(), "group {id} has a unit after its offline (invariant 5)");
                    let mut ids = Vec::new();
                    unit.words.collect(0..=u32::MAX, &mut ids);
                    assert!(!ids.is_empty(), "group {id} has an empty unit: settle was forgotten");
                    for shrinker in ids {
                        assert!(
                            self.index.lock(shrinker).contains(shrinker, node_id, *id),
                            "a bit is not in the index"
                        );
                        in_units.insert((shrinker, node_id, *id));
                    }
                    unit.debts.lock().retain(|shrinker| {
                        assert!(unit.words.contains(shrinker), "shrinker {shrinker} has a debt without a bit");
                        true
                    });
                    units.insert(*id);
                }
            }
            let summary = node.summary.lock();
            summary.assert_valid();
            let live: HashSet<_> = summary.live().map(Memcg::id).collect();
            assert_eq!(live, units, "units and live ways agree (invariant 2)");
        }
        assert_eq!(self.live().0, in_units.len());
        assert_eq!(self.index.len(), in_units.len(), "the index has pairs without a bit (invariant 4)");
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
    /// Clear, count says empty.
    Clear(usize, u16, u32),
    /// Clear, count says that someone has come.
    ClearInVain(usize, u16, u32),
    Owe(usize, u16, u32, u64),
    Take(usize, u16, u32),
    Offline(usize),
    /// The shrinker goes, and another gets its id.
    Reuse(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..13_usize, 0..NODES, prop_oneof![0..4_u32, 62..66_u32]);
    prop_oneof![
        8 => place().prop_map(|(g, n, id)| Op::Set(g, n, id)),
        4 => place().prop_map(|(g, n, id)| Op::Clear(g, n, id)),
        1 => place().prop_map(|(g, n, id)| Op::ClearInVain(g, n, id)),
        3 => (place(), 1..1000_u64).prop_map(|((g, n, id), owed)| Op::Owe(g, n, id, owed)),
        1 => place().prop_map(|(g, n, id)| Op::Take(g, n, id)),
        1 => (1..13_usize).prop_map(Op::Offline),
        1 => prop_oneof![0..4_u32, 62..66_u32].prop_map(Op::Reuse),
    ]
}

proptest! {
    #[test]
    fn s16_s17_s18_s25_a_map_is_a_set_of_triples_with_debts(ops in proptest::collection::vec(op(), 1..120)) {
        let (_tree, groups) = tree();
        let map = Map::new(NODES.into());
        let mut keys: HashMap<u32, Key> = (0..66).map(|id| (id, map.open(id).unwrap())).collect();
        // (group, node, shrinker) -> owed
        let mut model: BTreeMap<(usize, u16, u32), u64> = BTreeMap::new();
        let online = |g: usize| groups.iter().position(|m| *m == groups[g].nearest_online()).unwrap();
        for op in ops {
            match op {
                Op::Set(g, n, id) => {
                    map.set(&groups[g], NodeId::new(n), keys[&id]);
                    model.entry((online(g), n, id)).or_default();
                }
                Op::Clear(g, n, id) => {
                    let last = map.clear(&groups[g], NodeId::new(n), id);
                    map.settle(&groups[g], NodeId::new(n), id, last);
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
                    map.add_debt(&groups[g], NodeId::new(n), id, Debt { owed, carry: 0 }, u64::MAX);
                    if let Some(sum) = model.get_mut(&(online(g), n, id)) {
                        *sum += owed;
                    }
                }
                Op::Take(g, n, id) => {
                    let taken = map.take_debt(&groups[g], NodeId::new(n), id, true).owed;
                    prop_assert_eq!(taken, model.get_mut(&(g, n, id)).map_or(0, core::mem::take));
                }
                Op::Offline(g) => {
                    if groups[g].offline().is_ok() {
                        let parent = groups[g].parent().unwrap();
                        map.offline(&groups[g], parent);
                        let above = groups.iter().position(|m| m == parent).unwrap();
                        for ((_, n, id), owed) in model.extract_if((g, 0, 0)..(g + 1, 0, 0), |_, _| true).collect::<Vec<_>>() {
                            *model.entry((above, n, id)).or_default() += owed;
                        }
                    }
                }
                Op::Reuse(id) => {
                    let old = keys[&id];
                    map.close(old);
                    map.assert_valid();
                    // The old owner's lists are still there, and still report.
                    map.set(&groups[0], NodeId::ZERO, old);
                    keys.insert(id, map.open(id).unwrap());
                    map.set(&groups[0], NodeId::ZERO, old);
                    model.retain(|(_, _, other), _| *other != id);
                }
            }
            map.assert_valid();
            prop_assert_eq!(map.live().0, model.len());
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
        // Tables of a few entries are kept, so that a group that comes and goes does not allocate each time.
        let small = 2 * SHARDS * NODES as usize * 8 * 128;
        let (now, fresh) = (map.footprint().get(), Map::new(NODES.into()).footprint().get());
        prop_assert!(now <= fresh + small as u64, "an empty map keeps {} bytes", now - fresh);
    }

    #[test]
    fn s15_a_tour_visits_each_live_group_once_in_the_trees_order_from_its_start(
        live in proptest::collection::btree_set(0..13_usize, 0..13),
        root in 0..13_usize,
        start in proptest::option::of((0..13_usize, 0..3_u32)),
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
            .map(|(g, id)| Position { path: path(&groups[g]), id });
        // The round may start from a group that is no longer there.
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
        for stop in Tour::new(&map, root, NodeId::ZERO, start) {
                        let mut ids = Vec::new();
            map.collect(&stop.memcg, NodeId::ZERO, stop.ids, &mut ids);
            got.extend(ids.into_iter().map(|id| (path(&stop.memcg), id)));
        }
        prop_assert_eq!(got, want);
    }
}

#[test]
fn a_place_in_a_tour_is_not_mistaken_for_a_group_elsewhere_that_got_its_id() {
    let tree = MemcgTree::new(0);
    let (a, b) = (tree.root().create("a").unwrap(), tree.root().create("b").unwrap());
    let old = a.create("old").unwrap();
    let start = Position { path: vec![old.id()], id: 0 };
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
    let visited: Vec<_> = Tour::new(&map, &a, NodeId::ZERO, Some(start)).map(|stop| stop.memcg).collect();
    assert_eq!(visited, [a]);
}

#[test]
fn a_registry_that_is_gone_holds_no_group() {
    let tree = MemcgTree::new(0);
    let map = Map::new(1);
    let key = map.open(0).unwrap();
    let group = tree.root().create("g").unwrap();
    let id = group.id();
    map.set(&group, NodeId::ZERO, key);
    group.offline().unwrap();
    drop(group);
    assert!(tree.get(id).is_some(), "the unit holds its group");
    map.shut();
    assert!(tree.get(id).is_none());
    map.set(tree.root(), NodeId::ZERO, key);
    assert_eq!(map.live(), (0, 0));
}
