//! The pairs of a group and of the groups below it, some of them in turn: the candidates of a
//! selection below the group's limit.
//!
//! Among all pairs those of a small group are rare, so they are looked up by their group. Each
//! node's summary has the position of the turn, and each group takes its turn with all of its
//! shrinkers, or with some from a random one on.
//!
//! A change must ensure that each pair of the subtree takes its turn after a bounded number of
//! calls, that a call looks up no more than `max` pairs on each node, and that nothing is
//! allocated: memory is short.

use lowwater_lru_core::{Memcg, MemcgId};

use super::node::NodeMap;
use super::Map;
use crate::utility::{Candidates, Pairs, CANDIDATES_MAX};

impl Map {
    /// Adds up to `max` pairs of `limit` and the groups below it to the candidates, from a random
    /// node and, if these are fewer, from the others.
    pub(crate) fn add_in_turn(&self, limit: &Memcg, max: usize, candidates: &mut Candidates) {
        let Some(pairs) = self.by_utility().filter(|_| max > 0) else { return };
        let end = candidates.as_slice().len() + max;
        let start = pairs.random(1 << 32) as u32;
        // By the low half, because the high one decides where in a group's shrinkers to start.
        let first = ((start as usize & 0xffff) * self.nodes.len()) >> 16;
        for node in self.nodes.iter().cycle().skip(first).take(self.nodes.len()) {
            node.add_in_turn(limit, max, end, start, pairs, candidates);
        }
    }
}

impl NodeMap {
    /// Adds pairs of this node until there are `end` candidates, or `max` pairs were looked up.
    fn add_in_turn(
        &self,
        limit: &Memcg,
        max: usize,
        end: usize,
        start: u32,
        pairs: &Pairs,
        candidates: &mut Candidates,
    ) {
        let missing = end.saturating_sub(candidates.as_slice().len());
        if missing == 0 {
            return;
        }
        let mut found = [MemcgId::ROOT; CANDIDATES_MAX];
        let found = found.get_mut(..missing).unwrap_or_default();
        let taken = self.summary.lock().take_turns(limit.id(), found);
        let mut groups = found.get(..taken).unwrap_or_default().iter();
        // Of pairs that are missing from the table, and of those that are candidates already, too.
        let mut lookups = 0;
        while lookups < max && candidates.as_slice().len() < end {
            let Some(group) = groups.next() else { break };
            let infos = self.shard(*group).read();
            for id in infos.get(*group).into_iter().flat_map(|info| info.words.iter_around(start)) {
                if lookups >= max || candidates.as_slice().len() >= end {
                    break;
                }
                lookups += 1;
                pairs.find(id, *group).into_iter().for_each(|slot| candidates.insert(slot));
            }
        }
        let unused = groups.as_slice();
        if !unused.is_empty() {
            self.summary.lock().give_turns_back(limit, unused);
        }
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;
    use crate::map::Key;
    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use lowwater_lru_core::{MemcgTree, NodeId};

    fn map(nodes: usize, shrinkers: u32) -> (MemcgTree, Map, Vec<Key>) {
        let (tree, map) = (MemcgTree::new(0), Map::try_new(nodes, true).unwrap());
        map.belong_to(tree.root());
        let keys = (0..shrinkers).map(|id| map.open(id).unwrap()).collect();
        (tree, map, keys)
    }

    fn children(parent: &Memcg, n: u32) -> Vec<Memcg> {
        (0..n).map(|n| parent.create(&n.to_string()).unwrap()).collect()
    }

    /// Returns how often each pair is a candidate in `calls` calls.
    fn turns(map: &Map, limit: &Memcg, max: usize, calls: usize) -> BTreeMap<(u32, MemcgId), usize> {
        let (pairs, mut turns) = (map.by_utility().unwrap(), BTreeMap::new());
        for _ in 0..calls {
            let mut candidates = Candidates::new();
            map.add_in_turn(limit, max, &mut candidates);
            assert!(candidates.as_slice().len() <= max);
            let ids = candidates.as_slice().iter().map(|slot| pairs.pair(*slot).unwrap().ids().unwrap());
            let ids: Vec<_> = ids.collect();
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each once");
            ids.into_iter().for_each(|pair| *turns.entry(pair).or_default() += 1);
        }
        turns
    }

    #[test]
    fn the_pairs_of_a_group_and_of_those_below_it_take_turns_and_no_others() {
        for (nodes, max) in [(1, 16), (1, 64), (2, 16), (3, 7), (3, 1)] {
            let (tree, map, keys) = map(nodes, 3);
            let (limit, other) = (tree.root().create("limit").unwrap(), tree.root().create("other").unwrap());
            let mut below = children(&limit, 9);
            below.extend(below.clone().iter().step_by(2).flat_map(|group| children(group, 7)));
            below.extend(children(&below[9], 5));
            below.push(limit.clone());
            // The groups without objects have some below them.
            let pairs = || {
                below
                    .iter()
                    .filter(|group| group.id().get() % 4 != 0)
                    .flat_map(|group| keys.iter().map(move |key| (group, *key)).take(1 + group.id().index() % 3))
            };
            for (n, (group, key)) in pairs().enumerate() {
                map.set(group, NodeId::new((n % nodes) as u16), key);
                map.set(group, NodeId::new((n * n % nodes) as u16), key);
            }
            children(&other, 50)
                .iter()
                .chain([&other, tree.root()])
                .for_each(|group| _ = map.set(group, NodeId::ZERO, keys[0]));
            let all: BTreeSet<_> = pairs().map(|(group, key)| (key.id, group.id())).collect();
            // A group of three pairs may leave two of them out, and a node's turn may come late.
            let seen = turns(&map, &limit, max, 8 * nodes * all.len().div_ceil(max));
            assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), all, "{nodes} nodes, {max} at once");
            let few = pairs().filter(|(group, _)| group.is_descendant_of(&below[9])).count();
            assert!((4..16).contains(&few), "{few}");
            assert_eq!(turns(&map, &below[9], few, 1).len(), few, "all at once");
        }
    }

    #[test]
    fn groups_take_turns_equally_while_the_last_ones_end() {
        let (tree, map, keys) = map(1, 1);
        let limit = tree.root().create("limit").unwrap();
        let mut groups = children(&limit, 300);
        groups.iter().for_each(|group| _ = map.set(group, NodeId::ZERO, keys[0]));
        let seen = turns(&map, &limit, 16, 300);
        assert!(seen.len() == 300 && seen.values().all(|turns| *turns == 16), "{seen:?}");
        let mut all = BTreeSet::new();
        for _ in 0..19 {
            let seen: Vec<_> = turns(&map, &limit, 16, 1).into_keys().map(|(_, group)| group).collect();
            let last = groups.iter().position(|group| Some(&group.id()) == seen.iter().max()).unwrap();
            let ended = groups.swap_remove(last);
            ended.offline().unwrap();
            map.offline(&ended, &limit);
            all.extend(seen);
        }
        assert!(groups.iter().all(|group| all.contains(&group.id())));
    }

    /// Removes the pair of a group that a scan has emptied.
    fn retire(map: &Map, group: &Memcg, key: Key) {
        let last = map.clear(group, NodeId::ZERO, key.id);
        map.retire_pair(group, NodeId::ZERO, key.id, last);
        map.remove_unset(key.id, group.id());
    }

    /// The last group of each call is emptied, and refilled after `calls_empty` calls.
    #[test]
    fn groups_below_take_turns_while_the_last_ones_are_emptied_and_refilled() {
        for (max, calls_empty) in [(16, 1), (16, 0), (1, 1), (1, 0), (16, 5)] {
            let (tree, map, keys) = map(1, 1);
            let limit = tree.root().create("limit").unwrap();
            let mid = limit.create("mid").unwrap();
            let mut groups = children(&mid, 200);
            // With the pair of such a group, its parent leaves the summary, too.
            groups.extend(children(&limit, 100).iter().flat_map(|parent| children(parent, 1)));
            groups.iter().for_each(|group| _ = map.set(group, NodeId::ZERO, keys[0]));
            let (mut all, mut empty) = (BTreeSet::new(), alloc::collections::VecDeque::new());
            for round in 0..1_000 {
                let slots = {
                    let mut candidates = Candidates::new();
                    map.add_in_turn(&limit, max, &mut candidates);
                    candidates.as_slice().to_vec()
                };
                let pairs = map.by_utility().unwrap();
                let ids: Vec<_> = slots.iter().map(|slot| pairs.pair(*slot).unwrap().ids().unwrap().1).collect();
                let last = groups.iter().find(|group| Some(&group.id()) == ids.last()).unwrap();
                all.extend(ids);
                retire(&map, last, keys[0]);
                empty.push_back(last);
                if empty.len() > calls_empty {
                    map.set(empty.pop_front().unwrap(), NodeId::ZERO, keys[0]);
                }
                if round % 50 == 0 {
                    map.nodes[0].summary.lock().assert_valid();
                }
            }
            assert_eq!(all.len(), 300, "{max} at once, empty for {calls_empty} calls");
        }
    }

    /// The group that takes its turn next is emptied: the group after it is next, also if its
    /// parent has objects and becomes a leaf, or has none and leaves the summary, too.
    #[test]
    fn the_group_after_an_emptied_one_takes_its_turn() {
        for has_parent_objects in [true, false] {
            let (tree, map, keys) = map(1, 1);
            let limit = tree.root().create("limit").unwrap();
            let [parent, sibling, last] = ["parent", "sibling", "last"].map(|name| limit.create(name).unwrap());
            let child = parent.create("child").unwrap();
            let with_objects =
                [Some(&parent).filter(|_| has_parent_objects), Some(&child), Some(&sibling), Some(&last)];
            with_objects.into_iter().flatten().for_each(|group| _ = map.set(group, NodeId::ZERO, keys[0]));
            let next = || turns(&map, &limit, 1, 1).into_keys().next().unwrap().1;
            if has_parent_objects {
                assert_eq!(next(), parent.id());
            } else {
                // A lap, so that the child is next again.
                assert_eq!([next(), next(), next()], [&child, &sibling, &last].map(Memcg::id));
            }
            retire(&map, &child, keys[0]);
            map.nodes[0].summary.lock().assert_valid();
            assert_eq!([next(), next()], [sibling.id(), last.id()], "parent with objects: {has_parent_objects}");
        }
    }

    /// There was no memory for the pairs of the first group, so they are missing from the table.
    #[test]
    fn a_call_looks_up_no_more_than_max_pairs() {
        let (tree, map, keys) = map(1, 100);
        let limit = tree.root().create("limit").unwrap();
        let groups = children(&limit, 2);
        map.set(&groups[1], NodeId::ZERO, keys[0]);
        for key in &keys {
            map.set(&groups[0], NodeId::ZERO, *key);
            map.by_utility().unwrap().remove(key.id, groups[0].id());
        }
        assert_eq!(turns(&map, &limit, 16, 1).len(), 0, "all 16 are missing");
        assert_eq!(turns(&map, &limit, 16, 1).len(), 1, "the other group has its turn");
    }

    #[test]
    fn the_shrinkers_of_a_single_group_take_turns() {
        for open in [16, 17, 64, 200, 1_000] {
            let (tree, map, keys) = map(1, open);
            let group = tree.root().create("limit").unwrap();
            keys.iter().for_each(|key| _ = map.set(&group, NodeId::ZERO, *key));
            let calls = if open <= 16 { 1 } else { open as usize };
            let seen = turns(&map, &group, 16, calls);
            assert_eq!(seen.len(), open as usize);
            let most = seen.values().max().unwrap();
            assert!(*most <= 80, "{most} of {calls} calls, {open} shrinkers");
        }
    }
}
