//! The pairs of a group and of the groups below it, some of them in turn: the candidates of a
//! selection below the group's limit.
//!
//! Among all pairs those of a small group are rare, so they are looked up by their group. Each
//! node's summary has the position of the turn, and each group takes its turn with all of its
//! shrinkers, or with some from a random one on.
//!
//! A change must ensure that each pair of the subtree takes its turn after a bounded number of
//! calls, that a call costs no more than `max` lookups, and that nothing is allocated: memory is
//! short.

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
            node.add_in_turn(limit, end, start, pairs, candidates);
        }
    }
}

impl NodeMap {
    /// Adds pairs of this node until there are `end` candidates.
    fn add_in_turn(&self, limit: &Memcg, end: usize, start: u32, pairs: &Pairs, candidates: &mut Candidates) {
        let max = end.saturating_sub(candidates.as_slice().len());
        if max == 0 {
            return;
        }
        let mut found = [MemcgId::ROOT; CANDIDATES_MAX];
        let groups = self.summary.lock().in_turn(limit, found.get_mut(..max).unwrap_or_default());
        let mut last = None;
        for group in found.into_iter().take(groups) {
            if candidates.as_slice().len() >= end {
                break;
            }
            let infos = self.shard(group).read();
            for id in infos.get(group).into_iter().flat_map(|info| info.words.iter_around(start)) {
                if candidates.as_slice().len() >= end {
                    break;
                }
                pairs.find(id, group).into_iter().for_each(|slot| candidates.insert(slot));
            }
            last = Some(group);
        }
        // A group that is the only one in the subtree is always the next one.
        if let Some(last) = last.filter(|_| groups > 1 || max == 1) {
            self.summary.lock().set_turn(limit.id(), last);
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
