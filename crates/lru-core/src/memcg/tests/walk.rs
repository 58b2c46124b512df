//! Walks during all kinds of changes to the groups they visit (guarantee 5).
//!
//! A walk holds no lock between its steps; each test ends groups between two steps at the most
//! harmful place.
//!
//! A new kind of walk gets the same tests.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

use crate::memcg::{Descendants, Memcg, MemcgTree};

fn paths(walk: Descendants) -> Vec<String> {
    walk.map(|memcg| memcg.path()).collect()
}

fn family() -> (MemcgTree, [Memcg; 5]) {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    let aa = a.create("a").unwrap();
    let ab = a.create("b").unwrap();
    let b = tree.root().create("b").unwrap();
    let ba = b.create("a").unwrap();
    (tree, [a, aa, ab, b, ba])
}

#[test]
fn parents_come_before_children_and_older_before_younger() {
    let (tree, [a, _, ab, ..]) = family();
    assert_eq!(paths(tree.root().descendants()), ["/", "/a", "/a/a", "/a/b", "/b", "/b/a"]);
    assert_eq!(paths(a.descendants()), ["/a", "/a/a", "/a/b"]);
    assert_eq!(paths(ab.descendants()), ["/a/b"]);
    ab.offline().unwrap();
    assert_eq!(paths(ab.descendants()), [""; 0]);
    let children: Vec<String> = tree.root().children().iter().map(Memcg::path).collect();
    assert_eq!(children, ["/a", "/b"]);
}

/// The walk's position is a group whose whole branch dies, including its parents; the walk
/// continues after the branch.
#[test]
fn a_walk_continues_after_its_whole_branch_died() {
    let (tree, [a, aa, ab, _, _]) = family();
    let mut walk = tree.root().descendants();
    assert_eq!(walk.by_ref().take(3).last(), Some(aa.clone()));
    for memcg in [ab, aa, a] {
        memcg.offline().unwrap();
    }
    assert_eq!(paths(walk), ["/b", "/b/a"]);
    tree.assert_valid();
}

/// A dying group at a walk's position stays linked to its parent; when the walk is dropped, nothing
/// is left of the group.
#[test]
fn a_walk_that_is_dropped_leaves_no_dying_group_linked() {
    let (tree, groups) = family();
    let mut walks: Vec<Descendants> = (1..=6)
        .map(|steps| {
            let mut walk = tree.root().descendants();
            assert!(walk.by_ref().nth(steps - 1).is_some());
            walk
        })
        .collect();
    for memcg in groups.into_iter().rev() {
        memcg.offline().unwrap();
    }
    tree.assert_valid();
    while let Some(walk) = walks.pop() {
        drop(walk);
        tree.assert_valid();
    }
    assert_eq!(tree.root().create("x").unwrap().id().get(), 1, "all ids came back");
}

#[derive(Clone, Debug)]
enum Op {
    Create { parent: usize, name: u8 },
    Offline(usize),
    Begin { top: usize },
    Step(usize),
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<usize>(), 0..4_u8).prop_map(|(parent, name)| Op::Create { parent, name }),
        3 => any::<usize>().prop_map(Op::Offline),
        1 => any::<usize>().prop_map(|top| Op::Begin { top }),
        6 => any::<usize>().prop_map(Op::Step),
        1 => any::<usize>().prop_map(Op::End),
    ]
}

/// A walk, and the groups it must still visit: those in its subtree that were online at the start,
/// and since then neither went offline nor were visited.
struct Walk {
    walk: Descendants,
    owed: BTreeSet<String>,
    seen: BTreeMap<String, usize>,
}

proptest! {
    #[test]
    fn each_group_online_throughout_is_seen_once(ops in prop::collection::vec(op(), 1..120)) {
        let tree = MemcgTree::new(0);
        // Names of dead groups are not reused, so that each path is unique.
        let mut serial = 0;
        let mut walks: Vec<Walk> = Vec::new();
        for op in ops {
            let groups: Vec<Memcg> = tree.root().descendants().collect();
            match op {
                Op::Create { parent, name } => {
                    serial += 1;
                    let _ = groups[parent % groups.len()].create(&format!("{name}.{serial}"));
                }
                Op::Offline(n) => {
                    let memcg = &groups[n % groups.len()];
                    if memcg.offline().is_ok() {
                        walks.iter_mut().for_each(|walk| { walk.owed.remove(&memcg.path()); });
                    }
                }
                Op::Begin { top } if walks.len() < 4 => {
                    let walk = groups[top % groups.len()].descendants();
                    let owed = groups[top % groups.len()].descendants().map(|memcg| memcg.path()).collect();
                    walks.push(Walk { walk, owed, seen: BTreeMap::new() });
                }
                Op::Step(n) if !walks.is_empty() => {
                    let index = n % walks.len();
                    let Walk { walk, owed, seen } = &mut walks[index];
                    if let Some(memcg) = walk.next() {
                        prop_assert!(memcg.is_online());
                        owed.remove(&memcg.path());
                        *seen.entry(memcg.path()).or_default() += 1;
                    } else {
                        prop_assert!(owed.is_empty(), "never seen: {owed:?}");
                        prop_assert!(seen.values().all(|times| *times == 1), "seen twice: {seen:?}");
                        prop_assert_eq!(walk.next(), None);
                        walks.swap_remove(index);
                    }
                }
                Op::End(n) if !walks.is_empty() => drop(walks.swap_remove(n % walks.len())),
                Op::Begin { .. } | Op::Step(_) | Op::End(_) => {}
            }
            drop(groups);
            tree.assert_valid();
        }
        for Walk { walk, mut owed, .. } in walks {
            walk.for_each(|memcg| { owed.remove(&memcg.path()); });
            prop_assert!(owed.is_empty(), "never seen: {owed:?}");
        }
        tree.assert_valid();
    }
}
