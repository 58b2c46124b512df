//! A random history compared with a simple model; the eager baseline runs beside both.
//!
//! Numbers such as L17 are those of docs/INVARIANTS.md.
//!
//! Each step applies one random operation to the lists, to the model and to the baseline, and then
//! compares counts, orders, and the groups of the items; the footprint is compared at the end. A
//! failing history is reduced by proptest and can be replayed by its seed.
//!
//! A change must ensure that the model shares no code with the lists, and that both and the
//! baseline are compared after each operation.

use super::{item, numbers, Item};
use crate::list_lru::baseline::{EagerListLru, Turn};
use crate::list_lru::refusable::fault;
use crate::list_lru::shards::set_cpu_hint;
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Few items and nodes, so that random operations often meet on one list.
const ITEMS: usize = 12;
const NODES: u16 = 2;

#[derive(Clone, Copy, Debug)]
enum Op {
    Create {
        parent: usize,
    },
    Offline {
        group: usize,
    },
    /// `refuse`: after this many successful allocations one fails.
    Prepare {
        group: usize,
        node: u16,
        refuse: Option<usize>,
    },
    /// `hint`: the processor's number, which selects the shard.
    Add {
        item: usize,
        group: usize,
        node: u16,
        hint: usize,
        refuse: Option<usize>,
    },
    /// `whose`: remove it with `del_with_memcg`.
    Del {
        item: usize,
        whose: bool,
    },
    Promote {
        item: usize,
    },
    Replace {
        item: usize,
        by: usize,
    },
    /// `verdicts`: two bits for each of up to 7 visits. 0 isolates, 1 rotates, the others skip.
    Walk {
        group: usize,
        node: u16,
        nr: u64,
        verdicts: u16,
    },
    Sweep {
        group: usize,
    },
    Split {
        group: usize,
        node: u16,
        refuse: Option<usize>,
    },
    Join {
        group: usize,
        node: u16,
    },
}

/// Mostly no allocation fails.
fn refuse() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![3 => Just(None), 1 => (0..6_usize).prop_map(Some)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => any::<usize>().prop_map(|parent| Op::Create { parent }),
        2 => any::<usize>().prop_map(|group| Op::Offline { group }),
        1 => (any::<usize>(), 0..NODES, refuse()).prop_map(|(group, node, refuse)| Op::Prepare { group, node, refuse }),
        6 => (0..ITEMS, any::<usize>(), 0..NODES, any::<usize>(), refuse())
            .prop_map(|(item, group, node, hint, refuse)| Op::Add { item, group, node, hint: hint & 0xff, refuse }),
        3 => (any::<usize>(), 0..NODES, refuse()).prop_map(|(group, node, refuse)| Op::Split { group, node, refuse }),
        1 => (any::<usize>(), 0..NODES).prop_map(|(group, node)| Op::Join { group, node }),
        4 => (0..ITEMS, any::<bool>()).prop_map(|(item, whose)| Op::Del { item, whose }),
        2 => (0..ITEMS).prop_map(|item| Op::Promote { item }),
        2 => (0..ITEMS, 0..ITEMS).prop_map(|(item, by)| Op::Replace { item, by }),
        2 => any::<usize>().prop_map(|group| Op::Sweep { group }),
        2 => (any::<usize>(), 0..NODES, 0..8_u64, any::<u16>())
            .prop_map(|(group, node, nr, verdicts)| Op::Walk { group, node, nr, verdicts }),
    ]
}

/// Groups by number; lists by (group, node).
#[derive(Default)]
struct Model {
    parent: Vec<usize>,
    online: Vec<bool>,
    lists: BTreeMap<(usize, u16), Lists>,
    /// Lists that the last sweep found empty, and that got no item since.
    idle: BTreeSet<(usize, u16)>,
    /// Lists that had shards, so that their order is not that of the adds.
    mixed: BTreeSet<(usize, u16)>,
}

/// One visit, in the unit of `Lists::owed`.
const ONE: i64 = 1 << 30;

/// A list and its shards, each oldest first.
#[derive(Default)]
struct Lists {
    whole: VecDeque<usize>,
    shards: Vec<VecDeque<usize>>,
    /// The number of the list with which the next walk begins: 0 is the list itself.
    next: usize,
    /// The parts of visits that earlier walks owe each list, in 2^30ths.
    owed: Vec<i64>,
    /// The number of adds to each shard since the first sweep.
    adds: Vec<usize>,
    /// Whether a sweep has visited the shards.
    is_swept: bool,
}

impl Lists {
    fn len(&self) -> usize {
        self.all().map(VecDeque::len).sum()
    }

    fn all(&self) -> impl Iterator<Item = &VecDeque<usize>> {
        core::iter::once(&self.whole).chain(&self.shards)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut VecDeque<usize>> {
        core::iter::once(&mut self.whole).chain(&mut self.shards)
    }

    /// Returns the items that a walk visits, in order.
    fn in_order(&self) -> impl Iterator<Item = usize> + '_ {
        let (before, from) = (self.all().take(self.next), self.all().skip(self.next));
        from.chain(before).flatten().copied()
    }

    fn add(&mut self, item: usize, hint: usize) {
        match self.shards.len() {
            0 => self.whole.push_back(item),
            n => self.shards[hint % n].push_back(item),
        }
    }

    /// Counts an add, whether or not the item is on a list already.
    fn count_add(&mut self, hint: usize) {
        if let n @ 1.. = self.shards.len() {
            self.adds[hint % n] += 1;
        }
    }

    fn split(&mut self, shards: usize) {
        self.shards.resize(shards, VecDeque::new());
        (self.adds, self.is_swept) = (Vec::from_iter((0..shards).map(|_| 0)), false);
    }

    /// Returns whether a sweep joins the shards: not the first after the split.
    fn sweep(&mut self) -> bool {
        if self.is_swept {
            return !self.shards.is_empty();
        }
        self.is_swept = true;
        self.adds.fill(0);
        false
    }

    /// Joins the shards, that with the most adds last.
    fn join_shards(&mut self) {
        let busiest = (0..self.shards.len()).max_by_key(|&n| self.adds[n]).unwrap_or(0);
        let shards = core::mem::take(&mut self.shards);
        let joined = shards.iter().cycle().skip(busiest + 1).take(shards.len());
        joined.for_each(|shard| self.whole.extend(shard));
        (self.next, self.owed) = (0, Vec::new());
    }

    /// Returns how many items of each list a walk visits.
    fn shares(&mut self, nr: usize) -> Vec<usize> {
        let lens: Vec<_> = self.all().map(VecDeque::len).collect();
        if nr >= self.len() {
            return lens;
        }
        self.owed.resize(lens.len(), 0);
        let owed = self.owed.iter().zip(&lens);
        let mut owed: Vec<_> = owed.map(|(owed, &len)| owed + (nr * len) as i64 * ONE / self.len() as i64).collect();
        let mut shares = Vec::from_iter(lens.iter().map(|_| 0));
        for _ in 0..nr {
            // Of equals, the first.
            let more = (0..lens.len()).rev().filter(|&list| shares[list] < lens[list]);
            let list = more.max_by_key(|&list| owed[list]).unwrap();
            shares[list] += 1;
            owed[list] -= ONE;
        }
        for (list, owed) in owed.into_iter().enumerate() {
            let most = if shares[list] == lens[list] { 0 } else { ONE };
            self.owed[list] = owed.clamp(-ONE, most);
        }
        shares
    }

    /// Performs a walk. Returns the removed and the rotated items, in the order of the visits, and
    /// the number of visits.
    fn walk(&mut self, nr: usize, verdicts: u16) -> (Vec<usize>, Vec<usize>, usize) {
        let (mut gone, mut turned, mut turn, mut left) = (Vec::new(), Vec::new(), 0, nr);
        if nr == 0 {
            return (gone, turned, 0);
        }
        let (shares, lists) = (self.shares(nr), 1 + self.shards.len());
        for _ in 0..lists {
            let index = self.next;
            self.next = (index + 1) % lists;
            let list = index.checked_sub(1).map_or(&mut self.whole, |shard| &mut self.shards[shard]);
            let shown = shares[index].min(left).min(list.len());
            let (mut kept, mut rotated) = (VecDeque::new(), VecDeque::new());
            for item in list.drain(..shown).collect::<Vec<_>>() {
                match verdicts >> (2 * turn) & 3 {
                    0 => gone.push(item),
                    1 => rotated.push_back(item),
                    _ => kept.push_back(item),
                }
                turn += 1;
            }
            turned.extend(&rotated);
            kept.append(list);
            kept.append(&mut rotated);
            *list = kept;
            left -= shown;
            if left == 0 {
                break;
            }
        }
        (gone, turned, nr - left)
    }
}

impl Model {
    fn effective(&self, mut group: usize) -> usize {
        while !self.online[group] {
            group = self.parent[group];
        }
        group
    }

    /// Returns the group and node on whose list an item is, and the list or the shard itself.
    fn find(&mut self, item: usize) -> Option<((usize, u16), &mut VecDeque<usize>)> {
        self.lists.iter_mut().find_map(|(key, lists)| {
            let list = lists.all_mut().find(|list| list.contains(&item))?;
            Some((*key, list))
        })
    }

    fn is_below(&self, mut group: usize, top: usize) -> bool {
        while group != top && group != 0 {
            group = self.parent[group];
        }
        group == top
    }

    fn sweep(&mut self, top: usize) {
        let below: Vec<_> = self.lists.keys().copied().filter(|key| self.is_below(key.0, top)).collect();
        for key in &below {
            let list = self.lists.get_mut(key).unwrap();
            if list.sweep() {
                list.join_shards();
            }
        }
        let is_meant = |key: &(usize, u16)| self.lists[key].len() == 0 && self.lists[key].shards.is_empty();
        let empty: Vec<_> = below.into_iter().filter(is_meant).collect();
        // A child's number is greater than its parent's.
        for key in empty.into_iter().rev() {
            let is_child = |&(g, n): &(usize, u16)| g != 0 && (self.parent[g], n) == key;
            if !self.lists.keys().any(is_child) && self.idle.remove(&key) {
                self.lists.remove(&key);
                self.mixed.remove(&key);
            } else {
                self.idle.insert(key);
            }
        }
    }

    /// Adds to the model those lists of `group` and its ancestors that exist now: if an allocation
    /// failed, not all were created. Checks that none was removed (L6, L17).
    fn populate_as_seen(&mut self, lru: &ListLru<Item>, groups: &[Memcg], mut group: usize, node: u16) {
        loop {
            let is_there = lru.is_populated(&groups[group], NodeId::new(node));
            assert!(is_there || !self.lists.contains_key(&(group, node)), "a created list stays");
            if is_there {
                self.lists.entry((group, node)).or_default();
            }
            if group == 0 {
                return;
            }
            group = self.parent[group];
        }
    }
}

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers
}

/// Applies the operations to the lists, to the model and to the baseline, and compares all three
/// after each; at the end removes everything and expects the initial footprint.
fn run(ops: Vec<Op>) {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let empty = lru.footprint();
    let eager = Arc::new(EagerListLru::<Item>::new(usize::from(NODES)));
    tree.add_hook(eager.clone());
    let items: Vec<Arc<Item>> = (0..ITEMS).map(item).collect();
    // An item is on one list at a time, so the baseline has items of its own.
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
                            list.join_shards();
                            if list.len() != 0 {
                                model.idle.remove(&(parent, node));
                                if model.mixed.contains(&(group, node)) {
                                    model.mixed.insert((parent, node));
                                }
                            }
                            model.mixed.remove(&(group, node));
                            list.whole.append(&mut parents.whole);
                            parents.whole = list.whole;
                        }
                    }
                }
            }
            Op::Prepare { group, node, refuse } => {
                let group = group % groups.len();
                let effective = model.effective(group);
                let refuse = refuse.unwrap_or(usize::MAX);
                let (prepared, refused) =
                    fault::after(refuse, || lru.prepare(&groups[group], NodeId::new(node)).is_ok());
                assert_eq!(prepared, !refused, "L17");
                model.populate_as_seen(&lru, &groups, effective, node);
                assert!(model.lists.contains_key(&(effective, node)) || refused, "L17");
            }
            Op::Add { item, group, node, hint, refuse } => {
                let group = group % groups.len();
                let linked = model.lists.values().any(|list| list.all().any(|list| list.contains(&item)));
                let mut effective = model.effective(group);
                set_cpu_hint(hint);
                let add = || lru.add(items[item].clone(), &groups[group], NodeId::new(node)).is_ok();
                let (added, refused) = fault::after(refuse.unwrap_or(usize::MAX), add);
                if !linked {
                    model.populate_as_seen(&lru, &groups, effective, node);
                    // For a dying group, the allocation of its list may fail before the code finds
                    // out that none is to be created.
                    assert!(model.lists.contains_key(&(effective, node)) || refused, "L17");
                    while effective != 0 && !model.lists.contains_key(&(effective, node)) {
                        effective = model.parent[effective];
                    }
                    assert_eq!(added, model.lists.contains_key(&(effective, node)), "an ancestor's list will do");
                } else {
                    assert!(!added, "L4");
                }
                // A linked item is refused by the group's own list, if that exists.
                let counted = if linked { group } else { effective };
                model.lists.get_mut(&(counted, node)).into_iter().for_each(|list| list.count_add(hint));
                if added {
                    model.lists.get_mut(&(effective, node)).unwrap().add(item, hint);
                    model.idle.remove(&(effective, node));
                }
                if added || linked {
                    let twin = eager.add(twins[item].clone(), &groups[effective], NodeId::new(node));
                    assert_eq!(twin.is_ok(), !linked, "L4");
                }
            }
            Op::Split { group, node, refuse } => {
                let group = group % groups.len();
                let expected = model.lists.get(&(group, node)).is_some_and(|list| list.shards.is_empty());
                let split = || lru.split_now(&groups[group], NodeId::new(node));
                let (split, refused) = fault::after(refuse.unwrap_or(usize::MAX), split);
                assert_eq!(split, expected && !refused, "L17");
                if split {
                    let shards = lru.shards(&groups[group], NodeId::new(node));
                    assert!(shards.is_power_of_two() && shards > 1);
                    let list = model.lists.get_mut(&(group, node)).unwrap();
                    list.split(shards);
                    model.mixed.insert((group, node));
                    model.idle.remove(&(group, node));
                }
            }
            Op::Join { group, node } => {
                let group = group % groups.len();
                let list = model.lists.get_mut(&(group, node)).filter(|list| !list.shards.is_empty());
                assert_eq!(lru.join_shards_now(&groups[group], NodeId::new(node)), list.is_some());
                if let Some(list) = list {
                    list.sweep();
                    list.join_shards();
                }
            }
            Op::Del { item, whose } => {
                let found = model.find(item);
                let owner = found.as_ref().map(|((group, _), _)| groups[*group].clone());
                if whose {
                    let (handle, whose) = lru.del_with_memcg(&items[item]).unzip();
                    assert_eq!((handle.map(|it| it.number), whose), (found.as_ref().map(|_| item), owner), "L4");
                } else {
                    assert_eq!(lru.del(&items[item]).map(|it| it.number), found.as_ref().map(|_| item), "L4");
                }
                assert_eq!(eager.del(&twins[item]).is_some(), found.is_some(), "L4");
                if let Some((_, list)) = found {
                    list.retain(|&i| i != item);
                }
            }
            Op::Promote { item } => {
                let found = model.find(item);
                assert_eq!(lru.promote(&items[item]), found.is_some());
                if let Some(((group, node), list)) = found {
                    list.retain(|&i| i != item);
                    list.push_back(item);
                    // The baseline's youngest item is the one added last.
                    let twin = eager.del(&twins[item]).expect("L4");
                    assert!(eager.add(twin, &groups[group], NodeId::new(node)).is_ok(), "L4");
                }
            }
            Op::Replace { item, by } => {
                let is_free = model.find(by).is_none();
                let found = model.find(item).filter(|_| is_free);
                let replaced = lru.replace(&items[item], items[by].clone()).map(|it| it.number);
                assert_eq!(replaced.map_err(|it| it.number), found.as_ref().map_or(Err(by), |_| Ok(item)), "L4");
                if let Some(((group, node), list)) = found {
                    list.iter_mut().filter(|i| **i == item).for_each(|i| *i = by);
                    // The baseline has no `replace`: its whole list is added anew.
                    let (group, node) = (&groups[group], NodeId::new(node));
                    let mut nr = u64::MAX;
                    for twin in eager.walk_one(group, node, &mut nr, |_| Turn::Remove) {
                        let twin = if twin.number == item { twins[by].clone() } else { twin };
                        assert!(eager.add(twin, group, node).is_ok(), "L4");
                    }
                }
            }
            Op::Sweep { .. } => {} // Handled below.
            Op::Walk { group, node, nr, verdicts } => {
                let group = group % groups.len();
                let is_mixed = model.mixed.contains(&(group, node));
                let mut empty = Lists::default();
                let list = model.lists.get_mut(&(group, node)).unwrap_or(&mut empty);
                let (gone, turned, shown) = list.walk(nr as usize, verdicts);

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

                // The baseline has no shards: its verdicts are selected by item number.
                let mut twins_nr_to_walk = if is_mixed { u64::MAX } else { nr };
                let twins_gone =
                    eager.walk_one(&groups[group], NodeId::new(node), &mut twins_nr_to_walk, |it| match it.number {
                        n if gone.contains(&n) => Turn::Remove,
                        n if turned.contains(&n) => Turn::Rotate,
                        _ => Turn::Skip,
                    });
                let twins_gone: Vec<_> = twins_gone.iter().map(|it| it.number).collect();
                if is_mixed {
                    assert_eq!(sorted(twins_gone), sorted(gone), "L13");
                } else {
                    assert_eq!((twins_nr_to_walk, twins_gone), (nr_to_walk, gone), "L11, L13");
                }
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
        for (n, it) in items.iter().enumerate() {
            let group = model.find(n).map(|((group, _), _)| &groups[group]);
            assert_eq!(lru.memcg_of(it).as_ref(), group, "L7");
        }
        for (g, group) in groups.iter().enumerate() {
            for node in 0..NODES {
                let list = model.lists.get(&(g, node));
                let expected: Vec<_> = list.into_iter().flat_map(Lists::in_order).collect();
                assert_eq!(lru.count_one(group, NodeId::new(node)), expected.len() as u64, "L1, L2");
                assert_eq!(numbers(&lru, group, NodeId::new(node)), expected, "L9, L13");
                assert_eq!(lru.shards(group, NodeId::new(node)), list.map_or(0, |list| list.shards.len()));
                assert_eq!(eager.count_one(group, NodeId::new(node)), expected.len() as u64, "L1, L2");
                let mut twins = Vec::new();
                eager.walk_one(group, NodeId::new(node), &mut u64::MAX.clone(), |it| {
                    twins.push(it.number);
                    Turn::Skip
                });
                if model.mixed.contains(&(g, node)) {
                    assert_eq!(sorted(twins), sorted(expected), "L9");
                } else {
                    assert_eq!(twins, expected, "L9, L13");
                }
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
    // After all items are removed, sweeps free everything (L16): lists, shards, table.
    items.iter().for_each(|it| drop(lru.del(it)));
    while crate::list_lru::sweep(tree.root()) != Default::default() || lru.pairs() != 0 {}
    assert_eq!(lru.footprint(), empty);
    // Items that stay on the lists and in the baseline are dropped with them (L20).
    twins.iter().enumerate().step_by(2).for_each(|(n, it)| {
        let _ = (eager.del(it), lru.add(items[n].clone(), tree.root(), NodeId::ZERO));
    });
    drop(lru);
    drop((tree, eager));
    assert!(items.iter().chain(&twins).all(|it| Arc::strong_count(it) == 1), "L20");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_histories_match_the_model(ops in prop::collection::vec(op(), 1..80)) {
        run(ops);
    }
}
