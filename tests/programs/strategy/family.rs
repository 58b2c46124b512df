//! Families: sequences of steps that are rarely drawn one by one, and that found defects.
//!
//! The table of `main.rs` names each family with the defect that it found. A new defect of a kind
//! that single steps rarely reach gets a family, and a row there.

use proptest::collection::vec;
use proptest::prelude::*;

use super::mix::Mix;
use crate::callback::{Action, Callback};
use crate::feature::{Feature, Features};
use crate::step::{CacheChoices, Life, Scope, Step, WalkTurn, CACHES, KEYS, LISTS};

/// Draws a family.
pub fn family(mix: &Mix) -> BoxedStrategy<Vec<Step>> {
    let on = mix.on;
    let on = |feature| u32::from(on.has(feature));
    prop_oneof![
        1 => Just(vec![Step::Housekeeper]),
        3 * on(Feature::Chains) => moves_between_chains(),
        3 * on(Feature::TwoTrees) => two_trees_in_a_list(mix.on),
        2 * on(Feature::CapturePanics) => housekeeper_drops_captures(),
        2 * on(Feature::ListenersDropHandles) => caches_end_each_other(),
    ]
    .boxed()
}

/// A reader of the first table keeps names that it has found, while they move to the second table
/// and that one is dropped.
fn moves_between_chains() -> BoxedStrategy<Vec<Step>> {
    let names = vec((0..KEYS, any::<bool>()), 1..6).prop_map(|names| {
        // A new name, because the slot's old one is dropped first, or the existing one.
        let names =
            names.into_iter().map(|(key, is_new)| [is_new.then_some(Step::Chain(key, 4)), Some(Step::Chain(key, 0))]);
        names.flatten().flatten().collect::<Vec<_>>()
    });
    let change = prop_oneof![
        3 => Just(5u8),
        3 => Just(7),
        1 => Just(6),
        1 => 0..10u8,
    ];
    let changes = vec((0..KEYS, change).prop_map(|(key, how)| Step::Chain(key, how)), 2..7);
    (names, changes, any::<bool>())
        .prop_map(|(mut steps, mut changes, on_thread)| {
            if on_thread {
                changes = vec![Step::Within(Scope::Thread, changes)];
            }
            steps.push(Step::Within(Scope::Reader, changes));
            steps
        })
        .boxed()
}

/// Boxes of groups of two trees in one list: slots 0 and 1 have groups of the runtime's tree, 6 and
/// 7 groups of the second tree, which may have the same ids.
fn two_trees_in_a_list(on: Features) -> BoxedStrategy<Vec<Step>> {
    let groups = || proptest::sample::select(vec![0u8, 1, 6, 7]);
    let end = if on.has(Feature::GroupsEnd) { 2 } else { 0 };
    let some = (groups(), 0..3u8, 1..12u8);
    let turns = vec(prop_oneof![Just(WalkTurn::Isolate), Just(WalkTurn::Skip), Just(WalkTurn::Rotate)], 1..4);
    (0..LISTS, 0..4u8, 0..4u8)
        .prop_flat_map(move |(list, how, name)| {
            let add = move |(group, node, count)| Step::AddBox { list, group, node, count };
            let walk = move |((group, node, nr), turns)| Step::Walk { list, group: Some(group), node, nr, turns };
            let step = prop_oneof![
                6 => some.clone().prop_map(add),
                3 => (some.clone(), turns.clone()).prop_map(walk),
                end => groups().prop_map(Step::Offline),
            ];
            vec(step, 3..12).prop_map(move |steps| {
                let mut all = vec![Step::MakeList(list, how), Step::Find(0, 0), Step::Find(1, 1)];
                all.extend([Step::Make(6, 0, name), Step::Make(7, 0, 1)]);
                all.extend(steps);
                all
            })
        })
        .boxed()
}

/// Returns a cache whose listener drops the handle in the slot `ends`. The number of the slot also
/// selects the order of eviction, so that programs differ in it.
fn listening(ends: u8) -> CacheChoices {
    CacheChoices {
        kind: 0,
        eviction: ends,
        hashing: 2,
        life: Life::Default,
        idle: None,
        ahead: 0,
        stale: 0,
        computes_times: false,
        limit: None,
        weight: 100,
        listens: true,
        costs: false,
        seeks: None,
        group: None,
        ends: Some(ends),
    }
}

fn in_group(cache: u8, group: u8, keys: u32) -> impl Iterator<Item = Step> {
    (0..keys).map(move |key| Step::Insert { cache, key, group: Some(group), life: Life::Default, sets: false })
}

/// The housekeeper's thread drops the last handle of a cache, and with it state that panics in its
/// `Drop`.
fn housekeeper_drops_captures() -> BoxedStrategy<Vec<Step>> {
    (0..CACHES, 0..6u8, 0..4u8, 0..3u8)
        .prop_map(|(cache, group, name, after)| {
            let mut steps = vec![Step::Find(group, name), Step::Build(cache, listening(cache))];
            steps.extend(in_group(cache, group, 3));
            steps.push(Step::Arm { callback: Callback::CaptureDrop, after, action: Action::Panic });
            steps.extend([Step::DropGroup(group), Step::Housekeeper]);
            steps
        })
        .boxed()
}

/// Evicts from two caches on two or three threads; the listener of each drops the other's last
/// handle.
fn caches_end_each_other() -> BoxedStrategy<Vec<Step>> {
    (0..CACHES, 1..CACHES, 0..3u8)
        .prop_map(|(one, further, how)| {
            let other = (one + further) % CACHES;
            let mut steps = vec![Step::Find(0, 0), Step::Find(1, 1)];
            steps.extend([Step::Build(one, listening(other)), Step::Build(other, listening(one))]);
            steps.extend(in_group(one, 0, 3).chain(in_group(other, 1, 3)));
            let all = u16::MAX;
            let threads = match how {
                0 => vec![Step::Reclaim(0, all), Step::Reclaim(1, all)],
                1 => vec![Step::Reclaim(0, all), Step::DropGroup(1)],
                _ => vec![Step::DropGroup(1), Step::DropGroup(0), Step::Reclaim(0, all)],
            };
            steps.push(Step::Within(Scope::Threads, threads));
            steps.push(Step::Housekeeper);
            steps
        })
        .boxed()
}
