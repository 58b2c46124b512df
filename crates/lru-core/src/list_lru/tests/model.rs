//! A random history against a model that is plain enough to be believed; the eager twin runs beside.

use super::{item, numbers, Item};
use crate::list_lru::eager::{Eager, Turn};
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use proptest::prelude::*;

const ITEMS: usize = 12;
const NODES: u16 = 2;

#[derive(Clone, Copy, Debug)]
enum Op {
    Create { parent: usize },
    Offline { group: usize },
    Prepare { group: usize, node: u16 },
    Add { item: usize, group: usize, node: u16 },
    Del { item: usize },
    Walk { group: usize, node: u16, nr: u64, verdicts: u16 },
    Sweep { group: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<usize>().prop_map(|parent| Op::Create { parent }),
        2 => any::<usize>().prop_map(|group| Op::Offline { group }),
        1 => (any::<usize>(), 0..NODES).prop_map(|(group, node)| Op::Prepare { group, node }),
        6 => (0..ITEMS, any::<usize>(), 0..NODES).prop_map(|(item, group, node)| Op::Add { item, group, node }),
        4 => (0..ITEMS).prop_map(|item| Op::Del { item }),
        2 => any::<usize>().prop_map(|group| Op::Sweep { group }),
        2 => (any::<usize>(), 0..NODES, 0..8_u64, any::<u16>())
            .prop_map(|(group, node, nr, verdicts)| Op::Walk { group, node, nr, verdicts }),
    ]
}

/// Groups by number; lists by (group, node), oldest first.
#[derive(Default)]
struct Model {
    parent: Vec<usize>,
    online: Vec<bool>,
    lists: BTreeMap<(usize, u16), VecDeque<usize>>,
    /// Lists that the last sweep found empty, and nothing was added to since.
    idle: BTreeSet<(usize, u16)>,
}

impl Model {
    fn effective(&self, mut group: usize) -> usize {
        while !self.online[group] {
            group = self.parent[group];
        }
        group
    }

    fn is_below(&self, mut group: usize, top: usize) -> bool {
        while group != top && group != 0 {
            group = self.parent[group];
        }
        group == top
    }

    fn sweep(&mut self, top: usize) {
        let is_meant = |key: &(usize, u16)| self.lists[key].is_empty() && self.is_below(key.0, top);
        let empty: Vec<_> = self.lists.keys().copied().filter(is_meant).collect();
        // A child's number is greater than its parent's.
        for key in empty.into_iter().rev() {
            let is_child = |&(g, n): &(usize, u16)| g != 0 && (self.parent[g], n) == key;
            if !self.lists.keys().any(is_child) && self.idle.remove(&key) {
                self.lists.remove(&key);
            } else {
                self.idle.insert(key);
            }
        }
    }

    /// Lists of a group and its ancestors (L6).
    fn populate(&mut self, mut group: usize, node: u16) {
        loop {
            self.lists.entry((group, node)).or_default();
            if group == 0 {
                return;
            }
            group = self.parent[group];
        }
    }
}

fn run(ops: Vec<Op>) {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let eager = Arc::new(Eager::<Item>::new(usize::from(NODES)));
    tree.add_hook(eager.clone());
    let items: Vec<Arc<Item>> = (0..ITEMS).map(item).collect();
    // An item is on one list at a time, so the twin has its own.
    let twins: Vec<Arc<Item>> = (0..ITEMS).map(item).collect();
    let mut groups: Vec<Memcg> = Vec::from([tree.root().clone()]);
    let mut model = Model { parent: Vec::from([0]), online: Vec::from([true]), ..Model::default() };
    for op in ops {
        match op {
            Op::Create { parent } => {
                let parent = parent % groups.len();
                let name = std::format!("g{}", groups.len());
                match groups[parent].create(&name) {
                    Ok(group) => {
                        assert!(model.online[parent]);
                        groups.push(group);
                        model.parent.push(parent);
                        model.online.push(true);
                    }
                    Err(_) => assert!(!model.online[parent]),
                }
            }
            Op::Offline { group } => {
                let group = group % groups.len();
                let has_children = (1..groups.len()).any(|g| model.parent[g] == group && model.online[g]);
                let may = group != 0 && model.online[group] && !has_children;
                assert_eq!(groups[group].offline().is_ok(), may);
                if may {
                    model.online[group] = false;
                    let parent = model.effective(group);
                    for node in 0..NODES {
                        if let Some(mut list) = model.lists.remove(&(group, node)) {
                            model.idle.remove(&(group, node));
                            let parents = model.lists.get_mut(&(parent, node)).expect("L6");
                            if !list.is_empty() {
                                model.idle.remove(&(parent, node));
                            }
                            list.append(parents);
                            *parents = list;
                        }
                    }
                }
            }
            Op::Prepare { group, node } => {
                let group = group % groups.len();
                drop(lru.prepare(&groups[group], NodeId::new(node)).unwrap());
                model.populate(model.effective(group), node);
            }
            Op::Add { item, group, node } => {
                let group = group % groups.len();
                let linked = model.lists.values().any(|list| list.contains(&item));
                let result = lru.add(items[item].clone(), &groups[group], NodeId::new(node));
                assert_eq!(result.is_ok(), !linked, "L4");
                let twin = eager.add(twins[item].clone(), &groups[group], NodeId::new(node));
                assert_eq!(twin.is_ok(), !linked, "L4");
                let effective = model.effective(group);
                if !linked {
                    model.populate(effective, node);
                    model.lists.get_mut(&(effective, node)).unwrap().push_back(item);
                    model.idle.remove(&(effective, node));
                }
            }
            Op::Del { item } => {
                let list = model.lists.values_mut().find(|list| list.contains(&item));
                assert_eq!(lru.del(&items[item]).is_some(), list.is_some(), "L4");
                assert_eq!(eager.del(&twins[item]).is_some(), list.is_some(), "L4");
                if let Some(list) = list {
                    list.retain(|&i| i != item);
                }
            }
            Op::Sweep { .. } => {} // Below.
            Op::Walk { group, node, nr, verdicts } => {
                let group = group % groups.len();
                let mut empty = VecDeque::new();
                let list = model.lists.get_mut(&(group, node)).unwrap_or(&mut empty);
                let shown = (nr as usize).min(list.len());
                let (mut kept, mut rotated, mut gone) = (VecDeque::new(), VecDeque::new(), Vec::new());
                for turn in 0..shown {
                    let item = list.pop_front().unwrap();
                    match verdicts >> (2 * turn) & 3 {
                        0 => gone.push(item),
                        1 => rotated.push_back(item),
                        _ => kept.push_back(item),
                    }
                }
                kept.append(list);
                kept.append(&mut rotated);
                *list = kept;

                let (mut private, mut turn, mut nr_to_walk) = (Isolated::new(), 0, nr);
                let removed = lru.walk_one(&groups[group], NodeId::new(node), &mut nr_to_walk, |it| {
                    let verdict = verdicts >> (2 * turn) & 3;
                    turn += 1;
                    match verdict {
                        0 => it.isolate(&mut private),
                        1 => it.rotate(),
                        _ => it.skip(),
                    }
                });
                assert_eq!((removed as usize, nr_to_walk), (gone.len(), nr - shown as u64), "L11");
                assert_eq!(private.map(|it| it.number).collect::<Vec<_>>(), gone, "L13");

                let (mut turn, mut twins_nr_to_walk) = (0, nr);
                let twins_gone = eager.walk_one(&groups[group], NodeId::new(node), &mut twins_nr_to_walk, |_| {
                    let verdict = verdicts >> (2 * turn) & 3;
                    turn += 1;
                    match verdict {
                        0 => Turn::Remove,
                        1 => Turn::Rotate,
                        _ => Turn::Skip,
                    }
                });
                assert_eq!(twins_nr_to_walk, nr_to_walk, "L11");
                assert!(twins_gone.iter().map(|it| it.number).eq(gone), "L13");
            }
        }
        if let Op::Sweep { group } = op {
            let top = group % groups.len();
            let swept = crate::list_lru::sweep(&groups[top]);
            let before = model.lists.len();
            model.sweep(top);
            assert_eq!(swept.given_back as usize, before - model.lists.len());
        }
        lru.assert_valid();
        assert_eq!(lru.pairs(), model.lists.len(), "L16");
        for (g, group) in groups.iter().enumerate() {
            for node in 0..NODES {
                let expected = model.lists.get(&(g, node)).cloned().unwrap_or_default();
                assert_eq!(lru.count_one(group, NodeId::new(node)), expected.len() as u64, "L1, L2");
                assert!(numbers(&lru, group, NodeId::new(node)).iter().eq(&expected), "L9, L13");
                assert_eq!(eager.count_one(group, NodeId::new(node)), expected.len() as u64, "L1, L2");
                let mut twins = Vec::new();
                eager.walk_one(group, NodeId::new(node), &mut u64::MAX.clone(), |it| {
                    twins.push(it.number);
                    Turn::Skip
                });
                assert!(twins.iter().eq(&expected), "L9, L13");
            }
        }
        for node in 0..NODES {
            let on_node = model.lists.iter().filter(|((_, n), _)| *n == node).map(|(_, list)| list.len() as u64);
            let on_node: u64 = on_node.sum();
            assert_eq!(
                (lru.count_node(NodeId::new(node)), eager.count_node(NodeId::new(node))),
                (on_node, on_node),
                "L3"
            );
        }
    }
    drop(lru);
    drop((tree, eager));
    assert!(items.iter().chain(&twins).all(|it| Arc::strong_count(it) == 1), "L20");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_history_is_the_models(ops in prop::collection::vec(op(), 1..80)) {
        run(ops);
    }
}
