//! Random sequences of calls on a `ListLru`, compared with a simple model: a map from (group, node)
//! to items, oldest first.
//!
//! After each operation the invariants of the lists hold; every list equals the model's, in order;
//! counts equal the lengths; an item is on a list if and only if the list holds a handle on it. At
//! the end no handle is left.
//!
//! Items, nodes and groups are few, so that calls meet on one list. A change must ensure that the
//! model stays simpler than the lists.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lowwater_lru_core::{linked, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId};

const ITEMS: usize = 16;
const NODES: u16 = 2;
const GROUPS_MAX: usize = 24;

struct Item {
    links: Links,
    number: usize,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

/// The input, read byte by byte; the sequence of calls ends with it.
struct Feed<'a>(&'a [u8]);

impl Feed<'_> {
    fn byte(&mut self) -> Option<usize> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first.into())
    }
}

/// The model. Groups have numbers, and 0 is the root; the lists are oldest first.
#[derive(Default)]
struct Model {
    parents: Vec<usize>,
    online: Vec<bool>,
    lists: BTreeMap<(usize, u16), VecDeque<usize>>,
}

impl Model {
    /// Returns the group whose lists hold the objects of `group`: itself, or its nearest online
    /// ancestor.
    fn effective(&self, mut group: usize) -> usize {
        while !self.online[group] {
            group = self.parents[group];
        }
        group
    }

    fn list_of(&mut self, item: usize) -> Option<&mut VecDeque<usize>> {
        self.lists.values_mut().find(|list| list.contains(&item))
    }
}

/// Runs the calls that `data` encodes, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..ITEMS).map(|number| Arc::new(Item { links: Links::new(), number })).collect();
    let mut groups = vec![tree.root().clone()];
    let mut model = Model { parents: vec![0], online: vec![true], lists: BTreeMap::new() };
    let mut feed = Feed(data);
    while step(&mut feed, &lru, &items, &mut groups, &mut model).is_some() {
        compare(&lru, &items, &groups, &model);
    }
    drop(lru);
    assert!(items.iter().all(|item| Arc::strong_count(item) == 1), "a dropped list holds nothing");
}

/// Runs one operation; `None` when the input has ended.
fn step(
    feed: &mut Feed<'_>,
    lru: &ListLru<Item>,
    items: &[Arc<Item>],
    groups: &mut Vec<Memcg>,
    model: &mut Model,
) -> Option<()> {
    let (op, group) = (feed.byte()?, feed.byte()? % groups.len());
    match op % 8 {
        0 if groups.len() < GROUPS_MAX => {
            let made = groups[group].create(&groups.len().to_string());
            assert_eq!(made.is_ok(), model.online[group], "a dying group has no new children");
            if let Ok(made) = made {
                groups.push(made);
                model.parents.push(group);
                model.online.push(true);
            }
        }
        1 => {
            let is_parent = (1..groups.len()).any(|child| model.parents[child] == group && model.online[child]);
            let may = group != 0 && model.online[group] && !is_parent;
            assert_eq!(groups[group].offline().is_ok(), may);
            if may {
                model.online[group] = false;
                let above = model.effective(group);
                for node in 0..NODES {
                    // The lists move to the cold end of the parent's, in order.
                    let mut joined = model.lists.remove(&(group, node)).unwrap_or_default();
                    let parents = model.lists.entry((above, node)).or_default();
                    joined.append(parents);
                    *parents = joined;
                }
            }
        }
        2 => {
            let node = NodeId::new(feed.byte()? as u16 % NODES);
            drop(lru.prepare(&groups[group], node).expect("memory is available"));
        }
        3..=5 => {
            let (item, node) = (feed.byte()? % ITEMS, feed.byte()? as u16 % NODES);
            let is_linked = model.list_of(item).is_some();
            let added = lru.add(Arc::clone(&items[item]), &groups[group], NodeId::new(node));
            assert_eq!(added.is_ok(), !is_linked, "an item is on one list at a time");
            if !is_linked {
                let effective = model.effective(group);
                model.lists.entry((effective, node)).or_default().push_back(item);
            }
        }
        6 => {
            let item = feed.byte()? % ITEMS;
            let list = model.list_of(item);
            assert_eq!(lru.del(&items[item]).is_some(), list.is_some());
            if let Some(list) = list {
                list.retain(|&number| number != item);
            }
        }
        _ => walk(feed, lru, &groups[group], group, model)?,
    }
    Some(())
}

/// Walks a list with answers from the input, and makes the same changes in the model.
fn walk(feed: &mut Feed<'_>, lru: &ListLru<Item>, memcg: &Memcg, group: usize, model: &mut Model) -> Option<()> {
    let (node, nr, verdicts) = (feed.byte()? as u16 % NODES, feed.byte()? as u64 % 12, feed.byte()?);
    let list = model.lists.entry((group, node)).or_default();
    let shown = (nr as usize).min(list.len());
    let (mut kept, mut rotated, mut gone) = (VecDeque::new(), VecDeque::new(), Vec::new());
    let verdict = |turn: usize| verdicts >> (2 * (turn % 4)) & 3;
    for turn in 0..shown {
        let item = list.pop_front().expect("the list has as many items");
        match verdict(turn) {
            0 => gone.push(item),
            1 => rotated.push_back(item),
            _ => kept.push_back(item),
        }
    }
    kept.append(list);
    kept.append(&mut rotated);
    *list = kept;

    let (mut isolated, mut turn, mut nr_to_walk) = (Isolated::new(), 0, nr);
    let removed = lru.walk_one(memcg, NodeId::new(node), &mut nr_to_walk, |it| {
        turn += 1;
        match verdict(turn - 1) {
            0 => it.isolate(&mut isolated),
            1 => it.rotate(),
            _ => it.skip(),
        }
    });
    assert_eq!((removed as usize, nr_to_walk), (gone.len(), nr - shown as u64));
    assert_eq!(isolated.map(|item| item.number).collect::<Vec<_>>(), gone, "oldest first");
    Some(())
}

fn compare(lru: &ListLru<Item>, items: &[Arc<Item>], groups: &[Memcg], model: &Model) {
    lru.assert_valid();
    for (g, memcg) in groups.iter().enumerate() {
        for node in 0..NODES {
            let expected = model.lists.get(&(g, node)).cloned().unwrap_or_default();
            let mut found = VecDeque::new();
            lru.walk_one(memcg, NodeId::new(node), &mut u64::MAX.clone(), |it| {
                found.push_back(it.item().number);
                it.skip()
            });
            assert_eq!(found, expected, "group {g} on node {node}");
            assert_eq!(lru.count_one(memcg, NodeId::new(node)), expected.len() as u64);
        }
    }
    for item in items {
        let is_listed = model.lists.values().any(|list| list.contains(&item.number));
        assert_eq!(item.links.is_linked(), is_listed);
        assert_eq!(Arc::strong_count(item), 1 + usize::from(is_listed), "a list holds one handle");
    }
}
